#include "sync/trial_step.h"

#include <array>
#include <cmath>

#include "ir/mass_step.h"

namespace tenuto {

namespace {

// Indexed by TrialOptimizer. Momentum of 0.9 moves ten times as far as plain SGD in the end, so its
// rate is lower.
struct Known {
  std::string_view name;
  double rate = 0;
};
constexpr std::array<Known, 4> kKnown = {
    {{"sgd", 1.2}, {"momentum", 0.15}, {"nesterov", 0.15}, {"adamw", 0.01}}};
constexpr double kWeightDecay = 0.01;  // AdamW

const Known& known(TrialOptimizer optimizer) { return kKnown[static_cast<size_t>(optimizer)]; }

}  // namespace

std::string to_text(TrialOptimizer optimizer) { return std::string(known(optimizer).name); }

std::optional<TrialOptimizer> find_trial_optimizer(std::string_view name) {
  for (size_t i = 0; i < kKnown.size(); ++i) {
    if (kKnown[i].name == name) return static_cast<TrialOptimizer>(i);
  }
  return {};
}

double usual_rate(TrialOptimizer optimizer) { return known(optimizer).rate; }

TrialStep::TrialStep(const StepSetting& setting, size_t size)
    : setting_(setting),
      first_(size),
      second_(setting.optimizer == TrialOptimizer::AdamW ? size : 0),
      mean_(setting.optimizer == TrialOptimizer::Sgd ? 0 : size) {}

void TrialStep::take(std::span<float> parameters, std::span<const float> sum, Mass mass,
                     Mass full) {
  const UpdateMass of{mass, full, before_};
  before_ += mass;
  const auto samples = static_cast<double>(mass.micros);
  const double clip = clip_factor(std::sqrt(squared_norm(sum)) / samples, setting_.clip);
  if (setting_.optimizer == TrialOptimizer::Sgd) {
    // This is rate x (mass / full) x (sum / mass), with one factor in place of a division of each
    // gradient.
    take_momentum_step(parameters, first_, sum,
                       {0, 1, setting_.rate * clip / static_cast<double>(full.micros)});
    return;
  }
  const auto scale = static_cast<float>(clip / samples);
  for (size_t i = 0; i < sum.size(); ++i) mean_[i] = scale * sum[i];
  if (setting_.optimizer == TrialOptimizer::AdamW) {
    AdamSettings settings;
    settings.rate = setting_.rate;
    settings.weight_decay = kWeightDecay;
    take_adam_step(parameters, first_, second_, mean_, settings, adam_factors(settings, of));
    return;
  }
  const MomentumFactors factors = momentum_factors(setting_.rate, setting_.momentum, of);
  if (setting_.optimizer == TrialOptimizer::Momentum) {
    take_momentum_step(parameters, first_, mean_, factors);
  } else {
    take_nesterov_step(parameters, first_, mean_, factors);
  }
}

double squared_norm(std::span<const float> vector) {
  double sum = 0;
  for (const float value : vector) sum += double{value} * double{value};
  return sum;
}

}  // namespace tenuto
