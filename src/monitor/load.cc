#include "monitor/load.h"

#include <algorithm>

#include "base/longest_time.h"

namespace tenuto {

namespace {

constexpr size_t kSteps = 8;       // healthy steps, and slow ones, that are kept
constexpr double kHealthy = 1.15;  // ops that last so many times as long as they should, at most

// Steps, added.
struct Total {
  double took = 0, should = 0, lasted = 0, cpu = 0;
  std::optional<double> run_delay, pressure;  // none: not known of every step
};

Total total_of(std::span<const StepLoad> loads) {
  Total total;
  double run_delay = 0, pressure = 0;
  bool knows_delay = !loads.empty(), knows_pressure = !loads.empty();
  for (const StepLoad& load : loads) {
    const ProcessorSample& of = load.processor;
    const auto lasted = static_cast<double>(of.step.count());
    total.took += load.took;
    total.should += load.should;
    total.lasted += lasted;
    total.cpu += static_cast<double>(of.cpu.count());
    run_delay += static_cast<double>(of.run_delay.count());
    pressure += of.pressure * lasted;
    knows_delay = knows_delay && of.run_delay_is == Figure::Known;
    knows_pressure = knows_pressure && of.pressure_is == Figure::Known;
  }
  if (knows_delay) total.run_delay = run_delay;
  if (knows_pressure && total.lasted > 0) total.pressure = pressure / total.lasted;
  return total;
}

void keep(std::vector<StepLoad>& loads, const StepLoad& load) {
  loads.push_back(load);
  if (loads.size() > kSteps) loads.erase(loads.begin());
}

// The first of the steps that the kernel's figures are of.
int64_t first_of(const StepLoad& load) { return load.step - load.processor.steps + 1; }

}  // namespace

void LoadWatch::add(const StepLoad& load) {
  if (load.step <= newest_) return;
  newest_ = load.step;
  if (load.took <= kHealthy * load.should) {
    keep(healthy_, load);
  } else if (first_of(load) >= since_) {
    keep(slow_, load);
  }
}

void LoadWatch::judge(Verdict& verdict) {
  since_ = verdict.since_step;
  std::erase_if(slow_, [&](const StepLoad& load) { return first_of(load) < since_; });
  verdict_.reset();
  if (verdict.kind != VerdictKind::SlowWorker) return;
  verdict.cause = cause();
  verdict_ = verdict;
}

std::optional<Verdict> LoadWatch::late_verdict() {
  if (!verdict_ || verdict_->cause) return std::nullopt;
  verdict_->cause = cause();
  return verdict_->cause ? verdict_ : std::nullopt;
}

std::optional<SlowCause> LoadWatch::cause() const {
  if (slow_.empty()) return std::nullopt;
  const Total now = total_of(slow_), usual = total_of(healthy_);
  const auto steps = static_cast<double>(slow_.size());
  // That a link is slow is known only after some steps, so the newest one counts for all.
  const double later = slow_.back().later;
  const TimeParts own{now.took, later * steps, now.cpu, now.run_delay, now.pressure};
  TimeParts best;
  best.compute = now.should;
  if (usual.should > 0) {
    const double work = now.should / usual.should;
    best.cpu = usual.cpu * work;
    if (usual.run_delay) best.run_delay = *usual.run_delay * work;
    best.pressure = usual.pressure;
  } else {
    best.cpu = now.cpu * now.should / now.took;
  }
  const std::optional<StragglerCause> found = cause_of(own, best);
  if (!found) return std::nullopt;
  SlowCause why{.cause = *found,
                .ops_longer = from_nanoseconds((now.took - now.should) / steps),
                .messages_later = from_nanoseconds(later)};
  if (now.run_delay && now.lasted > 0) why.waited = std::min(*now.run_delay / now.lasted, 1.0);
  why.pressure = now.pressure;
  return why;
}

}  // namespace tenuto
