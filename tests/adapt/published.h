// The orders of other systems: fixed ones, and published adaptations to slow links, written from
// their descriptions. The project's search must never be slower than any of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapt/line.h"

namespace tenuto {

// An order, or nothing if it does not fit into the memory limits.
struct Published {
  std::string name;
  std::optional<std::vector<Sequence>> sequences;
};

// All of them for a line. Quotas (warm-up forwards) are clipped to the memory limit of the stage,
// and to the quota of the stage before, because a stage that waits for more forwards deadlocks.
//
// - "1f1b", "zb-h1", "zb-h2": fixed orders; with less memory than they need, fewer forwards ahead.
// - "even": the memory limit of the first stage spread evenly (Algorithm 1); "even, least memory":
//   the limit of the stage with the least memory.
// - "neighbours": each pair of stages hides its delay (Algorithm 2); "neighbours in steps": on a
//   clock of 30 steps for the longest op, as published.
// - "2 + delay", "2 + round trip": each stage runs 2 forwards more ahead than the next stage, plus
//   as many as fit into the delay, or into the round trip.
// - "planned for a delay": makes plans for delays from none to the longest, in steps of 5 ms, on
//   every delayed link, and takes the plan that is fastest at the true delays.
// - "planned for none": of these, a plan for no delay.
// - "priority": no quotas: backward before forward before weight gradient.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026, Algorithms 1 to 4 and its released
//         program; Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (the zb orders)
std::vector<Published> published_orders(const Line& line);

// The time of the fastest of the orders, replayed on the line; the longest Duration if there is
// none.
Duration fastest(const Line& line, const std::vector<Published>& orders);

}  // namespace tenuto
