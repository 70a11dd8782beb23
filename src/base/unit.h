// Units live in types: a time is a Duration, a size is Bytes. Nothing here converts silently.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>

namespace tenuto {

// A span of time, or a moment on some clock: integer nanoseconds, so that a price is the same on
// every machine, to the last digit.
using Duration = std::chrono::nanoseconds;

// A size in bytes.
struct Bytes {
  int64_t count = 0;
  auto operator<=>(const Bytes&) const = default;
};

inline Bytes operator+(Bytes left, Bytes right) { return {left.count + right.count}; }
inline Bytes operator-(Bytes left, Bytes right) { return {left.count - right.count}; }

// Milliseconds as a Duration, rounded to the nearest nanosecond.
Duration from_milliseconds(double milliseconds);

// A Duration as milliseconds, for people and JSON.
double to_milliseconds(Duration duration);

// Time that `size` takes at `bytes_per_second`, rounded up to a nanosecond; zero when the rate is
// 0, which means unlimited.
Duration transfer_time(Bytes size, double bytes_per_second);

}  // namespace tenuto
