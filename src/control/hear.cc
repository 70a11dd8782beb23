#include "control/hear.h"

#include <utility>
#include <vector>

#include "base/contains.h"
#include "base/text.h"
#include "control/commit.h"
#include "control/query.h"

namespace tenuto {
namespace {

bool is_overtaken(const State& state, const Report& report) {
  if (!is_worker(state, report.worker)) return true;
  const Member& of = member_of(state, report.worker);
  if (!of.alive || of.exited || report.incarnation < of.least_incarnation) return true;
  if (of.heard && report.incarnation != of.report.incarnation) return true;
  if (report.term > state.rules.term || report.epoch > state.epoch) return true;
  if (report.version > newest_version(state)) return true;
  // Ignore a process of an earlier run: the instruction tells it that it has no place in this one.
  const bool begins = state.situation == Situation::Gathering;
  if (begins && report.epoch > 0 && report.epoch < state.rules.epoch) return true;
  return of.heard && report.sequence < of.report.sequence;
}

void take_shards(const State& state, const Report& report, DecisionPart& out) {
  if (report.shards.empty() || state.situation == Situation::Recovering) return;
  if (report.epoch != state.epoch && state.situation == Situation::Running) return;
  const std::vector<StageId> held = stages_of(state.stages, report.worker);
  for (const SavedShard& shard : report.shards) {
    const auto at = static_cast<size_t>(shard.stage.value);
    const auto& savers = state.told.savers;  // may still name the donor of a moved layer
    const bool saves = at < savers.size() && savers[at] == report.worker;
    if ((saves || contains(held, shard.stage)) && shard.version > state.saved) {
      out.edits.add(ShardSaved{shard});
    }
  }
}

void take_repairs(const State& state, const Report& report, DecisionPart& out) {
  int64_t told = member_of(state, report.worker).repairs;
  for (const RepairNote& repair : report.repairs) {
    if (repair.serial <= told || !is_worker(state, repair.peer)) continue;
    told = repair.serial;
    out.edits.add(RepairsAnnounced{report.worker, told});
    const std::string took = fixed(to_milliseconds(Duration(repair.took_ns)), 1);
    out.repaired.push_back(
        {repair.step, cat("the connection between worker ", report.worker, " and worker ",
                          repair.peer, " broke in step ", repair.step, " and was repaired after ",
                          took, " ms: no step is lost")});
  }
}

void take_lost_peers(const State& state, const Report& report, Duration now, DecisionPart& out) {
  // When a step is abandoned, and after the last step, live workers drop each other: then a lost
  // peer means nothing.
  const bool together = state.situation == Situation::Gathering ||
                        (state.situation == Situation::Running && state.committed < state.stop_at);
  if (report.epoch != state.epoch || !together) return;
  for (const WorkerId peer : report.lost_peers) {
    if (!is_worker(state, peer)) continue;
    if (peer != report.worker) out.edits.add(LinkLost{report.worker, peer, now});
    const Member& of = member_of(state, peer);
    // ReportReceived ends the suspicion of a worker whose stream had ended. If that very report
    // names its own worker as lost, suspect the worker again.
    const bool back = peer == report.worker && of.stream_ended;
    if (!of.alive || (of.suspect_since && !back)) continue;
    out.edits.add(WorkerSuspected{
        peer, cat("was declared lost by ", name_of(state.rules, report.worker)), now});
  }
}

}  // namespace

DecisionPart hear_report(const State& state, const Report& report, Duration now) {
  DecisionPart out;
  if (is_overtaken(state, report)) return out;
  const Member& of = member_of(state, report.worker);
  if (of.heard && report.sequence == of.report.sequence) {
    out.edits.add(WorkerHeard{report.worker, now});
    return out;
  }
  const bool progress = !of.heard || report.address != of.report.address || report.connected;
  out.edits.add(ReportReceived{report, now, progress});
  take_shards(state, report, out);
  take_repairs(state, report, out);
  take_lost_peers(state, report, now, out);
  return out;
}

Duration silence_of(const State& state) {
  return state.situation != Situation::Salvaging && state.rules.lost_limit.count() > 0
             ? state.rules.lost_limit
             : state.rules.silence_limit;
}

DecisionPart hear_clock(const State& state, Duration now) {
  DecisionPart out;
  const Duration gap = now - state.listened_at;
  out.edits.add(ClockAdvanced{now, gap < silence_of(state) / 2 ? Duration{} : gap});
  return out;
}

std::optional<MissingWorker> find_missing(const State& state, Duration now) {
  // Take the worker that was suspected first: peers may have lost the others only because of it.
  // But a worker whose stream has ended goes before one that only peers have lost.
  const Member* first = nullptr;
  const auto id = [&](const Member& of) {
    return WorkerId{static_cast<int32_t>(&of - state.members.data())};
  };
  for (const Member& of : state.members) {
    if (!of.alive) continue;
    if (of.heard && now - of.heard_at >= silence_of(state)) {
      return MissingWorker{id(of), cat("was silent for ", seconds(now - of.heard_at), " s")};
    }
    if (!of.suspect_since || now - *of.suspect_since < state.rules.explain_limit) continue;
    // A worker that is still heard is not at fault when a peer lost it: see partition.h.
    const bool heard = !of.stream_ended && now - of.heard_at < 2 * state.rules.explain_limit;
    if (heard) continue;
    const auto urgency = [](const Member& m) {
      return std::pair(!m.stream_ended, *m.suspect_since);
    };
    if (first == nullptr || urgency(of) < urgency(*first)) first = &of;
  }
  if (first == nullptr) return std::nullopt;
  return MissingWorker{id(*first), first->suspicion};
}

}  // namespace tenuto
