// The optimizer of a trial of a sync mode: updates by mass (ir/mass_step.h) with their moments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/mass.h"

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

// How one optimizer steps.
struct StepSetting {
  TrialOptimizer optimizer = TrialOptimizer::Sgd;
  double rate = 1.2;      // of an update of full mass, above 0
  double momentum = 0.9;  // Momentum, Nesterov
  double clip = 0;        // the longest mean gradient of an update; 0 = no clipping
};

// An optimizer with its moments, which begin at zero.
class TrialStep {
 public:
  // `size`: the number of parameters.
  TrialStep(const StepSetting& setting, size_t size);

  // Takes one update in place.
  //
  // Shapes: parameters and `sum` have the constructor's size
  // Units:  `sum` is that of the gradients of `mass` samples; an update of full mass has `full`,
  //         which is the same in all calls; both are above 0
  void take(std::span<float> parameters, std::span<const float> sum, Mass mass, Mass full);

 private:
  StepSetting setting_;
  std::vector<float> first_, second_;  // moments; the second one is AdamW's
  std::vector<float> mean_;            // gradient of the update under way
  Mass before_;                        // of all updates so far
};

// The sum of the squares.
double squared_norm(std::span<const float> vector);

}  // namespace tenuto
