// Measured times of ops from timelines: our own traces, and those of PyTorch's profiler (Kineto),
// in which torch.distributed.pipelining marks every action by the same names (trace_name).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// What was seen in traces so far, by stage: how long each op lasted.
struct TraceSamples {
  // Of an op: a forward, a whole backward, its halves.
  enum Kind : uint8_t { Forward, Whole, Input, Weight, kKindCount };
  std::map<int32_t, std::array<std::vector<Duration>, kKindCount>> of;
};

// The typical time of each op at each stage.
struct TraceTimes {
  // By stage: the median (of an even number, the mean of the middle two). A stage that was only
  // seen with whole backwards has their time as backward_input and 0 as backward_weight.
  std::vector<Duration> forward, backward_input, backward_weight;
  bool splits = false;  // some stage's backward was seen in two halves
  int64_t ops = 0;      // how many went into it
};

// Adds the ops of one Chrome trace: complete events ("ph": "X") named PP:<stage><F|B|I|W><micro> in
// "traceEvents" or in a bare array. Other events are ignored: messages, several actions in one
// (OVERLAP_F_B), anything else. If a kind of op at a stage appears both as seen by the host and as
// seen by the device ("cat": "gpu_user_annotation"), only the device's times are used.
//
// Errors: Invalid/Call  not JSON (source, line, column), or such an event without a sensible "dur"
//                       (source, number of the event)
// Cost:   one pass over the text, without a tree of it
Status add_trace(std::string_view text, std::string_view source, TraceSamples& samples);

// The times of what was added.
//
// Errors: Invalid/Call  no op at all, or a stage without a forward or a backward
Result<TraceTimes> times_of_traces(const TraceSamples& samples);

// add_trace and times_of_traces for a single trace that holds all stages.
Result<TraceTimes> times_from_trace(std::string_view text, std::string_view source);

}  // namespace tenuto
