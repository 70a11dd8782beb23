// A second, plain simulation of a line, event by event: what the project's is held against, and
// what delays each message for itself.
#pragma once

#include <optional>
#include <vector>

#include "adapt/line.h"
#include "base/random.h"

namespace tenuto {

// By which rule a free stage takes its next op: of those that are here and have room the first in
// the order backward, forward, weight gradient; before its first backward only forwards, until its
// quota is used up or there is no room for more.
struct Rule {
  std::vector<int32_t> quotas;  // per stage: forwards before the first backward
  std::vector<int32_t> most;  // per stage: micro-batches held to the end of their weight gradient;
                              // empty = as the room allows
};

// What single messages take beside the latency of their link: of the message that a stage sends of
// a micro-batch, at [stage x micros + micro].
struct Extra {
  std::vector<Duration> down, up;
};

// Every message later by a draw from the normal distribution with this mean and deviation, but not
// earlier than without.
Extra normal_delays(const Line& line, Random& random, Duration mean, Duration deviation);

// Plays a step by a rule; nothing when it stands still.
std::optional<Played> dispatch(const Line& line, const Rule& rule, const Extra& extra = {});

// The time of a step of fixed sequences; nothing when it stands still.
std::optional<Duration> follow(const Line& line, const std::vector<Sequence>& sequences,
                               const Extra& extra = {});

}  // namespace tenuto
