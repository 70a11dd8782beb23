// Compares fixed orders with orders that each stage makes as messages arrive, when messages arrive
// earlier or later than estimated.
#pragma once

#include <vector>

#include "adapt/line.h"
#include "adapt/order.h"

namespace tenuto {

// One setting: eight equal stages; a postponed weight gradient takes half the memory of a
// micro-batch; every message has its own random delay. Delays are in ops.
struct Jitter {
  int32_t micros = 24;
  int32_t memory = 12;  // micro-batches
  double mean = 1, deviation = 1;
};

// Twenty-four settings: 24 and 48 micro-batches, memory for 12, 16 and 24, four kinds of delay.
const std::vector<Jitter>& jitters();

// Mean times over the draws, as shares of the bound without delays.
struct JitterTimes {
  double fixed_zero_bubble = 0;
  double fixed_for_mean = 0;          // the order made for the mean delay
  double fixed_for_mean_and_one = 0;  // for the mean and one deviation
  double ready = 0;                   // ready dispatch within the memory limit alone
  double ready_planned = 0;           // the same with the limits that the search made for the mean

  // The share by which `time` is slower than the better of the two orders made for the delays.
  double above_fixed(double time) const;
};

// Runs a setting; all orders get the same draws.
JitterTimes run_jitter(const Jitter& jitter, int32_t draws, const Effort& effort = {});

}  // namespace tenuto
