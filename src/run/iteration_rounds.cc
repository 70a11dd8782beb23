#include "run/iteration_rounds.h"

#include <algorithm>

namespace tenuto {

IterationSample sample_of(const servers::MeasuredIteration& iteration) {
  const auto cut = [](Duration time) {
    return std::clamp(time, Duration{}, Duration(kMostRecordedNanoseconds));
  };
  IterationSample sample;
  sample.compute = cut(iteration.time.compute);
  sample.receive = cut(iteration.receive);
  sample.send = cut(cut(iteration.time.transfer) - sample.receive);
  sample.run_delay = cut(iteration.processor.run_delay);
  sample.cpu = cut(iteration.processor.cpu);
  // What is no number is below both.
  const double pressure = iteration.processor.pressure;
  sample.pressure = pressure >= 0 ? std::min(pressure, 1.0) : 0;
  const double share = iteration.share;
  sample.share =
      share >= kLeastRecordedShare ? std::min(share, kMostRecordedShare) : kLeastRecordedShare;
  return sample;
}

void IterationRounds::add(ReplicaId replica, const IterationSample& sample) {
  if (replica.value < 0 || replica.value >= std::ssize(waiting_)) return;
  std::deque<IterationSample>& own = waiting_[static_cast<size_t>(replica.value)];
  if (own.size() < kMostAhead) own.push_back(sample);
}

std::optional<std::vector<IterationSample>> IterationRounds::take() {
  const bool is_whole =
      std::none_of(waiting_.begin(), waiting_.end(), [](const auto& own) { return own.empty(); });
  if (!is_whole || waiting_.empty()) return std::nullopt;
  std::vector<IterationSample> round;
  for (std::deque<IterationSample>& own : waiting_) {
    round.push_back(own.front());
    own.pop_front();
  }
  return round;
}

}  // namespace tenuto
