// Losses that rise, and losses that only vary.
#include "sync/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Four replicas: a block has 16 iterations.
class LossWatchTest : public testing::Test {
 protected:
  // Adds so many blocks with this mean; their losses are alternately above and below it.
  void add_blocks(int count, double mean, double spread = 0.25) {
    for (int i = 0; i < count * 16; ++i) add(1, mean + (i % 2 == 0 ? spread : -spread));
  }
  void add(double gradients, double loss) {
    if (const auto rise = watch.add(gradients, loss)) rises.push_back(*rise);
  }

  LossWatch watch{4};
  std::vector<LossRise> rises;
};

TEST_F(LossWatchTest, BlocksHaveFourRoundsOfTheReplicas) {
  EXPECT_EQ(LossWatch(1).block_gradients(), 16);
  EXPECT_EQ(LossWatch(4).block_gradients(), 16);
  EXPECT_EQ(LossWatch(8).block_gradients(), 32);
}

TEST_F(LossWatchTest, ALossThatFallsDoesNotRise) {
  for (int i = 0; i < 50; ++i) add_blocks(1, 2 + 3 * std::exp(-0.1 * i));
  EXPECT_TRUE(rises.empty());
  EXPECT_EQ(watch.caution(), 1);
}

TEST_F(LossWatchTest, LuckIsNoRise) {
  Random random(5);
  for (int i = 0; i < 16'000; ++i) add(1, 0.5 + random.uniform());
  EXPECT_TRUE(rises.empty());
}

TEST_F(LossWatchTest, TheSecondBlockOfARiseIsNoticed) {
  add_blocks(8, 1);
  add_blocks(1, 1.5);
  EXPECT_TRUE(rises.empty());
  for (int i = 0; i < 15; ++i) add(1, 1.5);
  EXPECT_TRUE(rises.empty());
  add(1, 1.5);
  ASSERT_EQ(rises.size(), 1u);
  EXPECT_DOUBLE_EQ(rises[0].from, 1);
  EXPECT_DOUBLE_EQ(rises[0].to, 1.5);
  EXPECT_EQ(rises[0].gradients, 32);
  EXPECT_EQ(rises[0].caution, 2);
  EXPECT_DOUBLE_EQ(rises[0].until, 1);
  EXPECT_EQ(watch.caution(), 2);
}

TEST_F(LossWatchTest, OneBlockAloneIsNoRise) {
  for (int i = 0; i < 5; ++i) {
    add_blocks(8, 1);
    add_blocks(1, 1.5);
  }
  EXPECT_TRUE(rises.empty());
}

// The standard deviation of a block's mean is 0.25 / sqrt(15), and that of the difference to eight
// others is sqrt(9 / 8) times as much: 0.068.
TEST_F(LossWatchTest, ARiseIsMoreThanThreeDeviations) {
  add_blocks(8, 1);
  add_blocks(2, 1.18);
  EXPECT_TRUE(rises.empty());
  watch = LossWatch(4);
  add_blocks(8, 1);
  add_blocks(2, 1.25);
  EXPECT_EQ(rises.size(), 1u);
}

TEST_F(LossWatchTest, AShareOfAHundredthIsNoRise) {
  add_blocks(8, 1, 0);
  add_blocks(8, 1.008, 0);
  EXPECT_TRUE(rises.empty());
  add_blocks(2, 1.02, 0);
  EXPECT_EQ(rises.size(), 1u);
}

TEST_F(LossWatchTest, ALossThatStaysHighIsReportedOnce) {
  add_blocks(8, 1);
  add_blocks(30, 1.5);
  EXPECT_EQ(rises.size(), 1u);
  EXPECT_EQ(watch.caution(), 2);
  add_blocks(1, 1.1);
  EXPECT_EQ(watch.caution(), 2) << "it is not down yet";
  add_blocks(1, 0.9);
  EXPECT_EQ(watch.caution(), 1);
}

TEST_F(LossWatchTest, EachFurtherRiseDoublesTheCaution) {
  add_blocks(8, 1);
  const std::vector<double> cautions = {2, 4, 8, 8};
  for (size_t i = 0; i < cautions.size(); ++i) {
    add_blocks(6, 2 + static_cast<double>(i));
    ASSERT_EQ(rises.size(), i + 1);
    EXPECT_EQ(rises[i].caution, cautions[i]);
    EXPECT_DOUBLE_EQ(rises[i].from, 1 + static_cast<double>(i));
    EXPECT_DOUBLE_EQ(rises[i].until, 1);
  }
  add_blocks(1, 0.9);
  EXPECT_EQ(watch.caution(), 1);
}

TEST_F(LossWatchTest, ALossThatIsNotFiniteNeedsNoSecondBlock) {
  for (int i = 0; i < 3; ++i) add(1, 2);
  for (int i = 0; i < 15; ++i) add(1, std::nan(""));
  EXPECT_TRUE(rises.empty());
  add(1, kInfinity);
  ASSERT_EQ(rises.size(), 1u);
  EXPECT_EQ(rises[0].from, 2);
  EXPECT_EQ(rises[0].to, kInfinity);
  EXPECT_EQ(rises[0].gradients, 16);
  for (int i = 0; i < 160; ++i) add(1, std::nan(""));
  EXPECT_EQ(rises.size(), 1u);
  EXPECT_EQ(watch.caution(), 2);
}

TEST_F(LossWatchTest, WithoutAnyFiniteLossNothingRises) {
  for (int i = 0; i < 160; ++i) add(1, std::nan(""));
  EXPECT_TRUE(rises.empty());
}

TEST_F(LossWatchTest, IterationsCountByMass) {
  add_blocks(8, 1);
  for (int i = 0; i < 63; ++i) add(0.5, 1.5);
  EXPECT_TRUE(rises.empty());
  add(0.5, 1.5);
  EXPECT_EQ(rises.size(), 1u);
}

TEST(LossRise, IsASentence) {
  LossRise rise;
  rise.from = 1.92;
  rise.to = 2.232;
  rise.gradients = 64;
  rise.caution = 2;
  rise.until = 1.9;
  LossMoment moment;
  moment.age = 3;
  moment.rate = 0.004;
  moment.mode = "asynchronous";
  EXPECT_EQ(
      to_text(rise, moment),
      "the loss has risen by 0.3120 from 1.9200 within 64 gradients of age 3.00: the learning "
      "rate 0.004 is too high for sync mode asynchronous; lower optimizer.learning_rate, or "
      "choose a mode with younger gradients");
  moment.is_chosen = true;
  rise.to = kInfinity;
  EXPECT_EQ(
      to_text(rise, moment),
      "the loss was 1.9200, and is not finite within 64 gradients of age 3.00: the learning "
      "rate 0.004 is too high for sync mode asynchronous; kappa counts 2 times until the loss "
      "is 1.9000 again");
}

}  // namespace
}  // namespace tenuto
