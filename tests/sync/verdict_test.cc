// Who straggles, and why.
#include "sync/verdict.h"

#include <gtest/gtest.h>

#include "ir/golden.h"

namespace tenuto {
namespace {

IterationSample sample(double compute, double transfer) {
  IterationSample of;
  of.compute = of.cpu = from_milliseconds(compute);
  of.send = of.receive = from_milliseconds(transfer / 2);
  return of;
}

TEST(Stragglers, BeginAboveTwentyPercent) {
  EXPECT_TRUE(find_stragglers({}).empty());
  std::vector<IterationSample> samples = {sample(80, 20), sample(100, 20)};
  EXPECT_TRUE(find_stragglers(samples).empty()) << "1.2 times is not above it";
  samples[1] = sample(100.1, 20);
  ASSERT_EQ(find_stragglers(samples).size(), 1u);
  EXPECT_EQ(find_stragglers(samples)[0].replica, ReplicaId{1});
}

TEST(Stragglers, CauseIsWhatAddsMost) {
  std::vector<IterationSample> samples = {sample(80, 20), sample(80, 80), sample(160, 20),
                                          sample(160, 20), sample(160, 20)};
  samples[3].run_delay = from_milliseconds(50);
  samples[4].cpu = from_milliseconds(90);  // no run delay is known here
  samples[4].pressure = kPressure;
  const auto verdicts = find_stragglers(samples);
  ASSERT_EQ(verdicts.size(), 4u);
  EXPECT_EQ(verdicts[0].cause, StragglerCause::Link);
  EXPECT_EQ(verdicts[1].cause, StragglerCause::Device);
  EXPECT_EQ(verdicts[2].cause, StragglerCause::Cpu);
  EXPECT_EQ(verdicts[3].cause, StragglerCause::Cpu);
  EXPECT_EQ(verdicts[0].sentence,
            "replica 1 takes 1.60 times as long as the fastest one: its link is slow, transfers "
            "take 80.0 ms instead of 20.0 ms");
  samples[4].pressure = kPressure / 2;
  EXPECT_EQ(find_stragglers(samples)[3].cause, StragglerCause::Device) << "one sign alone";
}

// A replica that computes half a share in half the time does not straggle.
TEST(Stragglers, AreJudgedByWholeShares) {
  std::vector<IterationSample> samples = {sample(80, 20), sample(40, 20)};
  samples[1].share = 0.5;
  EXPECT_TRUE(find_stragglers(samples).empty());
}

// Recorded causes are found again: a hog is the CPU, a slow link the link.
TEST(Stragglers, ReportOfARecording) {
  const Recording recording =
      record_scenario(*find_sync_scenario("mixed"), {{2, 0.1, 0.1, 3}}, 400, 5);
  expect_golden("sync/golden/stragglers.txt", straggle_report(recording));
  const auto counts = count_stragglers(recording).replicas;
  const auto of = [&](size_t replica, StragglerCause cause) {
    return counts[replica].by_cause[static_cast<size_t>(cause)];
  };
  EXPECT_EQ(of(0, StragglerCause::Device), 400) << "computes 1.6 times longer";
  EXPECT_EQ(of(5, StragglerCause::Link), 400) << "its transfers are 5 times longer";
  int64_t taken = 0;
  for (const IterationSample& one : recording.replicas[2]) taken += one.run_delay.count() > 0;
  EXPECT_EQ(of(2, StragglerCause::Cpu), taken);
}

}  // namespace
}  // namespace tenuto
