// A second, plain simulation of a line, event by event. Tests compare the project's simulation with
// it; it can also delay each message separately.
#pragma once

#include <optional>
#include <vector>

#include "adapt/line.h"
#include "base/random.h"

namespace tenuto {

// The rule by which a free stage takes its next op: the first of backward, forward, weight gradient
// that has its input and memory. Before its first backward a stage runs only forwards, until its
// quota is used up or there is no memory for more.
struct Rule {
  std::vector<int32_t> quotas;  // per stage: forwards before the first backward
  std::vector<int32_t> most;  // per stage: micro-batches held to the end of their weight gradient;
                              // empty = as the memory limit allows
};

// The extra delay of each message, on top of the latency of its link: the entry at
// [stage x micros + micro] is for the message that the stage sends for the micro-batch.
struct Extra {
  std::vector<Duration> down, up;
};

// Delays every message by a draw from the normal distribution with this mean and deviation; a
// negative draw counts as 0.
Extra normal_delays(const Line& line, Random& random, Duration mean, Duration deviation);

// Plays a step by a rule. Returns nothing if the step deadlocks.
std::optional<Played> dispatch(const Line& line, const Rule& rule, const Extra& extra = {});

// The time of a step with fixed sequences. Returns nothing if the step deadlocks.
std::optional<Duration> follow(const Line& line, const std::vector<Sequence>& sequences,
                               const Extra& extra = {});

}  // namespace tenuto
