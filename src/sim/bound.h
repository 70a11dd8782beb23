// A lower bound on the time of every schedule.
#pragma once

#include "sim/price.h"
#include "sim/route.h"

namespace tenuto {

// A lower bound on the time from empty to the last weight gradient, for any order and dispatch
// within the workers' memory limits, given who runs which op. Each op has a head (when it can start
// at the earliest: its way down and up the pipeline, what its worker must do before, the memory
// that must have been freed) and a tail (the least time from its end to the end of the step). A
// worker that runs its ops one at a time needs at least as long as one that may interrupt them and
// always runs, of the ops that can run, the one with the longest tail (Jackson's rule). The bound
// is the largest such time over the workers.
//
// If steps overlap, it is a bound on the period instead: a worker's work plus the time that it must
// idle between its first forward and its first backward, and between its last backward and its next
// forward.
//
// A link carries one message of a route at a time, and each side of a port one message of all that
// pass it. The bounds ignore reductions, that several routes may share a link, and, if steps
// overlap, that they share ports.
//
// Source: Carlier, "The one-machine sequencing problem", EJOR 1982 (the preemptive bound).
// Cost:   O(n log n) for n ops
Duration lower_bound(const Plan& plan, const Schedule& schedule, const Model& model,
                     const Cluster& cluster, const PriceOptions& options);

// The lower bound for one route whose workers run nothing else.
Duration line_bound(const Route& route);

}  // namespace tenuto
