// Modes as two published systems choose them while a run goes on: baselines for our own choice
// (sync/choose.h).
//
// LB-BSP stays synchronous and balances the load: before each iteration it predicts how fast every
// replica will be, and gives each a batch with which all end together. Sync-Switch is synchronous
// for the first part of a run and asynchronous afterwards.
//
// Sources: Chen, Weng, Wang, Li, Li, "Semi-dynamic load balancing: efficient distributed learning
// in non-dedicated environments", SoCC 2020. Li, Mangoubi, Xu, Guo, "Sync-Switch: hybrid parameter
// synchronization for distributed deep learning", ICDCS 2021, with its greedy policy for
// stragglers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/sync_mode.h"
#include "sync/scenario.h"

namespace tenuto {

// The part of the newest iteration in the average that LB-BSP predicts with.
constexpr double kNewestPart = 0.2;

// The predicted iteration of a replica: the exponential moving average of its last ones, of which
// the oldest comes first and counts whole. Requires: a sample
IterationTime moving_average(std::span<const IterationTime> samples);

// LB-BSP's mode: rebalanced, with the shares that shares_by_time (sync/formed.h) finds for the
// predicted times. The published system predicts compute times with a recurrent network where CPUs
// are shared, and all else with moving averages; here all times are predicted with these.
//
// Shapes: samples: of each replica, at least one
// Errors: form's (sync/formed.h)
Result<SyncMode> mode_by_speed(std::span<const std::vector<IterationTime>> samples, int64_t micros);

// What Sync-Switch is told.
struct SwitchInput {
  double wanted = 0;                 // the part of the run that shall be synchronous, 0 to 1
  double done = 0;                   // the part that has been so far
  std::vector<IterationTime> times;  // the mean iteration of each replica
};

// Sync-Switch's mode: asynchronous as soon as the synchronous part is done, and before that while
// somebody straggles; else synchronous. So a run comes back to synchronous training for what is
// left of that part when the stragglers are gone. Who straggles, says `stragglers`
// (sync/heuristic.h).
SyncMode mode_by_switch(const SwitchInput& input);

}  // namespace tenuto
