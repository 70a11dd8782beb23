#include "page/event_line.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace tenuto::page {
namespace {

using Json = nlohmann::json;

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<double> number_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// A number with a fraction is no count.
int64_t count_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

std::optional<double> seconds_at(const Json& json, const char* key) {
  std::optional<double> milliseconds = number_at(json, key);
  if (milliseconds) *milliseconds /= 1e3;
  return milliseconds;
}

ShownAlternative alternative_of(const Json& json) {
  ShownAlternative one;
  one.name = text_at(json, "name");
  if (one.name.empty()) one.name = text_at(json, "mode");
  one.step = seconds_at(json, "step_ms");
  one.change = seconds_at(json, "change_ms");
  one.total = seconds_at(json, "total_ms");
  one.progress = number_at(json, "progress");
  const auto chosen = json.find("chosen");
  one.chosen = chosen != json.end() && chosen->is_boolean() && chosen->get<bool>();
  return one;
}

}  // namespace

std::optional<EventLine> event_of_line(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  EventLine event;
  event.kind = text_at(json, "event");
  if (event.kind.empty()) return std::nullopt;
  event.epoch = count_at(json, "epoch");
  event.step = count_at(json, "step");
  event.reason = text_at(json, "reason");
  event.plan = count_at(json, "plan");
  const auto found = json.find("alternatives");
  if (found == json.end() || !found->is_array()) return event;
  for (const Json& of : *found) {
    if (!of.is_object() || event.alternatives.size() == kMostAlternatives) continue;
    ShownAlternative one = alternative_of(of);
    if (!one.name.empty()) event.alternatives.push_back(std::move(one));
  }
  return event;
}

}  // namespace tenuto::page
