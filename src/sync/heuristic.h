// The published heuristic for choosing a mode, as a baseline: a closed formula for the time between
// two updates, and the number of updates by gradient noise.
//
// It is the released program with its slips repaired. Its formula knows no age of gradients, and
// promises up to five times the true rate of updates (tests/sync/choose_test.cc has the figures).
//
// Source: Zhang, Shen, "Straggler tolerant and resilient DL training on homogeneous GPUs", 2025.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/sync_mode.h"
#include "sync/scenario.h"
#include "sync/simulator.h"

namespace tenuto {

// A replica that takes this much longer than the fastest one is a straggler.
constexpr double kStraggler = 1.2;

// The replicas, in order of number, whose times are above kStraggler times the fastest one's.
std::vector<ReplicaId> stragglers(std::span<const IterationTime> times);

// The predicted milliseconds between two updates of the mode x:`count`.
double published_interval(std::span<const IterationTime> times, int32_t count);

// Gradients and updates per second that the formula promises for synchronous, asynchronous or x:K,
// and the age that gradients have then, of which the formula says nothing. None for other modes.
std::optional<SyncMeasure> published_promise(const SyncMode& mode,
                                             std::span<const IterationTime> times);

// The relative number of updates of `count` gradients for the same progress.
//
// Units: noise: the gradient noise scale in samples; batch: samples of one gradient
double relative_updates(double noise, double batch, int32_t count);

// What the heuristic is told.
struct HeuristicInput {
  std::vector<IterationTime> times;  // the mean, or predicted, iteration of each replica
  double noise = 0, batch = 1;
};

// Synchronous when nobody straggles; else the x:K at the first local minimum of interval x updates.
//
// The published program also weighs groups of similar times, at 1 / sum over groups of 1 / (updates
// x slowest time). They are left out here because they can never win: a group of g replicas needs
// at least 1 / g of the updates of x:1, and its slowest time is no shorter than its members' times,
// so the promise of groups is never better than that of x:1.
//
// Errors: Invalid/Call  no replica; a batch that is not above 0
Result<SyncMode> choose_by_heuristic(const HeuristicInput& input);

}  // namespace tenuto
