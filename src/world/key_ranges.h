// How the keys of a job are made, and the ranges that they share. Private to keys.cc and
// fault_keys.cc.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "world/keys.h"

namespace tenuto {

// Every finite number.
inline constexpr Range kAnyNumber{};
// From 0 on.
inline constexpr Range kAtLeast0{.low = 0};
// A time of at most some eleven days.
inline constexpr Range kMilliseconds{.low = 0, .high = 1e9};
// Above 0.
inline constexpr Range kAbove0{.low = 0, .low_open = true};
// From 0 to below 1.
inline constexpr Range kBelow1{.low = 0, .high = 1, .high_open = true};
// From 0 to 1.
inline constexpr Range kShare{.low = 0, .high = 1};
// A rate; 0 = unlimited.
inline constexpr Range kMegabytesPerSecond{.low = 1e-6, .high = 1e12, .zero = true};

// A range of whole numbers that fits the member's type.
constexpr Range whole(double low, double high) { return {.low = low, .high = high}; }

// Bounds chosen far above any use, and low enough that no product of them overflows 64 bits.
inline constexpr double kManySteps = 1e12, kManyBytes = 1e12, kMany = 1e6;

// A key that takes true or false, any text, or numbers of a range.
inline Key key(std::string_view name, Slot (*slot)(Job&), std::string_view help,
               Range range = kAnyNumber) {
  return {name, slot, range, {}, help};
}
// A key that takes one of the choices.
inline Key key(std::string_view name, Slot (*slot)(Job&), std::string_view help,
               std::vector<std::string_view> choices, RenamedChoices renamed = {}) {
  return {name, slot, kAnyNumber, std::move(choices), help, std::move(renamed)};
}
// A key that had another name in earlier versions.
inline Key formerly(std::string_view name, Key key) {
  key.former = name;
  return key;
}

}  // namespace tenuto
