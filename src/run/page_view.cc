#include "run/page_view.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/processor_use.h"
#include "control/query.h"
#include "ir/op.h"
#include "ir/plan.h"
#include "monitor/monitor.h"
#include "protocol/report.h"
#include "run/request.h"
#include "world/seats.h"

namespace tenuto {
namespace {

double seconds_of(Duration duration) { return to_milliseconds(duration) / 1e3; }

// A paced device has a clock of its own, on which a busy host does not count.
page::WorkerTimes times_of(const StepSummary& step) {
  const bool has_own_clock = step.device_finish_ns > step.device_start_ns;
  const int64_t whole =
      has_own_clock ? step.device_finish_ns - step.device_start_ns : step.finish_ns - step.start_ns;
  page::WorkerTimes times;
  times.whole = seconds_of(Duration(std::max<int64_t>(whole, 0)));
  times.copies = seconds_of(Duration(step.to_host_ns + step.to_device_ns));
  for (const OpSample& sample : step.sample.ops) {
    const double all = sample.ops * seconds_of(sample.median);
    if (sample.kind == OpKind::Forward) times.forward += all;
    if (sample.kind == OpKind::BackwardInput) times.backward += all;
    if (sample.kind == OpKind::BackwardWeight) times.weight += all;
  }
  return times;
}

void take_newest(WorkerId worker, const Report& report, KnownTimes& times) {
  const auto newest =
      std::max_element(report.steps.begin(), report.steps.end(),
                       [](const StepSummary& a, const StepSummary& b) { return a.step < b.step; });
  if (newest != report.steps.end()) times[worker] = times_of(*newest);
}

bool is_slow(const MonitorState& monitor, WorkerId worker) {
  const auto watch = monitor.workers.find(worker);
  return watch != monitor.workers.end() && watch->second.slow();
}

const char* state_of(const Member& member, bool slow) {
  if (!has_come(member) || member.absent) return "absent";
  if (!member.alive) return member.joining == Joining::No ? "dead" : "joining";
  if (member.joining != Joining::No) return "joining";
  return slow ? "slow" : "healthy";
}

// Why it is slow, or why it may be dead.
std::string reason_of(const MonitorState& monitor, WorkerId worker, const Member& member) {
  if (member.suspect_since) return member.suspicion;
  const auto watch = monitor.loads.find(worker);
  if (watch == monitor.loads.end() || !watch->second.verdict()) return {};
  Verdict verdict = *watch->second.verdict();
  if (!verdict.cause) return {};
  verdict.host = host_of_worker(member.report);
  return cause_text(verdict);
}

page::ShownLink link_of(WorkerId first, WorkerId second, const LinkWatch& watch) {
  page::ShownLink link;
  link.first = first.value;
  link.second = second.value;
  link.slow = watch.slow();
  link.round_trip = seconds_of(watch.round_trip());
  const NetworkLevel level = watch.network().newest();
  link.repeated = watch.network().repeated();
  if (level.readings == 0) return link;
  link.network_round_trip = seconds_of(level.round_trip);
  for (size_t way = 0; way < link.rate.size(); ++way) {
    const double seconds = seconds_of(level.mebibyte[way]);
    if (seconds > 0) link.rate[way] = (1 << 20) / seconds;
  }
  return link;
}

// If there are too many links, the slow ones stay.
void add_links(const MonitorState& monitor, page::Snapshot& snapshot) {
  for (const bool slow : {true, false}) {
    for (const auto& entry : monitor.links) {
      if (entry.second.slow() != slow) continue;
      if (snapshot.links.size() >= page::kMostLinks) {
        ++snapshot.links_left_out;
        continue;
      }
      snapshot.links.push_back(link_of(entry.first.first, entry.first.second, entry.second));
    }
  }
}

}  // namespace

page::Snapshot snapshot_of(const State& state, const Job& job, KnownTimes& times) {
  const Planning& planning = state.planning;
  page::Snapshot snapshot;
  snapshot.job = job.name;
  snapshot.situation = name_of(state.situation);
  snapshot.step = state.committed;
  snapshot.steps = state.rules.steps;
  snapshot.epoch = state.epoch;
  snapshot.saved = state.saved;
  snapshot.plan = planning.present->order;
  snapshot.serial = planning.serial;
  snapshot.in_force = planning.from;
  const auto treatment = [&](TreatmentKey key) {
    return shown_treatment(planning.treatments, key, job);
  };
  snapshot.treatment = treatment(TreatmentKey::Mode);
  snapshot.slow_links = treatment(TreatmentKey::SlowLinks);
  snapshot.slow_workers = treatment(TreatmentKey::SlowWorkers);
  snapshot.layers = treatment(TreatmentKey::Layers);
  snapshot.cpu_seconds = seconds_of(process_cpu_time());
  const Seats seats = job.seats();
  for (size_t w = 0; w < state.members.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    const Member& member = state.members[w];
    take_newest(worker, member.report, times);
    page::ShownWorker shown;
    shown.worker = worker.value;
    for (const StageId stage : stages_of(state.stages, worker)) {
      shown.stages.push_back(stage.value);
    }
    shown.pipeline = seats.pipeline_of(worker);
    shown.state = state_of(member, is_slow(*planning.monitor, worker));
    shown.reason = reason_of(*planning.monitor, worker, member);
    const auto known = times.find(worker);
    if (known != times.end()) shown.times = known->second;
    snapshot.workers.push_back(std::move(shown));
  }
  add_links(*planning.monitor, snapshot);
  return snapshot;
}

page::Snapshot snapshot_of(const ServedStatus& status, const ServedProcesses& processes,
                           const Job& job) {
  page::Snapshot snapshot;
  snapshot.job = job.name;
  snapshot.situation = status.situation;
  snapshot.step = status.step;
  snapshot.steps = status.steps;
  snapshot.epoch = status.epoch;
  snapshot.saved = status.saved;
  snapshot.mode = status.mode;
  snapshot.mass = status.mass.micros;
  snapshot.age = status.age;
  snapshot.cpu_seconds = seconds_of(process_cpu_time());
  for (const ServedPlace& place : processes.all()) {
    const bool is_part = place.process.kind == servers::ProcessKind::Part;
    page::ShownWorker shown;
    shown.worker = place.worker.value;
    shown.kind = is_part ? "replica" : "server";
    if (is_part) {
      shown.stages.push_back(place.process.stage.value);
      shown.pipeline = place.process.replica.value;
    }
    const bool has_been = place.is_taken() || place.deaths > 0;
    shown.state = place.is_taken() ? "healthy" : has_been ? "dead" : "absent";
    if (place.suspect_since) shown.reason = place.suspicion;
    const auto kept = status.kept.find(place.process.number);
    if (place.is_hosted() && kept != status.kept.end()) shown.ranges = kept->second;
    snapshot.workers.push_back(std::move(shown));
  }
  return snapshot;
}

}  // namespace tenuto
