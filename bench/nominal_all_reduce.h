// A collective executed in one thread, member by member as the runtime executes it, on a clock of
// its own: bytes are really moved and added, and messages take what ports and links would take.
#pragma once

#include <cstdint>
#include <vector>

#include "base/unit.h"
#include "ir/procedure.h"
#include "sim/procedure_price.h"

namespace tenuto {

// What is executed: `procedure` over `size` bytes of which `real` are there, when member i comes at
// arrivals[i]. A message of b bytes takes both ports for alpha + b beta, b being its part of
// `size`.
struct NominalCall {
  const Procedure* procedure = nullptr;
  int32_t slices = 1;  // of a chunk
  int32_t sends_at_once = 2;
  std::vector<Duration> arrivals;
  Bytes size, real;
  AlphaBeta link;
};

// When the last member has the sum; every member's is looked at, and a wrong one ends the program.
Duration nominal_finish(const NominalCall& call);

}  // namespace tenuto
