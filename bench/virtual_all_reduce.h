// Executes a collective in one thread as the runtime's members would, on a virtual clock: bytes are
// really moved and added, and messages take the time of ports and links.
#pragma once

#include <cstdint>
#include <vector>

#include "base/unit.h"
#include "ir/procedure.h"
#include "sim/procedure_price.h"

namespace tenuto {

// What is executed: `procedure` over `size` bytes, with member i arriving at arrivals[i]. Only
// `real` bytes are in memory; times are those of `size`: a message of b bytes occupies both ports
// for alpha + b beta.
struct VirtualCall {
  const Procedure* procedure = nullptr;
  int32_t slices = 1;  // per chunk
  int32_t sends_at_once = 2;
  std::vector<Duration> arrivals;
  Bytes size, real;
  AlphaBeta link;
};

// Returns when the last member has the sum. Checks every member's sum; a wrong one ends the
// program.
Duration virtual_finish(const VirtualCall& call);

}  // namespace tenuto
