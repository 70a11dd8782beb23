// Days of training in a cluster with troubles: what a run gets done, and what its time goes into.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/unit.h"
#include "outlook/step_price.h"
#include "outlook/trouble.h"

namespace tenuto::outlook {

// Why a run pauses.
enum class PauseKind : uint8_t {
  Death,    // a death is noticed, the interrupted step is finished, the next plan is made
  Join,     // a repaired worker becomes a member
  Layers,   // layers move
  Restart,  // the run starts again from its newest checkpoint
};
inline constexpr size_t kPauseKinds = 4;

// The name of a kind, for reports.
constexpr std::string_view name_of(PauseKind kind) {
  constexpr std::array<std::string_view, kPauseKinds> names = {"deaths", "joins", "layers",
                                                               "restarts"};
  return names[static_cast<size_t>(kind)];
}

// The length of the simulated run, how long it pauses after each kind of trouble, and how often it
// writes a checkpoint.
struct WeekSetup {
  Duration length = std::chrono::hours(7 * 24);
  std::array<Duration, kPauseKinds> pauses = {std::chrono::seconds(5), std::chrono::seconds(1),
                                              std::chrono::seconds(10), std::chrono::minutes(10)};
  int64_t checkpoint_steps = 100;  // from one checkpoint to the next, which takes no time
  int32_t buckets = 168;           // into which the length is divided for the goodput over time

  // The length of a pause.
  Duration pause(PauseKind kind) const { return pauses[static_cast<size_t>(kind)]; }
  // The length of a bucket; the last one may be shorter.
  Duration bucket() const { return Duration((length.count() + buckets - 1) / buckets); }
};

// What a run got done. All times together are its length.
struct WeekResult {
  int64_t steps = 0;       // done, and not lost again
  int64_t lost_steps = 0;  // done after the last checkpoint before a restart
  Duration training{};     // in the steps
  Duration lost{};         // in the lost steps
  std::array<Duration, kPauseKinds> pauses{};
  Duration waiting{};              // for a worker without which the run cannot go on
  Duration unfinished{};           // in a step that the end cuts off
  Duration above_bound{};          // of `training` and `lost`: above the lower bounds of the steps
  std::vector<int64_t> over_time;  // steps by the bucket in which they ended, without the lost
  bool operator==(const WeekResult&) const = default;

  // All times together.
  Duration total() const;
};

// How to get from one moment to the next: from change to change, or, to check that, step by step
// with a look at all troubles before each step.
enum class Stepping : uint8_t { Changes, EachStep };

// Runs a cluster from time 0 to the end.
//
// A step has the condition of the cluster at its begin; a death, or another trouble, counts from
// the end of the step in which it falls, and if that is in a pause, after the pause. With
// re-routing a death is a pause. Without, or if a stage has lost its last worker, the steps since
// the newest checkpoint are lost, and the run restarts as soon as it can, with all workers that are
// repaired by then. Without growing back a repaired worker has to wait for such a restart. Layers
// move once as much time has been lost by not moving them as the move costs.
//
// Requires: the troubles are ordered by their begin and within the shape of `prices`
// Cost:     Changes: O(troubles x (active troubles + price)); EachStep: O(steps x troubles)
WeekResult run_week(const WeekSetup& setup, const std::vector<Trouble>& troubles,
                    StepPrices& prices, Stepping stepping = Stepping::Changes);

}  // namespace tenuto::outlook
