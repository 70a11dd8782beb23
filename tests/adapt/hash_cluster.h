// A cluster on one thread whose values are hashes of what they are made of: equal hashes mean that
// every op had the right inputs and parameters, whoever ran it and however often.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "adapt/salvage.h"
#include "base/random.h"
#include "ir/plan.h"
#include "ir/walk.h"

namespace tenuto {

// A rule of recovery that the cluster breaks on purpose.
enum class Broken : uint8_t {
  Nothing,
  InPlace,    // a reduction under way writes into the partial
  Total,      // finished reductions are ignored, and their members' partials given up
  Stale,      // what was brought to a reduction before the loss still counts
  NoKeep,     // a value that was sent is promised, and not kept
  NoRedo,     // who has stepped owes nothing
  FreeTotal,  // the total is freed at the Step
};

// How a run is disturbed.
struct Disturbance {
  uint64_t seed = 1;
  std::vector<std::pair<int64_t, WorkerId>> kills;  // after so many events; within one step
  bool keep = true;  // no: makers keep nothing of what they have sent
  Broken broken = Broken::Nothing;
  WorkerId slow;  // a worker that comes to its turn when hardly anybody else has one
};

// What became of it.
struct Ran {
  std::string failure;  // empty: every step was taken with the right parameters
  int64_t events = 0;   // starts of ops
  int64_t ops = 0;      // forwards, input gradients and weight gradients that ran
  int32_t copied = 0;   // totals
  int32_t back = 0;     // Steps taken back
};

// Runs one step of the plan and recovers from each kill by salvage(); every rest must pass check().
// Which op is next is drawn by the seed.
Ran run_disturbed(const Plan& plan, const Disturbance& disturbance);

}  // namespace tenuto
