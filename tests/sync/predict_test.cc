// Predictors of the next iteration's time, plain and learned, and how good they are.
#include "sync/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/random.h"
#include "ir/golden.h"
#include "sync/choose.h"
#include "sync/predict_errors.h"
#include "sync/predict_learned.h"

namespace tenuto {
namespace {

IterationSample sample(int64_t nanoseconds) {
  IterationSample of;
  of.compute = of.cpu = Duration(nanoseconds);
  return of;
}

std::vector<Recording> recordings(uint64_t seed) {
  std::vector<Recording> all;
  for (const char* name : {"mixed", "slow-link", "none"}) {
    all.push_back(record_with_hogs(*find_sync_scenario(name), 150, seed));
  }
  return all;
}

PredictorMaker learned() {
  static const PredictorNet net = train_predictor(recordings(1), 1500, 1);
  return learned_predictor(net);
}

// Each plain predictor says what its name says, by the definition, over random times and around
// the length of the window.
TEST(Predictor, PlainOnesAreWhatTheirNamesSay) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    std::map<std::string, std::unique_ptr<Predictor>> of;
    for (const PredictorMaker& maker : plain_predictors()) of[maker.name] = maker.make();
    std::vector<Duration> times;
    for (size_t i = 0; i < 2 * kKeptSamples + 1; ++i) {
      const int64_t time = random.below(1000);
      times.push_back(Duration(time));
      for (auto& [name, predictor] : of) predictor->observe(sample(time));
      const size_t kept = std::min(times.size(), kKeptSamples);
      std::vector<Duration> window(times.end() - static_cast<int64_t>(kept), times.end());
      std::sort(window.begin(), window.end());
      Duration sum{};
      for (const Duration one : window) sum += one;
      using Set = std::vector<Duration>;
      EXPECT_EQ(of["constant"]->predict(), Set{times.front()});
      EXPECT_EQ(of["last"]->predict(), Set{times.back()});
      EXPECT_EQ(of["mean"]->predict(), Set{sum / std::ssize(window)});
      EXPECT_EQ(of["median"]->predict(), Set{window[(window.size() - 1) / 2]});
      EXPECT_EQ(of["window"]->predict(), window);
    }
  }
}

TEST(Predictor, QuantilesAreTimesOfTheSet) {
  const std::vector<Duration> set = {Duration(1), Duration(2), Duration(3), Duration(4)};
  EXPECT_EQ(quantile_of(set, 0), Duration(1));
  EXPECT_EQ(quantile_of(set, 0.5), Duration(2));
  EXPECT_EQ(quantile_of(set, 0.51), Duration(3));
  EXPECT_EQ(quantile_of(set, 1), Duration(4));
}

// Another speed of all replicas scales what is predicted, and nothing else; the set is ascending.
TEST(Predictor, LearnedScalesWithTheTimes) {
  const auto slow = learned().make(), fast = learned().make();
  const std::vector<Recording> drawn = recordings(9);
  for (const IterationSample& of : drawn[0].replicas[2]) {
    IterationSample longer = of;
    for (Duration* time : {&longer.compute, &longer.send, &longer.receive, &longer.run_delay}) {
      *time *= 8;
    }
    fast->observe(of);
    slow->observe(longer);
    const auto one = fast->predict(), eight = slow->predict();
    ASSERT_EQ(one.size(), kPredictorQuantiles);
    EXPECT_TRUE(std::is_sorted(one.begin(), one.end()));
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(eight[i].count()), 8 * static_cast<double>(one[i].count()),
                  8);
    }
  }
}

TEST(Predictor, TrainingIsAFunctionOfItsArguments) {
  const auto all = recordings(1);
  const auto net = train_predictor(all, 50, 3);
  EXPECT_EQ(net.weights, train_predictor(all, 50, 3).weights);
  EXPECT_NE(net.weights, train_predictor(all, 50, 4).weights);
}

// Equal times are predicted without error by all that learn nothing, and every count adds up.
TEST(PredictionErrors, AddUp) {
  Recording equal;
  equal.name = "equal";
  equal.replicas.assign(3, std::vector<IterationSample>(40, sample(1'000'000)));
  for (const PredictorMaker& maker : plain_predictors()) {
    const PredictionErrors errors = prediction_errors(maker, std::span(&equal, 1));
    EXPECT_EQ(errors.predictions, 3 * (40 - static_cast<int64_t>(kKeptSamples)));
    EXPECT_EQ(errors.absolute_ms, 0);
    EXPECT_EQ(errors.quantile_ms, 0);
    EXPECT_EQ(errors.right_on_time, errors.predictions);
    const PredictionErrors drawn = prediction_errors(maker, recordings(2));
    EXPECT_EQ(
        drawn.right_late + drawn.right_on_time + drawn.false_positives + drawn.false_negatives,
        drawn.predictions);
  }
}

// The table of one seed, with a network trained on another one.
TEST(PredictionErrors, TableOfARecording) {
  std::vector<PredictorMaker> makers = plain_predictors();
  makers.push_back(learned());
  std::vector<PredictionErrors> all;
  for (const PredictorMaker& maker : makers) {
    all.push_back(prediction_errors(maker, recordings(2)));
  }
  expect_golden("sync/golden/predictors.txt", prediction_table(all));
  EXPECT_LT(all.back().absolute_ms, all.front().absolute_ms) << "a constant must lose";
}

}  // namespace
}  // namespace tenuto
