// A trace of slow and broken links, to be replayed: which links were slow from which step on, and
// how much; which connections broke.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "world/fault.h"

namespace tenuto {

// A fault and the place of its link in the trace.
struct TracedFault {
  Fault fault;
  int64_t line = 0, column = 0;
};

// Reads lines `step;links;delay_ms`. Links are pairs of neighbouring stages, `0_1,5_6`; a line
// holds until the next, and `step;off` ends all. `step;links;break` breaks connections in that step
// and leaves what holds. Steps ascend. Blank lines and what follows a # say
// nothing.
//
// Errors: Invalid/Call  with `source`, line and column
Result<std::vector<TracedFault>> read_fault_trace(const std::string& text,
                                                  const std::string& source);

}  // namespace tenuto
