// How many forwards each stage runs ahead of its backwards, so that it has work until the first
// gradient comes back.
#pragma once

#include <vector>

#include "adapt/line.h"

namespace tenuto {

// Forwards before the first backward, by stage.
using Quotas = std::vector<int32_t>;

// The longest work of a stage on one micro-batch: no steady state is faster.
Duration busiest(const Line& line);

// The time from the start of stage `from`'s forward of a micro-batch to the end of its input
// gradient if nothing but stages `from` to `to` were in the way: their ops and the messages between
// them, both ways.
Duration round_trip(const Line& line, int32_t from, int32_t to);

// The least quotas with which every pair of stages can pass on a micro-batch per `period`: with
// quota x at one stage and y at a later one, x - y + 1 micro-batches are under way between them,
// and (x - y + 1) period must be at least their round trip.
//
// Returns: at least one at the last stage, falling by at least one from stage to stage, at most the
//          number of micro-batches
// Source:  Wu et al., "Attack of the Bubbles", NSDI 2026, Theorem 1, for neighbours; every pair of
//          stages must be tested, because several links, each fast enough alone, can be too slow
//          together
// Cost:    O(stages^2)
Quotas ring_quotas(const Line& line, Duration period);

// The ring quotas of the shortest period whose quotas leave memory for `reserve` more micro-batches
// with a deferred weight gradient. The period is at least the time of the busiest stage.
Quotas ring_quotas_within(const Line& line, int32_t reserve);

// The forwards that a stage can run before the first backward can arrive.
Quotas filling_quotas(const Line& line);

// Quotas that fall evenly from stage to stage; the first is what the smallest memory allows.
//
// Source: ibid., Algorithm 1
Quotas even_quotas(const Line& line);

// As many forwards as hide the delay between neighbours, for each pair alone.
//
// Source: ibid., Algorithm 2
Quotas neighbour_quotas(const Line& line);

// Each stage runs more forwards ahead than the next one: `step`, and as many as fill `ways` one-way
// delays between the two. With `ways` 0, step 1 is 1F1B and step 2 is ZB-H2.
Quotas stepped_quotas(const Line& line, int32_t step, int32_t ways);

// The quotas cut to what fits into memory, and to the quota of the previous stage: a stage would
// deadlock if it waited for forwards that do not fit into the previous one's memory.
Quotas within_memory(const Line& line, Quotas quotas);

}  // namespace tenuto
