// Explains a deadlock: the circle of waits, or the value that no op makes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/pairing.h"
#include "ir/text.h"
#include "ir/walk.h"

namespace tenuto {

// Lists that were run as far as they go.
struct Standstill {
  const Schedule& schedule;
  const Pairing& pairing;
  const std::vector<Walk>& walks;    // of each worker
  const std::vector<bool>& started;  // by Pairing number
  const std::vector<bool>& ended;    // by Pairing number
};

// What to report about it.
struct Explanation {
  std::string sentence;     // the waits in order: which worker waits at which op for what, and
                            // which op of which list should have made it, or that none does
  std::vector<Mark> marks;  // the waiting ops in that order; the first is the one to look at
};

// Follows the chain of waits from the first waiting worker until it closes a circle or ends at a
// value that nobody makes. Ops that merely wait for the circle are left out.
//
// Requires: some op has not ended and nothing can start
Explanation explain(const Standstill& standstill);

}  // namespace tenuto
