#include "transport/pace.h"

#include <algorithm>
#include <utility>

namespace tenuto {

namespace {

// Timers of the kernel are late by up to 1 ms, and a busy thread by more. What is lost by this is
// made up for; a stream that was quiet for longer has no claim on that time.
constexpr Duration kCatchUp = std::chrono::milliseconds(5);

}  // namespace

void SendPace::set(WorkerId peer, Purpose purpose, double bytes_per_second) {
  const std::lock_guard lock(mutex_);
  rates_[{peer, purpose}] = bytes_per_second;
}

void SendPace::set_others(Purpose purpose, double bytes_per_second) {
  const std::lock_guard lock(mutex_);
  others_[static_cast<size_t>(purpose)] = bytes_per_second;
}

double SendPace::rate(WorkerId peer, Purpose purpose) const {
  const std::lock_guard lock(mutex_);
  const auto found = rates_.find({peer, purpose});
  return found == rates_.end() ? others_[static_cast<size_t>(purpose)] : found->second;
}

void SendPace::set_total(double bytes_per_second, std::set<WorkerId> spared) {
  const std::lock_guard lock(mutex_);
  stretch_ = total_ > 0 && bytes_per_second > 0 ? stretch_ * total_ / bytes_per_second : 0;
  total_ = bytes_per_second;
  spared_ = std::move(spared);
}

Duration SendPace::reserve(WorkerId peer, Bytes size, Duration now) const {
  const std::lock_guard lock(mutex_);
  if (!(total_ > 0) || spared_.count(peer) > 0) return now;
  if (stretch_ != 1) meter_.stretch(std::exchange(stretch_, 1), now);
  const Duration leaves = std::max(meter_.due(), now);
  meter_.spend(size, total_, now);
  return leaves;
}

void Meter::spend(Bytes size, double bytes_per_second, Duration now) {
  due_ = std::max(due_, now - kCatchUp) + transfer_time(size, bytes_per_second);
}

void Meter::stretch(double factor, Duration now) {
  if (due_ <= now) return;
  const double left = static_cast<double>((due_ - now).count()) * factor;
  due_ = now + Duration(static_cast<int64_t>(left));
}

}  // namespace tenuto
