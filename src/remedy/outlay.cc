#include "remedy/outlay.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "adapt/adapt.h"
#include "adapt/layers.h"
#include "plan/routed.h"
#include "sim/price.h"

namespace tenuto {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double nanoseconds(Duration time) { return static_cast<double>(time.count()); }

}  // namespace

bool have_equal_counts(const std::vector<Stage>& a, const std::vector<Stage>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const Stage& one, const Stage& other) {
        return one.layer_first == other.layer_first && one.holders.size() == other.holders.size();
      });
}

std::shared_ptr<const Plan> home_of(const std::shared_ptr<const Plan>& home,
                                    const std::vector<Stage>& stages) {
  if (home == nullptr || !have_equal_counts(home->stages, stages)) return nullptr;
  if (home->stages == stages) return home;
  std::vector<std::vector<WorkerId>> holders;
  for (const Stage& stage : stages) holders.push_back(stage.holders);
  return std::make_shared<const Plan>(with_holders(*home, std::move(holders)));
}

OutlayPricer::OutlayPricer(const Plan& present, const Model& model, const Cluster& now,
                           const RemedyTerms& terms)
    : present_(present), model_(model), now_(now), terms_(terms), phases_(phases(0)) {
  const auto left = static_cast<double>(std::max<int64_t>(1, terms.left));
  returns_ = !terms.healthy && phases_.front().steps < left && is_disturbed(present, now);
  present_steps_.assign(phases_.size(), kNever);
  if (!terms.home || !terms.layers || !have_equal_counts(present.stages, terms.home->stages)) {
    return;
  }
  for (size_t p = 0; p < phases_.size(); ++p) home_steps_.push_back(later_step(*terms.home, p));
  present_to_home_ = cost_between(present.stages, *terms.home);
}

double OutlayPricer::cost_between(const std::vector<Stage>& from, const Plan& to) const {
  if (from == to.stages || !have_equal_counts(from, to.stages)) return 0;
  return nanoseconds(cost_of_moves(moves_between(from, to.stages), to, model_, now_));
}

std::vector<ClusterPhase> OutlayPricer::phases(int64_t ahead) const {
  if (terms_.healthy) return forecast(now_, *terms_.healthy, terms_.troubles, terms_.left, ahead);
  const auto left = static_cast<double>(std::max<int64_t>(1, terms_.left - ahead));
  const double rest = expected_rest(terms_.troubles.ended, terms_.troubles.lasted + ahead);
  return {{now_, std::clamp(rest, 1.0, left)}};
}

Outlay OutlayPricer::outlay(const Plan& plan, Duration step, Duration change) {
  Outlay all{nanoseconds(change), {nanoseconds(step)}, plan.stages != present_.stages};
  for (size_t p = 1; p < phases_.size(); ++p) all.steps.push_back(later_step(plan, p));
  if (!all.moved) {
    for (size_t p = 0; p < phases_.size(); ++p) {
      present_steps_[p] = std::min(present_steps_[p], all.steps[p]);
    }
    return all;
  }
  all.to_present = cost_between(plan.stages, present_);
  if (terms_.home) all.to_home = cost_between(plan.stages, *terms_.home);
  return all;
}

double OutlayPricer::total(const Outlay& outlay, int64_t ahead) const {
  const std::vector<ClusterPhase> phases = ahead == 0 ? phases_ : this->phases(ahead);
  const double moving = outlay.moved ? std::min<double>(kStepsOfAMove, phases[0].steps) : 0;
  const double first = moving * (present_steps_[0] < kNever ? present_steps_[0] : outlay.steps[0]) +
                       (phases[0].steps - moving) * outlay.steps[0] + outlay.change;
  if (returns_) return first + outlay.to_present;
  // The least sums up to a phase with the layers where this change puts them, where they are now,
  // and at their first workers.
  double here = first;
  double present = outlay.moved ? kNever : here, home = kNever;
  for (size_t p = 1; p < phases.size(); ++p) {
    const double steps = phases[p].steps;
    const double late = std::min<double>(kStepsOfAReaction + kStepsOfAMove, steps);
    const auto moved = [&](double before, double after) {
      return late * before + (late < steps ? (steps - late) * after : 0);
    };
    const double here_step = outlay.moved ? outlay.steps[p] : present_steps_[p];
    const double step = present_steps_[p];
    if (!home_steps_.empty()) {
      home = std::min({home + steps * home_steps_[p],
                       here + outlay.to_home + moved(here_step, home_steps_[p]),
                       present + present_to_home_ + moved(step, home_steps_[p])});
    }
    present = std::min(present + steps * step, here + outlay.to_present + moved(here_step, step));
    here += steps * here_step;
  }
  return std::min({here, present, home});
}

double OutlayPricer::later_step(const Plan& plan, size_t phase) {
  const auto step = whole_step_time(plan, model_, phases_[phase].cluster);
  const std::optional<double> even = even_step(plan.stages, phase);
  if (!step.ok()) return even.value_or(0);
  return std::min(nanoseconds(step.value()), even.value_or(nanoseconds(step.value())));
}

std::optional<double> OutlayPricer::even_step(const std::vector<Stage>& stages, size_t phase) {
  const auto key = std::pair(stages, phase);
  const auto known = even_steps_.find(key);
  if (known != even_steps_.end()) return known->second;
  std::optional<double>& found = even_steps_[key];
  const auto even = home_of(terms_.home, stages);
  if (even == nullptr) return found;
  const auto step = whole_step_time(*even, model_, phases_[phase].cluster);
  if (step.ok()) found = nanoseconds(step.value());
  return found;
}

}  // namespace tenuto
