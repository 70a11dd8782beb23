// Recordings of iterations: drawn, written, and read back.
#include "sync/predict_record.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace tenuto {
namespace {

TEST(Recording, IsReadBackAsItWas) {
  for (const SyncScenario& scenario : sync_scenarios()) {
    const Recording recording = record_scenario(scenario, {{0, 0.2, 0.2, 3}}, 30, 7);
    const auto read = recording_from_text(to_text(recording), "text");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read.value(), recording);
  }
}

// A hog adds run delay to compute, and nothing to the CPU time.
TEST(Recording, HogsTakeTheCpu) {
  const Recording recording =
      record_scenario(*find_sync_scenario("none"), {{2, 0.1, 0.1, 3}}, 500, 1);
  int64_t taken = 0;
  for (const IterationSample& of : recording.replicas[2]) {
    EXPECT_EQ(of.compute, of.cpu + of.run_delay);
    EXPECT_EQ(of.pressure > 0, of.run_delay.count() > 0);
    taken += of.pressure > 0;
  }
  EXPECT_GT(taken, 100);
  EXPECT_LT(taken, 400);
  for (const IterationSample& of : recording.replicas[3]) EXPECT_EQ(of.run_delay.count(), 0);
}

TEST(Recording, AWholeShareIsCounted) {
  const IterationSample half{Duration(40), Duration(5), Duration(7), {}, {}, 0, 0.5};
  EXPECT_EQ(time_of(half).compute, Duration(80));
  EXPECT_EQ(whole_time(half), Duration(92));
}

TEST(Recording, RefusesBadText) {
  const auto refused = [](const std::string& text, const std::string& sentence) {
    const auto read = recording_from_text(text, "f");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().message, sentence);
  };
  const std::string head = "samples a replicas 2\n", good = " 1 2 3 4 5 0.5 1\n";
  refused("", "f: expected 'samples NAME replicas W', found nothing");
  refused("hello", "f:1:1: expected 'samples NAME replicas W', found 'hello'");
  refused("samples a replicas 4097\n", "f:1:20: expected 1 to 4096 replicas, found '4097'");
  refused(head, "f: expected 1 samples of replica 0, found 0");
  refused(head + "0" + good, "f: expected 1 samples of replica 1, found 0");
  refused(head + "2" + good, "f:2:1: expected a replica from 0 to 1, found '2'");
  refused(head + "0 1 2 3\n", "f:2:1: expected a replica and seven numbers, found 4 words");
  refused(head + "0 1.5 2 3 4 5 0.5 1\n",
          "f:2:3: expected a whole number of nanoseconds from 0 to 10000000000000, found '1.5'");
  refused(head + "0 1 2 3 4 10000000000001 0.5 1\n",
          "f:2:11: expected a whole number of nanoseconds from 0 to 10000000000000, found "
          "'10000000000001'");
  refused(head + "0 1 2 3 4 5 1.5 1\n", "f:2:13: expected a pressure from 0 to 1, found '1.5'");
  refused(head + "0 1 2 3 4 5 0.5 0\n", "f:2:17: expected a share from 0.01 to 100, found '0'");
  refused(head + "0 1 2 3 4 5 0.5 101\n", "f:2:17: expected a share from 0.01 to 100, found '101'");
  const std::string most = "samples a replicas 1\n0 10000000000000 0 0 0 0 1 ";
  EXPECT_TRUE(recording_from_text(most + "0.01\n", "f").ok());
  EXPECT_TRUE(recording_from_text(most + "100\n", "f").ok());
  std::string many = head;
  for (int64_t i = 0; i <= kMostRecordedSamples; ++i) many += "0\n";
  refused(many, "f: expected at most 1000000 samples, found 1000001");
}

}  // namespace
}  // namespace tenuto
