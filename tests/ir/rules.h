// Rules by which workers may take ops, slots and buffers, ours and others: which of them can stand
// still. The system has only its own (ir/walk.h); what the others lead to says why.
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
  int32_t buffers = 0;    // of a worker, for activations that arrive; 0 = as many as come
  bool reserves_buffers = false;  // the last buffer as the last slot; no: whoever comes first
  bool in_line = false;  // messages between two workers arrive as they left: one that may not
                         // keeps back those behind it
};

// A few stages with holders of their own, and who runs what.
struct RuleNetwork {
  int32_t stages = 2, holders = 2, micros = 3;
  int32_t slots = 1;                         // of a worker, from forward to weight gradient
  std::vector<std::vector<int32_t>> owners;  // [stage][micro]
  std::vector<std::vector<std::vector<int32_t>>> own_orders;  // [stage][holder]: all numbers
};

// A random one: for the most part micro-batches stay in their pipeline.
RuleNetwork draw_network(Random& random, int32_t stages, int32_t micros);

// True when some order of events leads to where nothing can move and work is left. Ops and messages
// take any time.
//
// Cost: every reachable state once; some 0.3 us each
bool can_stand_still(const RuleNetwork& network, const Rule& rule);

}  // namespace tenuto
