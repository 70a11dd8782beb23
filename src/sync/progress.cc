#include "sync/progress.h"

#include <algorithm>

namespace tenuto {

double value_of_gradient(double age, int32_t replicas, double kappa) {
  return 1 / (1 + kappa * age / replicas);
}

double AppliedMass::age_of(const Offer& member, Mass update) const {
  const auto read = static_cast<size_t>(member.version.value - first_.value);
  return static_cast<double>((at_.back() - at_[read]).micros) +
         static_cast<double>((update - member.mass).micros) / 2;
}

// Rarely, since the rest is moved.
void AppliedMass::forget_before(Version oldest) {
  const int64_t count = std::min(oldest.value - first_.value, std::ssize(at_) - 1);
  if (count < 1 || 2 * count < std::ssize(at_)) return;
  at_.erase(at_.begin(), at_.begin() + count);
  first_ = first_ + count;
}

double age_of_count(int32_t replicas, int32_t count) { return (2 * replicas - count - 1) / 2.0; }

double kappa_of(const LossDrop& fresh, const LossDrop& old, int32_t replicas) {
  // fresh / old = (1 + kappa old.age / W) / (1 + kappa fresh.age / W), solved for kappa.
  const double ratio = fresh.per_gradient / old.per_gradient;
  const double denominator = (old.age - ratio * fresh.age) / replicas;
  if (ratio <= 1) return 0;
  if (denominator <= 0) return kMostKappa;
  return std::min(kMostKappa, (ratio - 1) / denominator);
}

}  // namespace tenuto
