// Why an op started when it did, and what a worker's time went into; for prices and for real runs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/price.h"

namespace tenuto {

// What happened between the end of the previous op on the worker's compute lane and the start of
// this one.
struct Wait {
  int32_t after = -1;  // index of the span that it waited for last; -1: none, it is the first op
  Duration idle{};     // how long the lane was idle until the awaited span ended
  Duration late{};     // how long after that until the op started: zero in a price
};

// The wait of every span: all fields for compute ops, only `after` for other ops. If a span does
// not say itself what it waited for, `after` is whichever ended last: the previous op on the
// compute lane, or a maker of a value that the op reads. If that leaves a gap, `after` is a message
// of the worker that started or ended at the very moment at which the op started.
//
// Shapes:   spans as Timeline::spans, the result by span
// Requires: spans are of the plan's ops, one step or several one after the other
// Cost:     O(n log n)
std::vector<Wait> waits_of(const std::vector<Span>& spans, const Plan& plan);

// Why the op at `index` started when it did, with %m for the micro-batch of what it waited for, %t
// for Wait::idle and %l for Wait::late: "waited %t for activation 1.%m from worker 1 (link 1 ->
// 2)".
std::string reason_form(const std::vector<Span>& spans, const Wait& wait, size_t index);

// The same as a sentence for people: "waited 12.3 ms for activation 1.4 from worker 1 (link 1 ->
// 2)", "worker busy with F2.3".
std::string reason_of(const std::vector<Span>& spans, const Wait& wait, size_t index);

// What a worker's compute lane did.
enum class Use : uint8_t {
  Busy,        // ran ops
  Activation,  // waited for an activation
  Gradient,    // waited for a gradient
  Update,      // waited for a reduction, a norm or a clip decision
  Sending,     // waited for a message of its own to leave
  Other,       // everything was there and the op did not start: the worker itself was slow
  Done,        // had no more ops
};
inline constexpr size_t kUseCount = 7;

// The column title of a use in a table.
const char* name_of(Use use);

// By worker, the time in each use from 0 to `end`; each row sums up to `end`. A worker without
// compute ops is done all the time.
std::vector<std::array<Duration, kUseCount>> uses_of(const std::vector<Span>& spans,
                                                     const std::vector<Wait>& waits, Duration end,
                                                     size_t worker_count);

}  // namespace tenuto
