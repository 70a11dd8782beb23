#include "run/status.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "control/commit.h"
#include "control/join.h"
#include "control/query.h"
#include "run/request.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Joining how) {
  if (how == Joining::No) return "no";
  return how == Joining::Invited ? "invited" : "receiving";
}

// What the kernels of the hosts know of each link, where they tell.
Json network_of(const MonitorState& monitor) {
  Json network = Json::array();
  const auto rate = [](Duration mebibyte) {
    return mebibyte == Duration::zero() ? 0 : (1 << 20) / (to_milliseconds(mebibyte) / 1e3);
  };
  for (const auto& [ends, watch] : monitor.links) {
    const NetworkLevel level = watch.network().newest();
    if (level.readings == 0) continue;
    network.push_back({{"first", ends.first.value},
                       {"second", ends.second.value},
                       {"round_trip_ms", to_milliseconds(level.round_trip)},
                       {"variation_ms", to_milliseconds(level.variation)},
                       {"bytes_per_second", {rate(level.mebibyte[0]), rate(level.mebibyte[1])}},
                       {"repeated", watch.network().repeated()}});
  }
  return network;
}

// Why a worker is slow, where that is known: the host, the cause, and a sentence.
void add_cause(const MonitorState& monitor, WorkerId worker, const Report& report, Json& entry) {
  const auto watch = monitor.loads.find(worker);
  if (watch == monitor.loads.end() || !watch->second.verdict()) return;
  Verdict verdict = *watch->second.verdict();
  if (!verdict.cause) return;
  verdict.host = host_of_worker(report);
  entry["host"] = verdict.host;
  entry["cause"] = to_text(verdict.cause->cause);
  entry["reason"] = cause_text(verdict);
}

}  // namespace

const char* name_of(Situation situation) {
  switch (situation) {
    case Situation::Gathering:
      return "gathering";
    case Situation::Running:
      return "running";
    case Situation::Recovering:
      return "recovering";
    case Situation::Salvaging:
      return "salvaging";
    case Situation::Ended:
      break;
  }
  return "ended";
}

std::vector<std::string> places_by_host(const State& state) {
  std::vector<std::string> hosts;  // in the order of their first workers
  std::map<std::string, std::string> workers;
  for (size_t w = 0; w < state.members.size(); ++w) {
    const Member& member = state.members[w];
    if (!has_come(member)) continue;
    const std::string host = host_of_worker(member.report);
    std::string& names = workers[host];
    if (names.empty()) hosts.push_back(host);
    names += cat(names.empty() ? "" : ", ", name_of(state.rules, {static_cast<int32_t>(w)}));
  }
  std::vector<std::string> sentences;
  for (const std::string& host : hosts) sentences.push_back(cat(host, " has ", workers[host]));
  return sentences;
}

std::string status_text(const State& state, const Job& job) {
  const Planning& planning = state.planning;
  Json links = Json::array(), workers = Json::array();
  for (const auto& [ends, watch] : planning.monitor->links) {
    if (!watch.slow()) continue;
    links.push_back({{"first", ends.first.value},
                     {"second", ends.second.value},
                     {"round_trip_ms", to_milliseconds(watch.round_trip())},
                     {"scope", scope_of_link(state, *planning.monitor, ends)}});
  }
  for (size_t w = 0; w < state.members.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    const auto watch = planning.monitor->workers.find(worker);
    workers.push_back({{"worker", w},
                       {"alive", state.members[w].alive},
                       {"came", has_come(state.members[w])},
                       {"joining", name_of(state.members[w].joining)},
                       {"version", state.members[w].report.version},
                       {"slow", watch != planning.monitor->workers.end() && watch->second.slow()}});
    add_cause(*planning.monitor, worker, state.members[w].report, workers.back());
  }
  const auto members = std::count_if(state.members.begin(), state.members.end(),
                                     [](const Member& member) { return member.alive; });
  const auto treatment = [&](TreatmentKey key) {
    return shown_treatment(planning.treatments, key, job);
  };
  const Json json = {{"situation", name_of(state.situation)},
                     {"step", open_step(state)},
                     {"steps", state.rules.steps},
                     {"epoch", state.epoch},
                     {"members", members},
                     {"saved", state.saved},
                     {"plan", planning.present->order},
                     {"plan_serial", planning.serial},
                     {"plan_from", planning.from},
                     {"treatment", treatment(TreatmentKey::Mode)},
                     {"slow_links", treatment(TreatmentKey::SlowLinks)},
                     {"slow_workers", treatment(TreatmentKey::SlowWorkers)},
                     {"layers", treatment(TreatmentKey::Layers)},
                     {"links", std::move(links)},
                     {"network", network_of(*planning.monitor)},
                     {"workers", std::move(workers)}};
  return json.dump();
}

std::string status_text(const ServedStatus& status, const ServedProcesses& processes) {
  Json list = Json::array();
  for (const ServedPlace& place : processes.all()) {
    const bool is_part = place.process.kind == servers::ProcessKind::Part;
    const auto kept = status.kept.find(place.process.number);
    const bool keeps = place.is_hosted() && kept != status.kept.end();
    list.push_back({{"worker", place.worker.value},
                    {"kind", is_part ? "replica" : "server"},
                    {"replica", is_part ? Json(place.process.replica.value) : Json(nullptr)},
                    {"stage", is_part ? Json(place.process.stage.value) : Json(nullptr)},
                    {"ranges", keeps ? kept->second : 0},
                    {"alive", place.is_taken()}});
  }
  const Json json = {{"situation", status.situation},
                     {"step", status.step},
                     {"steps", status.steps},
                     {"epoch", status.epoch},
                     {"saved", status.saved},
                     {"mode", status.mode},
                     {"age", status.age},
                     {"mass", status.mass.micros},
                     {"processes", std::move(list)}};
  return json.dump();
}

}  // namespace tenuto
