#include "sync/kappa_estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"
#include "sync/progress.h"

namespace tenuto {

namespace {

constexpr double kRounds = 2, kLeastWindow = 8;  // of a window
// The prior counts as much as so many windows in each of which the loss falls by its noise.
constexpr double kPriorWindows = 4;
// What older segments count, for each segment after them that has said something.
constexpr double kMemory = 0.9;
// The most that one segment can count.
constexpr double kMostEvidence = 16;
// A fall of the loss by so many times its standard error makes a segment count by a half.
constexpr double kClearFall = 10;
// Of the losses' mean square: less is rounding, and no noise.
constexpr double kRounding = 1e-18;
constexpr size_t kTerms = 3;  // of a parabola
constexpr double kLeastChange = 0.05, kLeastPart = 0.2;

using Values = std::vector<double>;

double product(const Values& left, const Values& right) {
  double sum = 0;
  for (size_t i = 0; i < left.size(); ++i) sum += left[i] * right[i];
  return sum;
}

// Takes away from `of` its part along `direction`.
void take_away(Values& of, const Values& direction) {
  const double factor = product(of, direction) / product(direction, direction);
  for (size_t i = 0; i < of.size(); ++i) of[i] -= factor * direction[i];
}

// The sum of squares that the best parabola leaves of these values.
//
// Requires: more values than terms; positions that rise
double left_by_parabola(const Values& at, Values values) {
  const double middle = (at.front() + at.back()) / 2, half = (at.back() - at.front()) / 2;
  Values power(at.size(), 1);  // of each position
  std::vector<Values> terms;   // each without its part along those before
  for (size_t degree = 0; degree < kTerms; ++degree) {
    Values term = power;
    for (const Values& before : terms) take_away(term, before);
    take_away(values, term);
    terms.push_back(std::move(term));
    for (size_t i = 0; i < at.size(); ++i) power[i] *= (at[i] - middle) / half;
  }
  return product(values, values);
}

// What a segment with these losses counts, from 0 to 1: the square of its fall against that of the
// fall's standard error.
double weight_of(const Values& losses, double noise) {
  const size_t half = losses.size() / 2;
  double fall = 0;
  for (size_t i = 0; i < half; ++i) fall += losses[i] - losses[losses.size() - 1 - i];
  if (!(fall > 0)) return 0;
  const double clear = kClearFall * kClearFall * 2 * static_cast<double>(half) * noise;
  return fall * fall / (fall * fall + clear);
}

}  // namespace

bool has_kappa_changed(double from, double to) {
  return std::abs(to - from) > std::max(kLeastPart * from, kLeastChange);
}

std::string kappa_sentence(double from, double to) {
  return cat("the age of gradients costs ", to > from ? "more" : "less",
             " than was thought: kappa is ", fixed(to, 2), ", and was ", fixed(from, 2));
}

KappaEstimate::KappaEstimate(double prior, int32_t replicas)
    : prior_(prior),
      most_(std::max(kMostTimes * prior, kLeastMost)),
      replicas_(replicas),
      window_(std::max(kLeastWindow, kRounds * static_cast<double>(replicas))),
      kappa_(prior) {}

void KappaEstimate::add_loss(double gradients, double loss) {
  if (!std::isfinite(loss)) return;
  filling_.mass += gradients;
  filling_.sum += gradients * loss;
}

void KappaEstimate::add_applied(double gradients, double age) {
  filling_.gradients += gradients;
  filling_.ages += gradients * age;
  if (filling_.gradients < window_) return;
  Window over = std::exchange(filling_, Window{});
  // A sum of huge losses may not be finite.
  if (over.mass > 0 && std::isfinite(over.sum)) over.loss = over.sum / over.mass;
  segment_.push_back(over);
  const std::optional<Evidence> open = evidence();
  if (open) estimate(*open);
  if (segment_.size() < kSegment) return;
  segment_.clear();
  if (!open) return;
  for (size_t i = 0; i < kPoints; ++i) closed_[i] = kMemory * closed_[i] + (*open)[i];
}

// Of log(1 + kappa). In it the cost of a high age rises about equally fast everywhere.
double KappaEstimate::point(size_t index) const {
  return std::log1p(most_) * static_cast<double>(index) / static_cast<double>(kPoints - 1);
}

bool KappaEstimate::has_changed_age() const {
  const auto younger = [](const Window& left, const Window& right) {
    return left.age() < right.age();
  };
  const auto found = std::minmax_element(segment_.begin(), segment_.end(), younger);
  if (found.first == segment_.end()) return false;
  return found.second->age() - found.first->age() >= kLeastSpread * replicas_;
}

// What the best parabola leaves of the segment's losses if this is kappa.
double KappaEstimate::left_over(double supposed) const {
  Values at, losses;
  double worth = 0;  // of the windows before
  for (const Window& one : segment_) {
    const double own = one.gradients * value_of_gradient(one.age(), replicas_, supposed);
    if (one.loss) {
      at.push_back(worth + own / 2);
      losses.push_back(*one.loss);
    }
    worth += own;
  }
  return left_by_parabola(at, std::move(losses));
}

// What the segment says so far; none = nothing.
std::optional<KappaEstimate::Evidence> KappaEstimate::evidence() const {
  Values losses;
  double squares = 0;
  for (const Window& one : segment_) {
    if (!one.loss) continue;
    losses.push_back(*one.loss);
    squares += *one.loss * *one.loss;
  }
  if (losses.size() < kLeastWindows || !std::isfinite(squares) || !has_changed_age()) {
    return std::nullopt;
  }
  Evidence left{};
  for (size_t i = 0; i < kPoints; ++i) left[i] = left_over(std::expm1(point(i)));
  const double least = *std::min_element(left.begin(), left.end());
  const auto count = static_cast<double>(losses.size());
  // Kappa itself is a number that was fitted, too.
  const double degrees = count - static_cast<double>(kTerms + 1);
  const double noise =
      least / degrees + kRounding * squares / count + std::numeric_limits<double>::min();
  const double weight = weight_of(losses, noise);
  if (weight <= 0) return std::nullopt;
  for (double& one : left) {
    const double far = (one - least) / noise;
    one = weight * kMostEvidence * far / (kMostEvidence + far);
  }
  return left;
}

// The likeliest point of the grid, and from there the lowest point of the parabola through it and
// its neighbours.
void KappaEstimate::estimate(const Evidence& open) {
  Evidence all{};
  for (size_t i = 0; i < kPoints; ++i) {
    const double from_prior = point(i) - std::log1p(prior_);
    all[i] = kPriorWindows * from_prior * from_prior + closed_[i] + open[i];
  }
  const auto best = static_cast<size_t>(std::min_element(all.begin(), all.end()) - all.begin());
  double at = point(best);
  if (best > 0 && best + 1 < kPoints) {
    const double before = all[best - 1] - all[best], after = all[best + 1] - all[best];
    // Both are at least 0.
    if (before + after > 0) at += (before - after) / (before + after) / 2 * point(1);
  }
  kappa_ = std::expm1(at);
}

}  // namespace tenuto
