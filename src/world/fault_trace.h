// A recorded trace of slow and broken links, to be replayed: which links were slow, from which step
// on and by how much; which connections broke.
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
// is in force until the next one, and `step;off` ends it. `step;links;break` breaks connections in
// that step and leaves the line before it in force. Steps ascend. Blank lines and everything after
// a # are ignored.
//
// Errors: Invalid/Call  with `source`, line and column
Result<std::vector<TracedFault>> read_fault_trace(const std::string& text,
                                                  const std::string& source);

}  // namespace tenuto
