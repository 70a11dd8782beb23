#include "sync/gradient_score.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "sync/trial_step.h"

namespace tenuto {

void GradientScore::renew(std::vector<float> reference) {
  reference_ = std::move(reference);
  length_ = std::sqrt(squared_norm(reference_));
}

bool GradientScore::accept(std::span<float> gradient) const {
  CHECK(gradient.size() == reference_.size(), "a reference of the gradient's size");
  const double length = std::sqrt(squared_norm(gradient));
  if (!(length > 0) || !std::isfinite(length)) return false;
  const double scale = length_ / length;
  double product = 0;
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>(scale * double{gradient[i]});
    product += double{gradient[i]} * double{reference_[i]};
  }
  const double score = setting_.rate * product - setting_.rho * length_ * length_;
  return score >= -setting_.rate * setting_.epsilon;
}

}  // namespace tenuto
