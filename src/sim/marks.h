// The earliest start of each op of a route, and the least time that must follow its end.
#pragma once

#include <vector>

#include "sim/route.h"

namespace tenuto {

// A time for every op of one stage, by the position of its micro-batch on the route.
struct Marks {
  std::vector<Duration> forward, backward, weight;
  explicit Marks(size_t micros) : forward(micros), backward(micros), weight(micros) {}
};

// Lower bounds on the start of each op, by stage, over all orders within the memory limits. An op
// waits for what it reads, for its link, for the ops that its worker must run before it; a forward
// also for memory.
//
// Cost: O(stages x micros), some 20 ns each; up to 30 times that under a tight memory limit
std::vector<Marks> heads_of(const Route& route);

// Lower bounds on the time from the end of each op to the end of the step, by stage.
//
// Cost: O(stages x micros)
std::vector<Marks> tails_of(const Route& route);

}  // namespace tenuto
