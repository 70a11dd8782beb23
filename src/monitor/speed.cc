#include "monitor/speed.h"

#include <algorithm>
#include <cmath>

namespace tenuto {

namespace {

constexpr double kSameLevel = 0.1;    // factors of a slow worker that differ by less are the same
constexpr double kSpreadShare = 0.1;  // weight of one step in the spread
constexpr double kLargestGap = 0.5;   // the largest gap that one step adds to the spread

}  // namespace

SpeedWatch::SpeedWatch(SpeedOptions options) : options_(options), spread_(options.spread) {}

SpeedWatch::Where SpeedWatch::where(double factor) const {
  if (!slow_) return factor > 1 + options_.band ? Where::Slower : Where::Unchanged;
  if (factor < 1 + options_.healed) return Where::Healthy;
  if (factor > last_factor_ * (1 + kSameLevel)) return Where::Slower;
  if (factor < last_factor_ * (1 - kSameLevel)) return Where::Faster;
  return Where::Unchanged;
}

// The probability that the speed changed at the first step of the streak (steps in a row with the
// same where()), against the alternative that nothing changed and the streak is noise.
double SpeedWatch::sure() const {
  const double spread = std::max(spread_, options_.spread);
  const double gap = (mean_ - std::log(last_factor_)) / spread;
  const double evidence = lasted_ * gap * gap / 2;
  return 1 / (1 + (1 / options_.hazard - 1) * std::exp(-evidence));
}

std::optional<Verdict> SpeedWatch::add(double factor, int64_t step) {
  if (step <= newest_ || factor <= 0) return std::nullopt;
  const double logarithm = std::log(factor);
  if (newest_ >= 0) {
    // The mean gap of two readings is 1.13 spreads.
    const double gap = std::min(std::abs(logarithm - last_), kLargestGap) / 1.13;
    spread_ += (gap - spread_) * kSpreadShare;
  }
  newest_ = step;
  last_ = logarithm;
  const Where now = where(factor);
  if (now != streak_) {
    streak_ = now;
    since_ = step;
    lasted_ = 0;
    mean_ = 0;
    latest_.clear();
  }
  ++lasted_;
  mean_ += (logarithm - mean_) / lasted_;
  latest_.push_back(factor);
  if (static_cast<int32_t>(latest_.size()) > options_.lasting) latest_.erase(latest_.begin());
  if (now == Where::Unchanged || lasted_ < options_.lasting) return std::nullopt;
  const double certainty = sure();
  if (certainty < options_.certain) return std::nullopt;
  std::vector<double> sorted = latest_;
  std::sort(sorted.begin(), sorted.end());
  const double before = speed();
  slow_ = now != Where::Healthy;
  last_factor_ = slow_ ? sorted[sorted.size() / 2] : 1;
  streak_ = Where::Unchanged;
  if (speed() == before && slow_) return std::nullopt;
  Verdict verdict;
  verdict.kind = slow_ ? VerdictKind::SlowWorker : VerdictKind::WorkerHealed;
  verdict.since_step = since_;
  verdict.found_step = step;
  verdict.factor = sorted[sorted.size() / 2];
  verdict.sure = std::min(certainty, 0.9999);
  return verdict;
}

double SpeedWatch::speed() const {
  if (!slow_) return 1;
  const double steps = std::round(1 / last_factor_ / options_.step);
  // Round to decimals, so that 3 x 0.05 is exactly the number written 0.15.
  return std::round(std::max(steps, 1.0) * options_.step * 1e6) / 1e6;
}

}  // namespace tenuto
