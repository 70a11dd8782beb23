#include "monitor/series.h"

#include <cmath>
#include <numbers>

namespace tenuto {

double normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

void Traffic::note(int64_t step, std::vector<Event>& events) const {
  const auto add = [&](WorkerId from, WorkerId to, ValueKind moved,
                       const std::vector<Duration>& delays, Duration ahead) {
    for (size_t i = 0; i < delays.size(); ++i) {
      Event event;
      event.worker = to;
      event.step = step;
      event.op.kind = OpKind::Recv;
      event.op.moved = moved;
      event.op.micro = {static_cast<int32_t>(i)};
      event.op.peer = from;
      event.sent = std::chrono::seconds(1000 + step) + std::chrono::milliseconds(i);
      event.finish = event.sent + delays[i] + ahead;
      event.start = event.finish;
      event.moved = size;
      events.push_back(event);
    }
  };
  add(first, second, ValueKind::Activation, forth, offset);
  add(second, first, ValueKind::Gradient, back, -offset);
}

Series::Series(Trouble trouble, uint64_t seed)
    : trouble_(trouble), random_(mix(seed, static_cast<uint64_t>(trouble))) {
  const int32_t first = seed % 2 == 0 ? 0 : 6;
  traffic_.first = {first};
  traffic_.second = {first + 1};
  traffic_.offset = Duration(random_.below(int64_t{2} << 50) - (int64_t{1} << 50));
  forth_ = 0.3e6 * std::pow(100, random_.uniform());  // 0.3 to 30 ms
  back_ = forth_ * (0.5 + random_.uniform());
  const double gain = (forth_ + back_) * 0.15 * std::pow(27, random_.uniform());
  const bool heals = trouble == Trouble::Heal;
  const bool both = trouble == Trouble::StepBoth || trouble == Trouble::StepNoisy || heals;
  if (both || trouble == Trouble::StepForth || trouble == Trouble::StepBack) {
    changed_ = 12 + random_.below(40);
    const double share = both ? random_.uniform() : trouble == Trouble::StepForth ? 1 : 0;
    more_forth_ = gain * share;
    more_back_ = gain * (1 - share);
  }
  if (heals) healed_ = changed_ + 8 + random_.below(25);
  if (trouble == Trouble::Steady) jitter_ = 0.01;
  if (trouble == Trouble::Jitter || trouble == Trouble::StepNoisy) jitter_ = 0.1;
  if (trouble == Trouble::Drift) slope_ = (random_.below(2) == 0 ? 0.1 : -0.1) / kSteps;
}

double Series::delay(bool forth, double of_step, double spike) {
  const bool slow = changed_ >= 0 && step_ >= changed_ && (healed_ < 0 || step_ < healed_);
  double much = forth ? forth_ : back_;
  if (slow) much += forth ? more_forth_ : more_back_;
  much *= (1 + slope_ * static_cast<double>(step_)) * of_step * spike;
  return much * std::exp(jitter_ * normal(random_));
}

std::vector<StepSample> Series::next() {
  const bool spikes = trouble_ == Trouble::Spikes || trouble_ == Trouble::StepNoisy;
  const double of_step = trouble_ == Trouble::StepJitter ? std::exp(0.1 * normal(random_)) : 1;
  double spike = 1;
  // A spike lasts one step. There is none in the first steps of a change, or soon after another.
  const bool fresh = changed_ >= 0 && step_ >= changed_ && step_ < changed_ + 3;
  if (spikes && !fresh && step_ - last_spike_ > 3 && random_.uniform() < 0.08) {
    spike = 2 * std::pow(10, random_.uniform());
    last_spike_ = step_;
  }
  for (auto* delays : {&traffic_.forth, &traffic_.back}) {
    delays->clear();
    for (int32_t i = 0; i < traffic_.messages; ++i) {
      const double single = spikes && random_.uniform() < 0.03 ? 10 : 1;
      const double nanoseconds = delay(delays == &traffic_.forth, of_step, spike * single);
      delays->emplace_back(static_cast<int64_t>(nanoseconds));
    }
  }
  std::vector<Event> events;
  traffic_.note(step_++, events);
  return make_samples(events);
}

}  // namespace tenuto
