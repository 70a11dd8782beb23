// The events of a Chrome trace, read without a tree of the whole text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tenuto::analysis {

// One complete event ("ph": "X").
struct TraceRow {
  int32_t name = 0;  // index in TraceRows::names
  int64_t process = 0, thread = 0;
  double start = 0, duration = 0;  // microseconds
  bool device = false;             // "cat": "gpu_user_annotation"
  bool promised = false;           // "cat": "promised": no op that happened
  // The numbers in "args" that some formats have; -1 = none.
  int64_t step = -1, micro = -1, chunk = -1, sequence = -1;
};

// The name of a thread, from an event of metadata.
struct ThreadName {
  int64_t process = 0, thread = 0;
  std::string name;
};

// What a trace contains.
struct TraceRows {
  std::vector<std::string> names;
  std::vector<TraceRow> rows;
  std::vector<ThreadName> threads;
  std::optional<int64_t> rank;  // "distributedInfo" of PyTorch's profiler
};

// Reads the events of "traceEvents" or of a bare array. Events of other phases are left out.
//
// Errors: Invalid/Call with `source`: text that is not JSON (line and column), JSON that has no
//         list of events, an op without sensible times (its number is named): times that are
//         missing, not finite, above 30 years, or that end before they start. Ops are events named
//         PP:..., and those whose category is their name or empty; other such events are left out
// Cost:   one pass over the text
Result<TraceRows> read_trace_rows(std::string_view text, const std::string& source);

}  // namespace tenuto::analysis
