// Scenarios: who is slow when.
#include "sync/scenario.h"

#include <gtest/gtest.h>

namespace tenuto {
namespace {

using std::chrono::seconds;

// Replica 0 is slower by this factor.
SlowPhase slow_phase(std::optional<Duration> length, double factor) {
  SlowPhase phase;
  phase.length = length;
  phase.slow.push_back({0, factor, 1});
  return phase;
}

// Iterations of 1 s without jitter.
SyncScenario scenario_of(const std::vector<SlowPhase>& phases) {
  SyncScenario scenario;
  scenario.replicas = 2;
  scenario.base = {seconds(1), Duration{}};
  scenario.compute_jitter = scenario.transfer_jitter = 0;
  scenario.phases = phases;
  return scenario;
}

// Seconds of replica 0's iteration that begins at each of these moments.
std::vector<double> seconds_at(const std::vector<SlowPhase>& phases,
                               const std::vector<Duration>& moments) {
  const IterationTimes times = times_of(scenario_of(phases), 1);
  std::vector<double> found;
  for (const Duration moment : moments) {
    found.push_back(to_milliseconds(times(0, 0, moment).compute) / 1000);
    EXPECT_EQ(times(1, 0, moment).compute, seconds(1));
  }
  return found;
}

constexpr Duration kInstant{1};

TEST(SyncScenario, PhasesRepeat) {
  EXPECT_EQ(seconds_at({}, {seconds(0), seconds(7)}), (std::vector<double>{1, 1}));
  EXPECT_EQ(seconds_at({slow_phase(seconds(2), 2), slow_phase(seconds(1), 3)},
                       {seconds(0), seconds(2) - kInstant, seconds(2), seconds(3) - kInstant,
                        seconds(3), seconds(5)}),
            (std::vector<double>{2, 2, 3, 3, 2, 3}));
}

// Wherever it stands among the phases.
TEST(SyncScenario, APhaseOfLengthZeroIsSkipped) {
  const SlowPhase none = slow_phase(Duration{}, 7);
  const std::vector<Duration> moments = {seconds(0), seconds(2), seconds(3), seconds(5)};
  const std::vector<double> expected = {2, 3, 2, 3};
  const SlowPhase first = slow_phase(seconds(2), 2);
  const SlowPhase second = slow_phase(seconds(1), 3);
  EXPECT_EQ(seconds_at({none, first, second}, moments), expected);
  EXPECT_EQ(seconds_at({first, none, none, second}, moments), expected);
  EXPECT_EQ(seconds_at({first, second, none}, moments), expected);
  EXPECT_EQ(seconds_at({none, slow_phase(std::nullopt, 4)}, {seconds(0), seconds(9)}),
            (std::vector<double>{4, 4}));
}

TEST(SyncScenario, APhaseMayLastForEver) {
  EXPECT_EQ(seconds_at({slow_phase(std::nullopt, 3)}, {seconds(0), seconds(9)}),
            (std::vector<double>{3, 3}));
  EXPECT_EQ(seconds_at(
                {slow_phase(seconds(2), 2), slow_phase(std::nullopt, 3), slow_phase(seconds(1), 4)},
                {seconds(0), seconds(2) - kInstant, seconds(2), seconds(1000)}),
            (std::vector<double>{2, 2, 3, 3}));
}

TEST(SyncScenario, PhasesThatAreAllSkippedAreWrong) {
  const SlowPhase none = slow_phase(Duration{}, 2);
  EXPECT_TRUE(has_right_phases(scenario_of({})));
  EXPECT_TRUE(has_right_phases(scenario_of({none, slow_phase(seconds(1), 2)})));
  EXPECT_TRUE(has_right_phases(scenario_of({none, slow_phase(std::nullopt, 2)})));
  EXPECT_FALSE(has_right_phases(scenario_of({none})));
  EXPECT_FALSE(has_right_phases(scenario_of({none, none})));
  EXPECT_FALSE(
      has_right_phases(scenario_of({slow_phase(seconds(3), 2), slow_phase(seconds(-1), 2)})));
  for (const SyncScenario& scenario : sync_scenarios()) {
    EXPECT_TRUE(has_right_phases(scenario)) << scenario.name;
  }
}

}  // namespace
}  // namespace tenuto
