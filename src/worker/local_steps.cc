#include "worker/local_steps.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

Result<std::vector<std::vector<servers::MicroRange>>> micros_of_steps(const servers::Work& work) {
  int64_t all = 0;
  for (const servers::MicroRange& range : work.micros) all += range.end - range.begin;
  const int64_t steps = work.local_steps;
  if (steps < 1 || all < steps || all % steps != 0) {
    return invalid(cat("work ", work.serial, " has ", all, " micro-batches for ", steps,
                       " local steps: expected as many for each of them, and one at least"));
  }
  std::vector<std::vector<servers::MicroRange>> of_steps(static_cast<size_t>(steps));
  auto range = work.micros.begin();
  int64_t used = 0;  // of the range
  for (std::vector<servers::MicroRange>& own : of_steps) {
    int64_t missing = all / steps;
    while (missing > 0) {
      const int64_t begin = range->begin + used;
      const int64_t count = std::min(missing, range->end - begin);
      if (count > 0) own.push_back({range->stream, begin, begin + count});
      missing -= count;
      used += count;
      if (range->begin + used < range->end) continue;
      ++range;
      used = 0;
    }
  }
  return of_steps;
}

LocalSteps::LocalSteps(const servers::MassStoreSettings& settings)
    : setting_(servers::step_setting_of(settings)), full_(settings.full) {}

Result<PartGradient> LocalSteps::run(const servers::Work& work, std::span<const float> parameters,
                                     const Compute& compute) {
  const auto micros = micros_of_steps(work);
  if (!micros.ok()) return micros.error();
  const auto steps = static_cast<int64_t>(micros.value().size());
  PartGradient change;
  std::vector<float> own(parameters.begin(), parameters.end());
  double losses = 0;
  int64_t loss_count = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const auto gradient = compute(micros.value()[static_cast<size_t>(i)], own);
    if (!gradient.ok()) return gradient.error();
    const PartGradient& of = gradient.value();
    CHECK(of.sum.size() == own.size() && of.mass > Mass{},
          cat("a gradient of ", own.size(), " elements with a mass above 0, found one of ",
              of.sum.size(), " elements and mass ", of.mass.micros));
    take(own, of.sum, of.mass, {work.applied.micros + i * full_.micros});
    change.mass += of.mass;
    if (!of.loss) continue;
    losses += *of.loss;
    ++loss_count;
  }
  // All steps have as many micro-batches.
  if (loss_count > 0) change.loss = losses / static_cast<double>(loss_count);
  replace_by_change(own, parameters, change.mass);
  change.sum = std::move(own);
  return change;
}

// `applied`: in the parameters before the step, as the schedule counts.
void LocalSteps::take(std::span<float> parameters, std::span<const float> sum, Mass mass,
                      Mass applied) {
  if (!step_) step_.emplace(setting_, parameters.size());
  // An iteration may have another mass than those before, as in a rebalanced mode. The moments
  // count steps.
  if (mass != step_mass_) {
    OptimizerState state = step_->state();
    state.before = {taken_ * mass.micros};
    step_->resume(std::move(state));
    step_mass_ = mass;
  }
  const double rate = rate_at(setting_, share_of(applied, full_));
  step_->take_at_rate(parameters, {&sum, 1}, mass, mass, rate);
  ++taken_;
}

}  // namespace tenuto
