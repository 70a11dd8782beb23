// The iterations of a run as rounds, and as a file that the tools for recordings read.
#include "run/iteration_rounds.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "run/iteration_file.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

IterationSample sample(int64_t compute) {
  IterationSample one;
  one.compute = milliseconds(compute);
  return one;
}

TEST(IterationRounds, AnIterationBecomesASample) {
  servers::MeasuredIteration iteration{{1}, {milliseconds(30), milliseconds(7)}, 0.5};
  iteration.receive = milliseconds(3);
  iteration.processor = {milliseconds(4), milliseconds(25), 0.25};
  const IterationSample found = sample_of(iteration);
  EXPECT_EQ(found.compute, milliseconds(30));
  EXPECT_EQ(found.send, milliseconds(4));
  EXPECT_EQ(found.receive, milliseconds(3));
  EXPECT_EQ(found.run_delay, milliseconds(4));
  EXPECT_EQ(found.cpu, milliseconds(25));
  EXPECT_EQ(found.pressure, 0.25);
  EXPECT_EQ(found.share, 0.5);
}

// Whatever a process says, the recording can be read.
TEST(IterationRounds, WhatNoRecordingMayHaveIsCut) {
  servers::MeasuredIteration iteration{{0}, {milliseconds(-1), milliseconds(2)}, 0};
  iteration.receive = milliseconds(5);
  iteration.processor = {Duration::max(), milliseconds(-3), 1.5};
  IterationSample found = sample_of(iteration);
  EXPECT_EQ(found.compute, Duration{});
  EXPECT_EQ(found.send, Duration{});
  EXPECT_EQ(found.run_delay, Duration(kMostRecordedNanoseconds));
  EXPECT_EQ(found.cpu, Duration{});
  EXPECT_EQ(found.pressure, 1);
  EXPECT_EQ(found.share, kLeastRecordedShare);
  iteration.share = 1e9;
  iteration.processor.pressure = std::numeric_limits<double>::quiet_NaN();
  found = sample_of(iteration);
  EXPECT_EQ(found.pressure, 0);
  EXPECT_EQ(found.share, kMostRecordedShare);
}

TEST(IterationRounds, ARoundHasTheSameIterationOfEachReplica) {
  IterationRounds rounds(2);
  EXPECT_FALSE(rounds.take().has_value());
  rounds.add({1}, sample(10));
  rounds.add({1}, sample(11));
  EXPECT_FALSE(rounds.take().has_value()) << "the other one is slower";
  rounds.add({0}, sample(20));
  const auto first = rounds.take();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(*first, (std::vector<IterationSample>{sample(20), sample(10)}));
  EXPECT_FALSE(rounds.take().has_value());
  rounds.add({0}, sample(21));
  const auto second = rounds.take();
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(*second, (std::vector<IterationSample>{sample(21), sample(11)}));
  for (const int32_t stranger : {-1, 2}) rounds.add({stranger}, sample(1));
  EXPECT_FALSE(rounds.take().has_value());
}

TEST(IterationRounds, AReplicaThatIsFarAheadWaits) {
  IterationRounds rounds(2);
  constexpr auto kMost = static_cast<int64_t>(IterationRounds::kMostAhead);
  for (int64_t i = 0; i < kMost + 3; ++i) rounds.add({0}, sample(i));
  int64_t count = 0;
  for (int64_t i = 0; i < kMost + 3; ++i) {
    rounds.add({1}, sample(i));
    const auto round = rounds.take();
    if (!round) continue;
    EXPECT_EQ(round->front(), sample(i));
    ++count;
  }
  EXPECT_EQ(count, kMost);
}

// ---- the file --------------------------------------------------------------------------------

class IterationFileTest : public testing::Test {
 protected:
  IterationFileTest() { std::filesystem::remove(path_); }
  ~IterationFileTest() override { std::filesystem::remove(path_); }

  void write(int64_t most_samples, const std::vector<std::vector<IterationSample>>& rounds) {
    auto file = IterationFile::open(path_, 2, most_samples);
    ASSERT_TRUE(file.ok()) << file.error().message;
    for (const std::vector<IterationSample>& round : rounds) {
      const Status written = file.value().write(round);
      ASSERT_TRUE(written.ok()) << written.error().message;
    }
  }
  // The samples of each replica.
  std::vector<std::vector<IterationSample>> read() {
    const auto text = read_file(path_);
    EXPECT_TRUE(text.ok());
    const auto recording = recording_from_text(text.value(), path_);
    EXPECT_TRUE(recording.ok()) << (recording.ok() ? "" : recording.error().message);
    if (!recording.ok()) return {};
    EXPECT_EQ(recording.value().name, "run");
    return recording.value().replicas;
  }

  const std::string path_ = cat(testing::TempDir(), "tenuto-iterations-", getpid(), ".txt");
};

TEST_F(IterationFileTest, ItIsARecordingThatARunGoesOnWith) {
  IterationSample busy = sample(12);
  busy.run_delay = milliseconds(3);
  busy.pressure = 0.5;
  busy.share = 0.75;
  write(100, {{sample(10), busy}});
  write(100, {{sample(20), sample(21)}});
  const std::vector<std::vector<IterationSample>> expected = {{sample(10), sample(20)},
                                                              {busy, sample(21)}};
  EXPECT_EQ(read(), expected);
}

TEST_F(IterationFileTest, ItHasALimitedNumberOfSamples) {
  write(5, {{sample(1), sample(2)}, {sample(3), sample(4)}, {sample(5), sample(6)}});
  write(5, {{sample(7), sample(8)}});
  const std::vector<std::vector<IterationSample>> expected = {{sample(1), sample(3)},
                                                              {sample(2), sample(4)}};
  EXPECT_EQ(read(), expected);
}

}  // namespace
}  // namespace tenuto
