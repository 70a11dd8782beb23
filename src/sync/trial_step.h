// The optimizer of a trial of a sync mode: updates by mass (ir/mass_step.h) with their moments.
// Server shards have the same one (parameter_server/mass_store.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/mass.h"
#include "ir/mass_step.h"
#include "ir/sync_mode.h"

namespace tenuto {

// What a trial trains with.
enum class TrialOptimizer : uint8_t { Sgd, Momentum, Nesterov, AdamW };

// Its name: sgd, momentum, nesterov, adamw.
std::string to_text(TrialOptimizer optimizer);
// The optimizer of this name; none = there is none.
std::optional<TrialOptimizer> find_trial_optimizer(std::string_view name);
// The learning rate of a synchronous update for the network of trials. Plain SGD and momentum have
// those of the reference experiment (docs/sync-modes.md).
double usual_rate(TrialOptimizer optimizer);
// How many moments it has for each parameter: 0 to 2.
size_t moment_count(TrialOptimizer optimizer);

// How the rate changes with the mass of the updates before: the rule of a job's steps
// (learning_rate() in world/parameters.h), where the step is this mass / the full mass. The default
// is a constant rate.
struct RateSchedule {
  int32_t warm_up_steps = 0;  // the rate rises linearly over these
  bool cosine = false;        // after them it falls to the minimum; false: it stays
  double minimum_rate = 0;    // cosine: the share of the rate that it ends at, 0 to 1
  int64_t steps = 0;          // cosine: steps of the run, the warm-up included
};

// The number of decayed elements that stands for all of them.
inline constexpr int64_t kAllElements = std::numeric_limits<int64_t>::max();

// How one optimizer steps.
struct StepSetting {
  TrialOptimizer optimizer = TrialOptimizer::Sgd;
  double rate = 1.2;      // of an update of full mass, above 0; the highest one of the schedule
  double momentum = 0.9;  // Momentum, Nesterov
  double clip = 0;        // the longest mean gradient of an update; 0 = no clipping
  AdamSettings adam = {.weight_decay = 0.01};  // AdamW; it has the rate above, not its own one
  double clip_margin = 0;                      // of clip_factor()
  double weight_decay = 0;                     // of all but AdamW: part of the clipped gradient
  int64_t decayed = kAllElements;              // weight decay is for the first so many elements
  RateSchedule schedule = {};
};

// What takes the changes that replicas have made in several local steps: the outer step.
StepSetting step_setting(const OuterStep& outer);

// The rate of an update of full mass in the place of step `step` of the schedule, which may be
// between two steps.
double rate_at(const StepSetting& setting, double step);

// What an optimizer knows of earlier updates.
struct OptimizerState {
  std::vector<float> first, second;  // moments; empty where the optimizer has none
  Mass before;                       // of all updates so far
};

// An optimizer with its moments, which begin at zero.
//
// Idea:  an update is taken in blocks of some thousand elements, so that gradients, parameters and
//        moments go through memory once, and sum and mean of the gradients never do.
class TrialStep {
 public:
  // `size`: the number of parameters.
  TrialStep(const StepSetting& setting, size_t size);

  // Takes one update in place.
  //
  // Shapes: parameters and `sum` have the constructor's size
  // Units:  `sum` is that of the gradients of `mass` samples; an update of full mass has `full`;
  //         both are above 0. With AdamW or a schedule `full` is the same in all calls.
  void take(std::span<float> parameters, std::span<const float> sum, Mass mass, Mass full);

  // The same for the sum of these gradients: each is added to the ones before it, beginning with
  // zero.
  //
  // Shapes: one gradient or more; parameters and every gradient have the constructor's size
  // Units:  as above
  void take_sum(std::span<float> parameters, std::span<const std::span<const float>> gradients,
                Mass mass, Mass full);

  // The same with this rate in the place of that of the schedule: for updates that others come
  // between, which the schedule counts and this optimizer does not.
  //
  // Units:  `rate` is that of an update of full mass
  void take_at_rate(std::span<float> parameters, std::span<const std::span<const float>> gradients,
                    Mass mass, Mass full, double rate);

  // What it knows of its updates so far.
  const OptimizerState& state() const { return state_; }
  // Goes on from here. Requires: moments of the sizes that state() has
  void resume(OptimizerState state);

 private:
  struct Factors;
  // The parameters from `begin` on, with the sum of their gradients, which is changed.
  void take_block(std::span<float> parameters, size_t begin, std::span<float> sum,
                  const Factors& factors);
  // AdamW's part of it, with the mean of the gradients.
  void take_adam_block(std::span<float> parameters, size_t begin, std::span<const float> mean,
                       const Factors& factors);
  // The norm of the gradients' sum.
  double norm_of_sum(std::span<const std::span<const float>> gradients);

  StepSetting setting_;
  size_t size_;
  OptimizerState state_;
  std::vector<float> block_;  // a part of the sum, while an update is taken
};

// Replaces the parameters after local steps by what a replica offers for them: how far they have
// moved from `before`, old - new, times the mass. To the outer step it is the sum of a gradient.
//
// Shapes: both have the same length
void replace_by_change(std::span<float> moved, std::span<const float> before, Mass mass);

// The sum of the squares.
double squared_norm(std::span<const float> vector);

}  // namespace tenuto
