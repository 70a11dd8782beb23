#include "rehearsal/lag.h"

#include <algorithm>

namespace tenuto {

namespace {

constexpr size_t kMost = 1 << 20;  // 16 MiB for both columns, some hours of ops

Duration share_of(std::vector<int64_t>& numbers, double share) {
  if (numbers.empty()) return {};
  const auto last = static_cast<double>(numbers.size() - 1);
  const auto place = numbers.begin() + static_cast<int64_t>(last * share);
  std::nth_element(numbers.begin(), place, numbers.end());
  return Duration(*place);
}

}  // namespace

void LagRecord::note(Duration lag, Duration length) {
  const int64_t behind = std::max<int64_t>(lag.count(), 0);
  if (lags_.size() < kMost) {
    lags_.push_back(behind);
    lengths_.push_back(length.count());
    return;
  }
  lags_[next_] = behind;
  lengths_[next_] = length.count();
  next_ = (next_ + 1) % kMost;
}

Lag LagRecord::summary() const {
  std::vector<int64_t> lags = lags_, lengths = lengths_;
  std::erase(lengths, 0);
  Lag lag;
  lag.median = share_of(lags, 0.5);
  lag.p99 = share_of(lags, 0.99);
  lag.worst = share_of(lags, 1.0);
  lag.typical_op = share_of(lengths, 0.5);
  lag.ops = static_cast<int64_t>(lags.size());
  return lag;
}

}  // namespace tenuto
