// What a device keeps in memory for a stage. Whoever plans, prices or refuses by memory asks this.
#pragma once

#include <cstdint>

#include "base/bisect.h"

namespace tenuto {

// The bytes of a stage, for whole micro-batches. All replicas of a stage keep its state. If rows
// are split over replicas, each of them keeps an equal share of a micro-batch.
struct HeldBytes {
  double state = 0;  // weights, gradient and optimizer state
  double once = 0;   // while a pass runs: the stash, if the stage recomputes
  double each = 0;   // for each micro-batch in flight: the stash, or the input if it recomputes

  // The bytes of each replica when `in_flight` micro-batches are between the start of their forward
  // and the end of their backward, and `sharing` replicas share the rows of each.
  double bytes(double in_flight, double sharing = 1) const {
    return state + (once + in_flight * each) / sharing;
  }

  // The largest number of micro-batches in flight, at most `most`, that fits into a memory of so
  // many bytes; 0 if not even one does.
  int32_t most_in_flight(double memory, int32_t most, double sharing = 1) const {
    if (bytes(most, sharing) <= memory) return most;
    return last_of(0, most, [&](int32_t count) { return bytes(count, sharing) <= memory; });
  }
};

// What a stage keeps whose layers have this state, this stash, and an input of so many bytes, which
// is 0 for the first stage: its input is data.
inline HeldBytes held_bytes(double state, double stash, double input, bool recompute) {
  return recompute ? HeldBytes{state, stash, input} : HeldBytes{state, 0, stash};
}

}  // namespace tenuto
