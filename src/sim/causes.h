// Why an op started when it did, and the chain of such causes that determines the step's length.
#pragma once

#include <string>
#include <vector>

#include "sim/clockwork.h"

namespace tenuto {

// The spans of the first step's ops, by worker, then start, each with what it waited for last: the
// op that held its lane until then, else the value that came last, else the message that held the
// link, else the op that gave back the buffer. A Recv points at its Send.
std::vector<Span> spans_with_causes(const Program& program, const Schedule& schedule,
                                    const Outcome& outcome);

// A part of the critical path.
struct Share {
  std::string what;  // "worker 2", "link 0->1", "waiting"
  Duration time{};
};

// The chain from the last op back to the start. Making an op on it faster makes the step faster,
// until another chain is longer.
struct CriticalPath {
  std::vector<int32_t> spans;  // indices, first to last
  std::vector<Share> shares;   // longest first; they add up to the makespan
};

// The critical path of a timeline with spans; empty if there are none.
CriticalPath critical_path(const std::vector<Span>& spans);

}  // namespace tenuto
