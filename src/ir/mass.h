// Mass: the micro-batches whose gradients are in an offer or an update.
//
// Idea:  mass is a whole number, so its sums are exact, and an audit can ask for equality: what was
//        offered was applied, was dropped by name, or waits. A share of a mass is a plain number.
#pragma once

#include <compare>
#include <cstdint>

namespace tenuto {

// So many whole micro-batches. Not a count of replicas, updates or samples, which do not convert
// into it.
struct Mass {
  int64_t micros = 0;
  auto operator<=>(const Mass&) const = default;
  // Adds the other mass.
  constexpr Mass& operator+=(Mass more) {
    micros += more.micros;
    return *this;
  }
};

constexpr Mass operator+(Mass left, Mass right) { return {left.micros + right.micros}; }
constexpr Mass operator-(Mass left, Mass right) { return {left.micros - right.micros}; }

// `part` as a share of `whole`. Requires: `whole` above 0.
constexpr double share_of(Mass part, Mass whole) {
  return static_cast<double>(part.micros) / static_cast<double>(whole.micros);
}

}  // namespace tenuto
