#include "world/json_reading.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"

namespace tenuto {

namespace {

std::string shown(const Json& value) {
  constexpr size_t kMost = 40;
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost - 3) + "..." : text;
}

}  // namespace

void JsonReading::refuse(const std::string& place, const std::string& sentence) {
  if (error_) return;
  error_ = invalid(cat(source_, ": ", place, place.empty() ? "" : ": ", sentence));
}

void JsonReading::refuse_value(const std::string& place, const std::string& wanted,
                               const Json& found) {
  if (error_) return;
  const std::string what = found.is_array()    ? cat("a list of ", found.size())
                           : found.is_object() ? std::string("an object")
                                               : shown(found);
  refuse(place, cat("expected ", wanted, ", found ", what));
}

void JsonReading::check_keys(const Json& tree, const std::string& place,
                             std::initializer_list<std::string_view> needed,
                             std::initializer_list<std::string_view> possible) {
  std::vector<std::string_view> all(needed);
  all.insert(all.end(), possible);
  std::string names;
  for (const std::string_view key : all) names += cat(names.empty() ? "" : ", ", key);
  if (!tree.is_object()) {
    refuse_value(place, cat("an object with the keys ", names), tree);
    return;
  }
  for (const auto& [key, value] : tree.items()) {
    if (std::find(all.begin(), all.end(), std::string_view(key)) != all.end()) continue;
    const std::string near = nearest(key, all.data(), all.size());
    refuse(place,
           cat("unknown key ", shown(key),
               near.empty() ? cat("; the keys are ", names) : cat(", did you mean ", near, "?")));
  }
  for (const std::string_view key : needed) {
    if (!tree.contains(std::string(key))) {
      refuse(place, cat("the key ", key, " is missing; expected ", names));
    }
  }
}

int32_t JsonReading::whole_number(const Json& tree, const std::string& place, int32_t most) {
  const double number = tree.is_number() ? tree.get<double>() : 0;
  if (number >= 1 && number <= most && number == std::floor(number)) {
    return static_cast<int32_t>(number);
  }
  refuse_value(place, cat("a whole number from 1 to ", most), tree);
  return 1;
}

double JsonReading::number(const Json& tree, const std::string& place, const NumberKey& key) {
  const double number = tree.is_number() ? tree.get<double>() : std::nan("");
  if (number >= key.least && number <= key.most) return number;
  refuse_value(place, cat("a number from ", key.least, " to ", key.most, " (", key.unit, ")"),
               tree);
  return key.least;
}

std::string JsonReading::text(const Json& tree, const std::string& place) {
  if (tree.is_string()) return tree.get<std::string>();
  refuse_value(place, "a text", tree);
  return {};
}

}  // namespace tenuto
