#include "world/toml_reading.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/cut_text.h"
#include "world/keys.h"
#include "world/toml_text.h"

namespace tenuto {

Result<toml::table> parse_toml(std::string_view text, const std::string& source) {
  if (const auto deep = find_deep_name(text)) {
    return error_of({{source, deep->line, deep->column}, cat("not TOML: ", deep->sentence)});
  }
  toml::parse_result parsed = toml::parse(text, std::string_view(source));
  if (!parsed) {
    return error_of({place_of(source, parsed.error().source()),
                     cat("not TOML: ", parsed.error().description())});
  }
  return std::move(parsed).table();
}

TextPlace place_of(const std::string& source, const toml::source_region& region) {
  return {source, static_cast<int64_t>(region.begin.line),
          static_cast<int64_t>(region.begin.column)};
}

std::string type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number with a point";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

std::string found_text(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    const std::string& value = text->get();
    return value.size() <= 40 ? toml_string(value)
                              : toml_string(value.substr(0, cut_of(value, 37))) + "...";
  }
  if (const auto* number = node.as_integer()) return piece(number->get());
  if (const auto* number = node.as_floating_point()) return piece(number->get());
  if (const auto* value = node.as_boolean()) return piece(value->get());
  return type_name(node);
}

std::optional<double> number_of(const toml::node& node) {
  if (const auto* whole = node.as_integer()) return static_cast<double>(whole->get());
  if (const auto* number = node.as_floating_point()) return number->get();
  return std::nullopt;
}

std::optional<int64_t> whole_number_of(const toml::node& node) {
  constexpr double kMostExact = 9007199254740992;
  if (const auto* whole = node.as_integer()) return whole->get();
  const auto* number = node.as_floating_point();
  if (number == nullptr) return std::nullopt;
  const double found = number->get();
  if (std::floor(found) != found || std::abs(found) > kMostExact) return std::nullopt;
  return static_cast<int64_t>(found);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names) {
  const std::string best = nearest(word, names.data(), names.size());
  return best.empty() ? std::string() : cat(", did you mean ", best, "?");
}

Error error_of(const TomlFlaw& flaw) {
  return invalid(cat(flaw.place.text(), ": ", flaw.sentence));
}

std::optional<Error> first_flaw(const std::vector<TomlFlaw>& flaws) {
  if (flaws.empty()) return {};
  TomlFlaw first = *std::min_element(flaws.begin(), flaws.end(),
                                     [](const TomlFlaw& left, const TomlFlaw& right) {
                                       return std::pair(left.place.line, left.place.column) <
                                              std::pair(right.place.line, right.place.column);
                                     });
  const size_t others = flaws.size() - 1;
  if (others > 0)
    first.sentence += cat(" (and ", others, others == 1 ? " fault" : " faults", " more)");
  return error_of(first);
}

}  // namespace tenuto
