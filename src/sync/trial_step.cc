#include "sync/trial_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "world/parameters.h"

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

// Elements of a block: few enough that sum, parameters and moments of a block stay in the first
// cache while gradients pass through it.
constexpr size_t kBlock = 1024;

const Known& known(TrialOptimizer optimizer) { return kKnown[static_cast<size_t>(optimizer)]; }

// Adds the elements from `begin` on of the first four gradients, one after the other. They are read
// in one loop because memory sends several parts at once faster than one by one.
void add_four(std::span<const std::span<const float>> gradients, size_t begin,
              std::span<float> sum) {
  const float* const one = gradients[0].data() + begin;
  const float* const two = gradients[1].data() + begin;
  const float* const three = gradients[2].data() + begin;
  const float* const four = gradients[3].data() + begin;
  for (size_t i = 0; i < sum.size(); ++i) {
    sum[i] = sum[i] + one[i] + two[i] + three[i] + four[i];
  }
}

// The sum of the gradients' elements from `begin` on.
void add_up(std::span<const std::span<const float>> gradients, size_t begin, std::span<float> sum) {
  const float* const first = gradients.front().data() + begin;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = 0.0f + first[i];
  size_t next = 1;
  for (; next + 4 <= gradients.size(); next += 4) add_four(gradients.subspan(next), begin, sum);
  for (; next < gradients.size(); ++next) {
    const float* const more = gradients[next].data() + begin;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
}

// How many of the `count` elements from `begin` on decay, if the first `decayed` of all do.
size_t decayed_in(int64_t decayed, size_t begin, size_t count) {
  const int64_t left = decayed - static_cast<int64_t>(begin);
  return static_cast<size_t>(std::clamp<int64_t>(left, 0, static_cast<int64_t>(count)));
}

// `sum` and the squares, one after the other.
double add_squares(double sum, std::span<const float> vector) {
  for (const float value : vector) sum += double{value} * double{value};
  return sum;
}

}  // namespace

std::string to_text(TrialOptimizer optimizer) { return std::string(known(optimizer).name); }

std::optional<TrialOptimizer> find_trial_optimizer(std::string_view name) {
  for (size_t i = 0; i < kKnown.size(); ++i) {
    if (kKnown[i].name == name) return static_cast<TrialOptimizer>(i);
  }
  return {};
}

double usual_rate(TrialOptimizer optimizer) { return known(optimizer).rate; }

size_t moment_count(TrialOptimizer optimizer) {
  if (optimizer == TrialOptimizer::Sgd) return 0;
  return optimizer == TrialOptimizer::AdamW ? 2 : 1;
}

StepSetting step_setting(const OuterStep& outer) {
  return {TrialOptimizer::Nesterov, outer.rate, outer.momentum, 0};
}

double rate_at(const StepSetting& setting, double step) {
  OptimizerSettings job;
  job.learning_rate = setting.rate;
  job.warm_up_steps = setting.schedule.warm_up_steps;
  job.schedule = setting.schedule.cosine ? "cosine" : "constant";
  job.minimum_rate = setting.schedule.minimum_rate;
  return learning_rate(job, step, setting.schedule.steps);
}

// What all elements of an update have in common.
struct TrialStep::Factors {
  double plain = 0;  // Sgd without decay: what a gradient is multiplied by
  float mean = 1;    // otherwise: what makes the sum the clipped mean
  MomentumFactors momentum;
  AdamSettings settings;
  AdamFactors adam;
};

TrialStep::TrialStep(const StepSetting& setting, size_t size)
    : setting_(setting), size_(size), block_(std::min(size, kBlock)) {
  const size_t moments = moment_count(setting.optimizer);
  if (moments > 0) state_.first.resize(size);
  if (moments > 1) state_.second.resize(size);
}

void TrialStep::take(std::span<float> parameters, std::span<const float> sum, Mass mass,
                     Mass full) {
  take_sum(parameters, {&sum, 1}, mass, full);
}

void TrialStep::take_sum(std::span<float> parameters,
                         std::span<const std::span<const float>> gradients, Mass mass, Mass full) {
  take_at_rate(parameters, gradients, mass, full, rate_at(setting_, share_of(state_.before, full)));
}

void TrialStep::take_at_rate(std::span<float> parameters,
                             std::span<const std::span<const float>> gradients, Mass mass,
                             Mass full, double rate) {
  const UpdateMass of{mass, full, state_.before};
  state_.before += mass;
  const auto samples = static_cast<double>(mass.micros);
  const double clip = setting_.clip > 0 ? clip_factor(norm_of_sum(gradients) / samples,
                                                      setting_.clip, setting_.clip_margin)
                                        : 1;
  Factors factors;
  // This is rate x (mass / full) x (sum / mass), with one factor in place of a division of each
  // gradient.
  factors.plain = rate * clip / static_cast<double>(full.micros);
  factors.mean = static_cast<float>(clip / samples);
  factors.momentum = momentum_factors(rate, setting_.momentum, of);
  factors.settings = setting_.adam;
  factors.settings.rate = rate;
  factors.adam = adam_factors(factors.settings, of);
  for (size_t begin = 0; begin < size_; begin += kBlock) {
    const size_t count = std::min(kBlock, size_ - begin);
    const std::span<float> sum = std::span(block_).first(count);
    add_up(gradients, begin, sum);
    take_block(parameters.subspan(begin, count), begin, sum, factors);
  }
}

void TrialStep::take_block(std::span<float> parameters, size_t begin, std::span<float> sum,
                           const Factors& factors) {
  const bool is_plain = setting_.optimizer == TrialOptimizer::Sgd;
  if (is_plain && setting_.weight_decay == 0) {
    take_plain_step(parameters, sum, factors.plain);
    return;
  }
  for (float& value : sum) value *= factors.mean;
  if (setting_.optimizer == TrialOptimizer::AdamW) {
    take_adam_block(parameters, begin, sum, factors);
    return;
  }
  if (setting_.weight_decay > 0) {
    const size_t decayed = decayed_in(setting_.decayed, begin, sum.size());
    add_weight_decay(sum.first(decayed), parameters.first(decayed), setting_.weight_decay);
  }
  if (is_plain) {
    take_plain_step(parameters, sum, factors.momentum.rate);
    return;
  }
  const std::span<float> first = std::span(state_.first).subspan(begin, sum.size());
  if (setting_.optimizer == TrialOptimizer::Momentum) {
    take_momentum_step(parameters, first, sum, factors.momentum);
  } else {
    take_nesterov_step(parameters, first, sum, factors.momentum);
  }
}

void TrialStep::take_adam_block(std::span<float> parameters, size_t begin,
                                std::span<const float> mean, const Factors& factors) {
  const std::span<float> first = std::span(state_.first).subspan(begin, mean.size());
  const std::span<float> second = std::span(state_.second).subspan(begin, mean.size());
  const size_t decayed = decayed_in(setting_.decayed, begin, mean.size());
  take_adam_step(parameters.first(decayed), first.first(decayed), second.first(decayed),
                 mean.first(decayed), factors.settings, factors.adam);
  AdamFactors without_decay = factors.adam;
  without_decay.shrink = 1;
  take_adam_step(parameters.subspan(decayed), first.subspan(decayed), second.subspan(decayed),
                 mean.subspan(decayed), factors.settings, without_decay);
}

double TrialStep::norm_of_sum(std::span<const std::span<const float>> gradients) {
  double squares = 0;
  for (size_t begin = 0; begin < size_; begin += kBlock) {
    const std::span<float> sum = std::span(block_).first(std::min(kBlock, size_ - begin));
    add_up(gradients, begin, sum);
    squares = add_squares(squares, sum);
  }
  return std::sqrt(squares);
}

void TrialStep::resume(OptimizerState state) {
  CHECK(state.first.size() == state_.first.size() && state.second.size() == state_.second.size(),
        cat("moments of ", state_.first.size(), " and ", state_.second.size(), " elements, found ",
            state.first.size(), " and ", state.second.size()));
  state_ = std::move(state);
}

void replace_by_change(std::span<float> moved, std::span<const float> before, Mass mass) {
  const auto factor = static_cast<float>(mass.micros);
  for (size_t i = 0; i < moved.size(); ++i) moved[i] = factor * (before[i] - moved[i]);
}

double squared_norm(std::span<const float> vector) { return add_squares(0, vector); }

}  // namespace tenuto
