// What a learned chooser is made of: estimates, ridge regression, and the chooser file.
#include "sync/chooser_model.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/text.h"
#include "ir/golden.h"
#include "sync/estimate.h"
#include "sync/formed.h"
#include "sync/ridge.h"
#include "sync/scenario.h"

namespace tenuto {
namespace {

// One iteration of each replica: 80 % compute, 20 % transfer.
ChooseInput input_of(const std::vector<double>& ms, double apply_ms) {
  ChooseInput input;
  for (const double time : ms) {
    input.samples.push_back({{from_milliseconds(time * 0.8), from_milliseconds(time * 0.2)}});
  }
  input.apply = from_milliseconds(apply_ms);
  input.micros = 16;
  return input;
}

SyncMode mode_of(const std::string& text) { return sync_mode_from_text(text).value(); }

// Three replicas take 100 ms and one 350 ms, which is four rounds of the others.
TEST(Estimate, ByHand) {
  const RecentRounds rounds(input_of({100, 100, 100, 350}, 0));
  struct Case {
    const char* mode;
    double gradients, updates, age;
  };
  const std::vector<Case> cases = {
      {"synchronous", 4 / 0.35, 1 / 0.35, 1.5},
      {"asynchronous", 30 + 1 / 0.35, 30 + 1 / 0.35, 3},
      {"bounded:2", 4 / 0.35, 4 / 0.35, 3},
      {"x:3", 30 + 1 / 0.35, (30 + 1 / 0.35) / 3, 2},
      // 3 + 1 / 4 gradients a round; the late one is three rounds late.
      {"ring:3:0,1,2,0", 32.5, 10, 2.25 / 2 + 0.75},
      {"grace:3:12ms", 3.25 / 0.112, 1 / 0.112, 2.25 / 2 + 0.75},
      // Half of the late gradients are dropped.
      {"backup:3", 31.25, 10, 2.125 / 2 + 0.375},
      // The group of three has the rate 30 and (3 + 1) / 2 gradients of its own.
      {"groups:0,1,2/3", 30 + 1 / 0.35, 10 + 1 / 0.35, 4 - (60 + 1 / 0.35) / (30 + 1 / 0.35)},
      // The slow one computes 10 of 16 micro-batches: 280 x 10 / 16 + 70 ms.
      {"rebalanced:18,18,18,10", 4 / 0.245, 1 / 0.245, 1.5},
  };
  for (const Case& of : cases) {
    const SyncEstimate made = rounds.estimate(mode_of(of.mode));
    EXPECT_NEAR(made.gradients, of.gradients, 1e-6) << of.mode;
    EXPECT_NEAR(made.updates, of.updates, 1e-6) << of.mode;
    EXPECT_NEAR(made.age, of.age, 1e-6) << of.mode;
    EXPECT_EQ(made.demand, 0) << of.mode;
  }
}

// Applying an update prolongs each iteration, and a server never applies more than it can.
TEST(Estimate, ServerIsNotOverloaded) {
  const std::vector<double> ms = {100, 100, 100, 350};
  const SyncEstimate busy = RecentRounds(input_of(ms, 40)).estimate(mode_of("asynchronous"));
  EXPECT_NEAR(busy.gradients, 3 / 0.14 + 1 / 0.39, 1e-6);
  EXPECT_NEAR(busy.demand, 0.04 * (3 / 0.14 + 1 / 0.39), 1e-6);
  const SyncEstimate behind = RecentRounds(input_of(ms, 100)).estimate(mode_of("asynchronous"));
  EXPECT_NEAR(behind.gradients, 10, 1e-6);
  EXPECT_NEAR(behind.updates, 10, 1e-6);
  EXPECT_NEAR(behind.demand, 0.1 * (3 / 0.2 + 1 / 0.45), 1e-6);
}

// The newest iterations form the first round; a replica with fewer of them repeats its own.
TEST(Estimate, RoundsAreTheLastIterations) {
  ChooseInput input = input_of({100, 100}, 0);
  const IterationTime longer{from_milliseconds(900), Duration{}};
  input.samples[0].insert(input.samples[0].begin(), 30, longer);
  const RecentRounds rounds(input);
  // Of 24 rounds the newest one takes 100 ms, the others 900 ms.
  EXPECT_NEAR(rounds.slowest(), (0.1 + 23 * 0.9) / 24, 1e-8);
  EXPECT_NEAR(rounds.means()[0], (0.1 + 23 * 0.9) / 24, 1e-8);
  EXPECT_NEAR(rounds.late_share(), 23.0 / 48, 1e-9);
  EXPECT_EQ(rounds.replicas(), 2u);
}

// The estimate is near what the simulation makes of the same times, for every candidate.
TEST(Estimate, IsNearTheSimulation) {
  const std::vector<double> ms = {100, 101, 102, 103, 104, 105, 106, 430};
  const ChooseInput input = input_of(ms, 1);
  const RecentRounds rounds(input);
  const std::vector<IterationTime> means = means_of(input.samples);
  for (const SyncMode& mode : sync_candidates(means, 16)) {
    const auto measure = simulate_sync(
        {{mode, 8, 16, {}, {}}, times_of(input.samples, 1), input.apply}, {480, {}, 1440, 0, {}});
    ASSERT_TRUE(measure.ok());
    const double rate = rounds.estimate(mode).gradients / measure.value().gradients_per_second;
    EXPECT_GT(rate, 0.6) << to_text(mode);
    EXPECT_LT(rate, 2.2) << to_text(mode);  // x:4: three of seven are left over each round
  }
}

TEST(Ridge, FindsTheWeightsThatMadeTheTargets) {
  for (size_t width = 1; width <= 8; ++width) {
    Random random(width);
    std::vector<double> planted, rows, targets;
    for (size_t i = 0; i < width; ++i) planted.push_back(random.uniform() - 0.5);
    for (int row = 0; row < 40; ++row) {
      double target = 0;
      for (size_t i = 0; i < width; ++i) {
        rows.push_back(random.uniform() - 0.5);
        target += planted[i] * rows.back();
      }
      targets.push_back(target);
    }
    const std::vector<double> found = ridge_weights(rows, targets, width, 1e-9);
    ASSERT_EQ(found.size(), width);
    for (size_t i = 0; i < width; ++i) EXPECT_NEAR(found[i], planted[i], 1e-6);
  }
}

// At the least sum its slope is zero along each weight, also with fewer rows than weights.
TEST(Ridge, TheSlopeIsZero) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const auto width = static_cast<size_t>(1 + random.below(6));
    const int64_t count = random.below(12);
    const double penalty = 0.1 + random.uniform();
    std::vector<double> rows, targets;
    for (int64_t row = 0; row < count; ++row) {
      for (size_t i = 0; i < width; ++i) rows.push_back(random.uniform() - 0.5);
      targets.push_back(random.uniform());
    }
    const std::vector<double> weights = ridge_weights(rows, targets, width, penalty);
    std::vector<double> slope(width);
    for (size_t i = 0; i < width; ++i) slope[i] = penalty * weights[i];
    for (size_t row = 0; row < targets.size(); ++row) {
      double rest = -targets[row];
      for (size_t i = 0; i < width; ++i) rest += weights[i] * rows[row * width + i];
      for (size_t i = 0; i < width; ++i) slope[i] += rest * rows[row * width + i];
    }
    for (const double one : slope) EXPECT_NEAR(one, 0, 1e-9);
  }
}

TEST(Gain, ByHand) {
  GainSum sum;
  EXPECT_EQ(sum.gain(), Gain{});
  sum.add(2);
  EXPECT_EQ(sum.gain(), (Gain{1, 2, 0}));
  sum.add(4);
  EXPECT_EQ(sum.gain(), (Gain{2, 3, 1}));  // deviation sqrt(2), over sqrt(2)
  EXPECT_TRUE(surely_above_zero({kLeastOutcomes, 3, 1}));
  EXPECT_FALSE(surely_above_zero({kLeastOutcomes - 1, 3, 1}));
  EXPECT_FALSE(surely_above_zero({kLeastOutcomes, 2, 1}));
  EXPECT_TRUE(surely_below_zero({kLeastOutcomes, -3, 1}));
  EXPECT_FALSE(surely_below_zero({kLeastOutcomes - 1, -3, 1}));
  EXPECT_FALSE(surely_below_zero({kLeastOutcomes, -2, 1}));
}

ChooserModel written_model() {
  ChooserModel model;
  model.replicas = 8;
  model.held_out = {24, 0.5, 0.125};
  for (size_t kind = 0; kind < kSyncKinds; ++kind) {
    for (size_t i = 0; i < kChooserFeatures; ++i) {
      const auto row = static_cast<double>(kind), column = static_cast<double>(i);
      model.kinds[kind].rate[i] = row * 0.5 - column * 0.25;
      model.kinds[kind].age[i] = column * 0.125 - row * 0.0625;
    }
  }
  return model;
}

TEST(ChooserFile, IsWrittenAndReadAsItIs) {
  const ChooserModel model = written_model();
  expect_golden("sync/golden/chooser.txt", to_text(model));
  const auto read = chooser_from_text("# a comment\n\n" + to_text(model), "text", 8);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read.value(), model);
  // Any weights are read back to the last bit.
  Random random(3);
  for (int round = 0; round < 50; ++round) {
    ChooserModel drawn;
    drawn.replicas = static_cast<int32_t>(2 + random.below(kMostReplicas - 1));
    drawn.held_out.outcomes = random.below(1'000'000);
    drawn.held_out.mean = random.uniform() - 0.5;
    drawn.held_out.error = random.uniform();
    for (KindWeights& kind : drawn.kinds) {
      for (double& weight : kind.rate) weight = 1e6 * (random.uniform() - 0.5);
      for (double& weight : kind.age) weight = 1e-6 * (random.uniform() - 0.5);
    }
    const auto again = chooser_from_text(to_text(drawn), "text", drawn.replicas);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again.value(), drawn);
  }
}

// The text with `from`, which it has, replaced once.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = to_text(written_model());
  return text.replace(text.find(from), from.size(), to);
}

TEST(ChooserFile, RefusesBadText) {
  const auto refused = [](const std::string& text, const std::string& sentence,
                          int32_t replicas = 8) {
    const auto read = chooser_from_text(text, "f", replicas);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().message, sentence);
  };
  refused("", "f: expected 'tenuto chooser 1', found nothing");
  refused(changed("chooser 1", "chooser 2"),
          "f:1:1: expected 'tenuto chooser 1', found 'tenuto chooser 2'");
  refused(to_text(written_model()),
          "f:2:10: expected a chooser for 4 replicas, found '8'; train one for this number", 4);
  refused(changed("replicas 8", "replicas 1"), "f:2:10: expected 2 to 16384 replicas, found '1'");
  refused(changed("replicas 8", "replicas 16385"),
          "f:2:10: expected 2 to 16384 replicas, found '16385'");
  refused(changed("replicas 8", "workers 8"), "f:2:1: expected 'replicas W', found 'workers 8'");
  const std::string held_out =
      "f:3:1: expected 'held-out', a number of outcomes, a mean gain and an error of at least 0";
  refused(changed("held-out 24", "held-out 2.5"), held_out + ", found 'held-out 2.5 0.5 0.125'");
  refused(changed("held-out 24", "held-out 1000000001"),
          held_out + ", found 'held-out 1000000001 0.5 0.125'");
  EXPECT_TRUE(chooser_from_text(changed("held-out 24", "held-out 1000000000"), "f", 8).ok());
  refused(changed("0.5 0.125\n", "0.5 -0.125\n"), held_out + ", found 'held-out 24 0.5 -0.125'");
  refused(changed("x rate 1 ", "x rate "),
          "f:8:1: expected 'x rate' and 10 weights, found 'x rate 0.75 0.5 0.25 0 -0.25 -0.5 "
          "-0.75 ...'");
  refused(changed("x rate 1 ", "grace rate 1 "),
          "f:8:1: expected 'x rate' and 10 weights, found 'grace rate 1 0.75 0.5 0.25 0 -0.25 "
          "-0.5 ...'");
  refused(changed("x rate 1 ", "x rate nan "),
          "f:8:8: expected a weight from -1000000 to 1000000, found 'nan'");
  refused(changed("x rate 1 ", "x rate -1000001 "),
          "f:8:8: expected a weight from -1000000 to 1000000, found '-1000001'");
  EXPECT_TRUE(chooser_from_text(changed("x rate 1 ", "x rate 1000000 "), "f", 8).ok());
  refused(changed("x rate 1 ", "# x rate 1 "), "f: expected 19 lines, found 18");
  refused(to_text(written_model()) + "more\n", "f: expected 19 lines, found 20");
}

// A text with one changed byte is refused with its place, or is a model that is read back.
TEST(ChooserFile, AnyTextIsReadOrRefused) {
  Random random(5);
  const std::string good = to_text(written_model());
  int read = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    const int64_t place = random.below(std::ssize(text));
    const int64_t byte = random.below(256);
    text[static_cast<size_t>(place)] = static_cast<char>(byte);
    const auto model = chooser_from_text(text, "f", 8);
    if (!model.ok()) {
      EXPECT_EQ(model.error().message.substr(0, 2), "f:");
      continue;
    }
    ++read;
    const auto again = chooser_from_text(to_text(model.value()), "f", 8);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again.value(), model.value());
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace tenuto
