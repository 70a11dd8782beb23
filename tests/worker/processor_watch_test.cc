// When a worker asks the kernel for its processors' use, and what it makes of the answers.
#include "worker/processor_watch.h"

#include <gtest/gtest.h>

namespace tenuto {
namespace {

using std::chrono::milliseconds;

// A watch on a clock that the test turns. Per millisecond: 600 us of processor time, a thread that
// waits 300 us and one that waits 100 us, and pressure of 40 %.
struct Watched {
  // A step of `lasts` begins after `pause`.
  std::optional<ProcessorSample> step(Duration lasts, Duration pause = Duration::zero()) {
    now += pause;
    watch.begin(now);
    now += lasts;
    return watch.end(now);
  }
  ProcessorUse look() {
    ++looks;
    ProcessorUse use;
    use.at = now;
    use.cpu = now * 6 / 10;
    use.run_delay = {{1, now / 10}, {2, now * 3 / 10}};
    use.pressure = now * 4 / 10;
    use.run_delay_is = use.pressure_is = figure;
    return use;
  }

  Duration now = std::chrono::hours(1);
  int looks = 0;
  Figure figure = Figure::Known;
  ProcessorWatch watch{[this] { return look(); }};
};

TEST(ProcessorWatch, TellsOfEachLongStep) {
  Watched watched;
  for (int i = 0; i < 3; ++i) {
    const auto sample = watched.step(milliseconds(100));
    ASSERT_TRUE(sample);
    EXPECT_EQ(*sample, (ProcessorSample{.steps = 1,
                                        .step = milliseconds(100),
                                        .cpu = milliseconds(60),
                                        .run_delay = milliseconds(30),
                                        .pressure = 0.4,
                                        .run_delay_is = Figure::Known,
                                        .pressure_is = Figure::Known}));
  }
  EXPECT_EQ(watched.looks, 4) << "once a step, and before the first one";
}

// A look at the last op of each step spares the one at its end.
TEST(ProcessorWatch, LooksAheadOfTheEnd) {
  Watched watched;
  for (int i = 0; i < 4; ++i) {
    watched.watch.begin(watched.now);
    watched.now += milliseconds(90);
    watched.watch.look_ahead(watched.now);
    watched.now += milliseconds(10);
    const auto sample = watched.watch.end(watched.now);
    ASSERT_TRUE(sample);
    EXPECT_EQ(sample->step, milliseconds(100));
    EXPECT_EQ(sample->run_delay, milliseconds(30)) << "of a step, though the first look came early";
  }
  EXPECT_EQ(watched.looks, 5);
  // A look that was too soon does not count, and one of a step that did not end does not either.
  watched.watch.begin(watched.now);
  watched.watch.look_ahead(watched.now + milliseconds(10));
  watched.now += milliseconds(45);
  watched.watch.look_ahead(watched.now);
  watched.watch.begin(watched.now);
  watched.now += milliseconds(60);
  EXPECT_EQ(watched.watch.end(watched.now)->cpu, milliseconds(36));
  EXPECT_EQ(watched.looks, 7) << "the last one at the end";
}

TEST(ProcessorWatch, TellsOfSeveralShortStepsAtOnce) {
  Watched watched;
  for (int i = 1; i <= 20; ++i) {
    const auto sample = watched.step(milliseconds(6));
    ASSERT_EQ(sample.has_value(), i % 9 == 0) << i;  // after 54 ms
    if (!sample) continue;
    EXPECT_EQ(sample->steps, 9);
    EXPECT_EQ(sample->step, milliseconds(6));
    EXPECT_EQ(sample->run_delay, Duration(1'800'000)) << "of one step";
  }
  EXPECT_EQ(watched.looks, 3);
}

// A pause between two steps is not counted, as when a checkpoint is written; short ones are.
TEST(ProcessorWatch, LeavesOutPauses) {
  Watched watched;
  watched.step(milliseconds(6));
  EXPECT_FALSE(watched.step(milliseconds(49), milliseconds(50)));
  EXPECT_EQ(watched.looks, 2);
  const auto sample = watched.step(milliseconds(49), milliseconds(2));
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->steps, 2);
  EXPECT_EQ(sample->run_delay, Duration(14'700'000));
}

TEST(ProcessorWatch, PassesOnWhatIsNotKnown) {
  Watched watched;
  watched.figure = Figure::NotThere;
  watched.step(milliseconds(100));
  watched.figure = Figure::Known;
  // The look before this step knew nothing to compare with.
  const auto mixed = watched.step(milliseconds(100));
  ASSERT_TRUE(mixed);
  EXPECT_EQ(mixed->run_delay_is, Figure::NotThere);
  EXPECT_EQ(mixed->pressure_is, Figure::NotThere);
  EXPECT_EQ(mixed->run_delay, Duration::zero());
  EXPECT_EQ(mixed->cpu, milliseconds(60));
  EXPECT_EQ(watched.step(milliseconds(100))->run_delay_is, Figure::Known);
}

// Threads begin and end between two looks.
TEST(ProcessorWatch, ThreadsThatBeginAndEnd) {
  ProcessorUse before, after;
  before.run_delay_is = after.run_delay_is = Figure::Known;
  before.run_delay = {{1, milliseconds(500)}, {2, milliseconds(10)}, {3, milliseconds(7)}};
  after.run_delay = {{2, milliseconds(30)}, {3, milliseconds(2)}, {4, milliseconds(15)}};
  after.at = before.at + milliseconds(100);
  EXPECT_EQ(processor_sample(before, after, 1, milliseconds(100)).run_delay, milliseconds(20));
  after.run_delay.erase(2);
  EXPECT_EQ(processor_sample(before, after, 1, milliseconds(100)).run_delay, milliseconds(15));
  EXPECT_EQ(processor_sample(before, before, 1, milliseconds(100)).run_delay, Duration::zero());
}

}  // namespace
}  // namespace tenuto
