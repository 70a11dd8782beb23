// Numbers in text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace tenuto {

// The number that the whole text is, in decimal. None if it is no number, or one that Number cannot
// hold.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

}  // namespace tenuto
