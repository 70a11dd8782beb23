#include "protocol/event_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::ordered_json;

// The fields of an event in the order in which a line lists them.
constexpr const char* kFields[] = {"worker",    "step",  "kind",   "moved", "part",
                                   "stage",     "micro", "peer",   "group", "start_ns",
                                   "finish_ns", "bytes", "sent_ns"};

}  // namespace

std::string to_text(const std::vector<Event>& events, size_t most) {
  std::string text;
  for (const Event& event : events) {
    const Op& op = event.op;
    const int64_t values[] = {event.worker.value,
                              event.step,
                              static_cast<int64_t>(op.kind),
                              static_cast<int64_t>(op.moved),
                              op.part,
                              op.stage.value,
                              op.micro.value,
                              op.peer.value,
                              op.group.value,
                              event.start.count(),
                              event.finish.count(),
                              event.moved.count,
                              event.sent.count()};
    Json line;
    for (size_t field = 0; field < std::size(kFields); ++field)
      line[kFields[field]] = values[field];
    const std::string whole = line.dump() + "\n";
    if (whole.size() > most - text.size()) break;
    text += whole;
  }
  return text;
}

Result<std::vector<Event>> events_from_text(std::string_view text) {
  std::vector<Event> events;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    const Json json = Json::parse(line, nullptr, false);
    int64_t values[std::size(kFields)] = {};
    for (size_t field = 0; field < std::size(kFields); ++field) {
      const char* name = kFields[field];
      if (!json.is_object() || !json.contains(name) || !json[name].is_number_integer()) {
        return invalid(cat("line ", number, " of a worker's events: expected the whole number '",
                           name, "', found ", line));
      }
      values[field] = json[name].get<int64_t>();
    }
    const auto index = [&](size_t field) { return static_cast<int32_t>(values[field]); };
    if (values[2] < 0 || values[2] > static_cast<int64_t>(OpKind::Evaluate) || values[3] < 0 ||
        values[3] >= kValueKindCount) {
      return invalid(cat("line ", number, " of a worker's events: unknown kind of op or value"));
    }
    Event event;
    event.worker = {index(0)};
    event.step = values[1];
    event.op = {static_cast<OpKind>(values[2]),
                static_cast<ValueKind>(values[3]),
                static_cast<int16_t>(values[4]),
                {index(5)},
                {index(6)},
                {index(7)},
                {index(8)}};
    event.start = Duration(values[9]);
    event.finish = Duration(values[10]);
    event.moved = {values[11]};
    event.sent = Duration(values[12]);
    events.push_back(event);
  }
  return events;
}

}  // namespace tenuto
