// The orders that others would run: fixed ones, and the published adaptations to slow links,
// written from their descriptions. What the project's search must never be slower than.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "adapt/line.h"

namespace tenuto {

// An order, or none where the rooms forbid it.
struct Published {
  std::string name;
  std::optional<std::vector<Sequence>> sequences;
};

// All of them for a line. Quotas are clipped to the rooms, and to those of the stage before,
// because a stage that waits for forwards that never come stands still.
//
// - "1f1b", "zb-h1", "zb-h2": fixed orders; with less room than they need, fewer forwards ahead.
// - "even": the room of the first stage spread evenly (Algorithm 1); "even, least room": that of
// the
//   stage with the least.
// - "neighbours": each pair of stages hides its delay (Algorithm 2); "neighbours in steps": on a
//   clock of 30 steps for the longest op, as published.
// - "2 + delay", "2 + round trip": forwards ahead of the next stage by the delay in forwards.
// - "planned for a delay": of plans for delays from none to the longest, by 5 ms, on every link
// that
//   has one, the one that is fastest at the true delays.
// - "planned for none": the same, of these the one for no delay.
// - "priority": no quotas: backward before forward before weight gradient.
//
// Source: Wu et al., "Attack of the Bubbles", NSDI 2026, Algorithms 1 to 4 and its released
// program;
//         Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024 (the zb orders)
std::vector<Published> published_orders(const Line& line);

// The fastest of orders on the line, replayed; the longest time when there is none.
Duration fastest(const Line& line, const std::vector<Published>& orders);

}  // namespace tenuto
