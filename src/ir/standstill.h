// Why nothing can move: the circle of waits, or the value that nobody makes.
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

// What to tell people of it.
struct Explanation {
  std::string sentence;     // the waits one after the other: who, at which op, for what, and who
                            // should have made it at which place of its list, or nobody
  std::vector<Mark> marks;  // the waiting ops in that order; the first is the one to look at
};

// Follows the first worker's wait to what holds it up, and that to the next, until it comes round
// or ends at a value that nobody makes. What merely waits for these is left out.
//
// Requires: some op has not ended and nothing can start
Explanation explain(const Standstill& standstill);

}  // namespace tenuto
