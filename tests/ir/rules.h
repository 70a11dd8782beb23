// Rules by which workers may take ops, slots and buffers: which of them can deadlock. The system
// uses only its own (ir/walk.h); the deadlocks of the other rules show why.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"

namespace tenuto {

// In which sequence a worker takes its micro-batches.
enum class Taking : uint8_t {
  Free,    // whatever is ready
  Sums,    // weight gradients in one order that is the same everywhere, the others freely
  Global,  // all three kinds in that order
  Own,     // all three kinds in an order of each worker's own
};

// One set of rules.
struct Rule {
  const char* name;
  Taking taking = Taking::Free;
  bool reserves = false;  // a worker's last slot goes only to the first of its micro-batches that
                          // has had none
  int32_t buffers = 0;    // of a worker, for activations that arrive; 0 = unlimited
  bool reserves_buffers = false;  // as `reserves`, for buffers; no: first come, first served
  bool in_line = false;  // messages between two workers arrive in the order of sending: one that
                         // must wait delays those behind it
};

// A few stages with holders of their own, and the owner of each micro-batch at each stage.
struct RuleNetwork {
  int32_t stages = 2, holders = 2, micros = 3;
  int32_t slots = 1;                         // of a worker, from forward to weight gradient
  std::vector<std::vector<int32_t>> owners;  // [stage][micro]
  std::vector<std::vector<std::vector<int32_t>>> own_orders;  // [stage][holder]: all micro-batches
};

// Draws a network; most micro-batches stay in their pipeline.
RuleNetwork draw_network(Random& random, int32_t stages, int32_t micros);

// True when some order of events leads to a deadlock: work is left and nothing can move. Ops and
// messages may take any time.
//
// Cost: every reachable state once; some 0.3 us each
bool can_stand_still(const RuleNetwork& network, const Rule& rule);

}  // namespace tenuto
