#include "engine/growing.h"

#include <utility>

namespace tenuto {

GrowingParts::GrowingParts(SumGrowth growth, int64_t step)
    : growth_(std::move(growth)), step_(step) {}

void GrowingParts::begin() {
  complete_.assign(growth_.parts.size(), false);
  leading_ = 0;
  unreported_ = 0;
  twice_ = false;
}

int32_t GrowingParts::complete(size_t part) {
  if (complete_[part]) twice_ = true;
  complete_[part] = true;
  for (; leading_ < complete_.size() && complete_[leading_]; ++leading_) {
    unreported_ += growth_.parts[leading_].end - growth_.parts[leading_].first;
  }
  if (unreported_ < step_) return 0;
  unreported_ = 0;
  return static_cast<int32_t>(leading_);
}

}  // namespace tenuto
