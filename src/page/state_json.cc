#include "page/state_json.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace tenuto::page {
namespace {

using Json = nlohmann::ordered_json;

// Sentences may quote the output of other programs: bytes that are not UTF-8 are replaced.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// 0 means that it is not known.
Json known(double number) { return number > 0 ? Json(number) : Json(nullptr); }

Json or_null(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

Json times_of(const WorkerTimes& times) {
  const double busy = times.forward + times.backward + times.weight + times.copies;
  return {{"whole", times.whole},       {"forward", times.forward},
          {"backward", times.backward}, {"weight", times.weight},
          {"copies", times.copies},     {"waiting", times.whole > busy ? times.whole - busy : 0.0}};
}

Json workers_of(const Snapshot& snapshot) {
  Json list = Json::array();
  for (const ShownWorker& worker : snapshot.workers) {
    list.push_back({{"worker", worker.worker},
                    {"kind", worker.kind},
                    {"stages", worker.stages},
                    {"pipeline", worker.pipeline < 0 ? Json(nullptr) : Json(worker.pipeline)},
                    {"state", worker.state},
                    {"reason", worker.reason},
                    {"ranges", worker.ranges},
                    {"seconds", worker.times ? times_of(*worker.times) : Json(nullptr)}});
  }
  return list;
}

Json links_of(const Snapshot& snapshot) {
  Json list = Json::array();
  for (const ShownLink& link : snapshot.links) {
    list.push_back({{"first", link.first},
                    {"second", link.second},
                    {"slow", link.slow},
                    {"round_trip_seconds", known(link.round_trip)},
                    {"network_round_trip_seconds", known(link.network_round_trip)},
                    {"bytes_per_second", {known(link.rate[0]), known(link.rate[1])}},
                    {"repeated", link.repeated}});
  }
  return list;
}

Json alternatives_of(const Snapshot& snapshot) {
  Json list = Json::array();
  for (const ShownAlternative& one : snapshot.alternatives) {
    list.push_back({{"name", one.name},
                    {"step_seconds", or_null(one.step)},
                    {"change_seconds", or_null(one.change)},
                    {"total_seconds", or_null(one.total)},
                    {"progress", or_null(one.progress)},
                    {"chosen", one.chosen}});
  }
  return list;
}

Json history_of(const History& history) {
  Json list = Json::array();
  for (const ShownStep& step : history.steps()) {
    list.push_back(
        {{"step", step.step}, {"loss", or_null(step.loss)}, {"seconds", known(step.seconds)}});
  }
  return list;
}

Json validations_of(const History& history) {
  Json list = Json::array();
  for (const ShownValidation& one : history.validations()) {
    list.push_back({{"step", one.step}, {"loss", one.loss}, {"accuracy", or_null(one.accuracy)}});
  }
  return list;
}

Json promises_of(const std::vector<Promise>& promises) {
  Json list = Json::array();
  for (const Promise& promise : promises) {
    list.push_back({{"from", promise.from}, {"seconds", promise.seconds}, {"plan", promise.plan}});
  }
  return list;
}

}  // namespace

std::string state_text(const Snapshot& snapshot, const std::vector<Promise>& promises) {
  const Json json = {{"job", snapshot.job},
                     {"situation", snapshot.situation},
                     {"step", snapshot.step},
                     {"steps", snapshot.steps},
                     {"epoch", snapshot.epoch},
                     {"saved", snapshot.saved},
                     {"mode", snapshot.mode},
                     {"plan",
                      {{"order", snapshot.plan},
                       {"serial", snapshot.serial},
                       {"from", snapshot.in_force},
                       {"why", snapshot.why}}},
                     {"treatment", snapshot.treatment},
                     {"slow_links", snapshot.slow_links},
                     {"slow_workers", snapshot.slow_workers},
                     {"layers", snapshot.layers},
                     {"mass", snapshot.mass ? Json(*snapshot.mass) : Json(nullptr)},
                     {"age", or_null(snapshot.age)},
                     {"coordinator_cpu_seconds", snapshot.cpu_seconds},
                     {"plan_changes", snapshot.history.changes()},
                     {"faults", snapshot.history.faults()},
                     {"workers", workers_of(snapshot)},
                     {"links", links_of(snapshot)},
                     {"links_left_out", snapshot.links_left_out},
                     {"alternatives", alternatives_of(snapshot)},
                     {"compared_in", snapshot.compared_in},
                     {"promises", promises_of(promises)},
                     {"history", history_of(snapshot.history)},
                     {"validations", validations_of(snapshot.history)},
                     {"serial", snapshot.history.serial()}};
  std::string text = text_of(json);
  text.pop_back();
  return text;
}

std::string with_events(const std::string& text, const History& history, int64_t since) {
  Json list = Json::array();
  for (const ShownEvent& event : history.events()) {
    if (event.serial <= since) continue;
    list.push_back({{"serial", event.serial},
                    {"event", event.kind},
                    {"epoch", event.epoch},
                    {"step", event.step},
                    {"reason", event.reason}});
  }
  return text + ",\"events\":" + text_of(list) + "}";
}

}  // namespace tenuto::page
