// The events of a Chrome trace, read one at a time, without a tree of the whole text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tenuto {

// One event. Texts and numbers that it does not have are empty, and -1 in "args".
struct TraceEvent {
  int64_t number = 0;  // from 1, in the order of the text
  std::string name, phase, category;
  double start = 0, duration = 0;  // microseconds
  bool has_start = false, has_duration = false;
  int64_t process = 0, thread = 0;
  std::string label;                                         // "name" in "args"
  int64_t step = -1, micro = -1, chunk = -1, sequence = -1;  // in "args"
};

// No time in a trace is as long: 30 years.
inline constexpr double kMostTraceMicroseconds = 1e15;

// Calls `each` with the events of "traceEvents" or of a bare array; it returns what is wrong with
// the event, or nothing. Returns "rank" of "distributedInfo", which PyTorch's profiler writes.
//
// Errors: Invalid/Call with `source`: text that is not JSON (line and column), JSON that has no
//         list of events, the first sentence that `each` returns
// Cost:   one pass over the text
Result<std::optional<int64_t>> read_trace_events(
    std::string_view text, std::string_view source,
    const std::function<std::string(const TraceEvent&)>& each);

}  // namespace tenuto
