// Synthetic steps for the tests of detection, built message by message.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "monitor/monitor.h"

namespace tenuto {

// Standard normal numbers.
double normal(Random& random);

// The messages between two workers in one step, both ways.
struct Traffic {
  WorkerId first{0}, second{1};
  Duration offset{};                  // second's clock minus first's
  int32_t messages = 24;              // each way
  std::vector<Duration> forth, back;  // delays, one a message
  Bytes size{1 << 20};
  // Adds the events that both ends record in `step`.
  void note(int64_t step, std::vector<Event>& events) const;
};

// How the delays of a series vary.
enum class Trouble {
  Steady,      // 1 % jitter
  Jitter,      // log-normal, 10 % a message
  StepJitter,  // log-normal, 10 % a step: the same for all messages of a step
  Spikes,      // single steps and single messages 2 to 20 times as slow
  Drift,       // up or down, 10 % at the end
  StepForth,   // 15 to 400 % of the round trip, one way
  StepBack,
  StepBoth,
  StepNoisy,  // like StepBoth, with 10 % jitter a message and spikes
  Heal,       // like StepBoth, later back to the old delay
};

// One seeded series: a connection at either end of a pipeline of eight.
class Series {
 public:
  Series(Trouble trouble, uint64_t seed);
  // The samples of the next step, of both ends.
  std::vector<StepSample> next();
  // The first slow step; -1 = none.
  int64_t changed() const { return changed_; }
  // The first step that is fast again; -1 = none.
  int64_t healed() const { return healed_; }
  // Number of steps.
  static constexpr int64_t kSteps = 90;

 private:
  double delay(bool forth, double of_step, double spike);

  Trouble trouble_;
  Random random_;
  Traffic traffic_;
  double forth_ = 0, back_ = 0;            // ns, one way
  double more_forth_ = 0, more_back_ = 0;  // when slow
  double jitter_ = 0.02, slope_ = 0;
  int64_t changed_ = -1, healed_ = -1, step_ = 0, last_spike_ = -10;
};

}  // namespace tenuto
