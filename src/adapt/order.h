// The search for the order of one pipeline's ops.
#pragma once

#include <string>
#include <vector>

#include "adapt/line.h"
#include "adapt/quota.h"
#include "base/watch.h"

namespace tenuto {

// How much the search may try. Counted in ops played, not in seconds, so that equal inputs give
// equal results on every machine.
struct Effort {
  int64_t played_ops = 4'000'000;  // by policies; some 30 ns each
  int64_t moves = 6'000;           // of ops in fixed sequences
  int64_t moved_ops = 9'000'000;   // ops of the step times moves, at most; some 10 ns each
  auto operator<=>(const Effort&) const = default;
};

// An order for each stage of a line, and its makespan.
struct Ordered {
  Duration makespan{};              // to the last weight gradient
  std::vector<Sequence> sequences;  // of each stage
  Policy policy;                    // that made it; of a listed order the one it started from
  std::string how;                  // a few words for people
};

// What the search found.
struct OrderSearch {
  Ordered ready;     // the best that ready dispatch under the policy's limits plays by itself
  Ordered listed;    // the best of all, as fixed sequences; never slower than `ready`
  Duration bound{};  // no order within the memory limits is faster
};

// Plays a portfolio of quotas and policies, shifts the best quotas, then moves single ops of fixed
// sequences (reorder.h). Deterministic, unless `watch` ends it. Stops as soon as the bound is
// reached.
//
// Returns: nothing when the memory limit of a stage is below one micro-batch
// Source:  Wu et al., "Attack of the Bubbles", NSDI 2026 (quotas that absorb delays)
std::optional<OrderSearch> search_order(const Line& line, const Effort& effort = {},
                                        Watch* watch = nullptr);

}  // namespace tenuto
