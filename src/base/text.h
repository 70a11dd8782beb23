// Builds sentences from pieces: error messages, logs and reports are put together with `cat`.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/id.h"

namespace tenuto {

// One piece of a sentence as text. Numbers print in the shortest form that reads back equal.
inline std::string piece(std::string_view text) { return std::string(text); }
inline std::string piece(const char* text) { return text; }
inline std::string piece(char letter) { return std::string(1, letter); }
inline std::string piece(bool value) { return value ? "true" : "false"; }
template <class Number>
requires(std::integral<Number> || std::floating_point<Number>) std::string piece(Number number) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), number).ptr;
  return std::string(buffer, end);
}
template <class Tag>
std::string piece(Id<Tag> id) {
  return id.value < 0 ? std::string("none") : piece(id.value);
}

// The pieces one after the other: cat("worker ", id, " -> ", peer).
template <class... Pieces>
std::string cat(const Pieces&... pieces) {
  std::string all;
  ((all += piece(pieces)), ...);
  return all;
}

// A number with a fixed count of decimals, for tables and progress lines.
std::string fixed(double number, int decimals);

// Line and column of byte `at` of a text, both from 1, as "3:14". `at` counts from 1, as parsers of
// JSON count; beyond the text, it is the end.
std::string line_and_column(std::string_view text, size_t at);

// The candidate nearest to `word` by edit distance, or "" when none is within a third of its length
// (at least 2): for "did you mean".
std::string nearest(std::string_view word, const std::string_view* candidates, size_t count);

}  // namespace tenuto
