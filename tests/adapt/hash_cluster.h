// A cluster on one thread. Each value is a hash of the inputs and parameters that it was made from:
// equal hashes mean that every op had the right ones, whichever worker ran it and however often.
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
  Total,      // finished reductions are ignored, and their members' partials dropped
  Stale,      // partials that were brought to a reduction before the loss still count
  NoKeep,     // a sent value is listed in the inventory, but not kept
  NoRedo,     // a worker whose Step is taken back does not make its outputs again
  FreeTotal,  // the total is freed at the Step
};

// How a run is disturbed.
struct Disturbance {
  uint64_t seed = 1;
  std::vector<std::pair<int64_t, WorkerId>> kills;  // after so many events; within one step
  bool keep = true;  // no: workers do not keep the values that they have sent
  Broken broken = Broken::Nothing;
  WorkerId slow;  // a worker that hardly ever runs while another one can
};

// The result of a run.
struct Ran {
  std::string failure;  // empty: every step was taken with the right parameters
  int64_t events = 0;   // starts of ops
  int64_t ops = 0;      // forwards, input gradients and weight gradients that ran
  int32_t copied = 0;   // totals copied
  int32_t back = 0;     // Steps taken back
};

// Runs one step of the plan and recovers from each kill by salvage(); every rest must pass check().
// The seed decides which op runs next.
Ran run_disturbed(const Plan& plan, const Disturbance& disturbance);

}  // namespace tenuto
