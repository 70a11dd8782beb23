// The answer of tenuto simulate --sync.
#include "sync/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/text.h"

namespace tenuto {
namespace {

std::string refusal(const SyncQuestion& question) {
  const auto report = answer(question);
  return report.ok() ? "" : report.error().message;
}

TEST(SyncReport, Text) {
  SyncQuestion question;
  question.mode = "synchronous";
  question.replicas = 4;
  question.iteration_ms = {100, 100, 100, 190};
  question.apply_ms = 10;
  const auto report = answer(question);
  ASSERT_TRUE(report.ok()) << report.error().message;
  // 20 gradients per second; 1000 x (1 + 0.3 x 1.5 / 4) / 20 seconds.
  EXPECT_EQ(to_text(report.value()),
            "synchronous: 4 replicas\n"
            "gradients   20.000 per second, one replica's iteration each\n"
            "updates     5.000 per second\n"
            "age         1.500 gradients on average\n"
            "dropped     0.00 % of all gradients\n"
            "target      55.625 s for the progress of 1000 gradients of age 0\n");
  const Json tree = to_json(report.value());
  EXPECT_NEAR(tree["gradients_per_second"].get<double>(), 20, 1e-9);
  EXPECT_NEAR(tree["updates_per_second"].get<double>(), 5, 1e-9);
  EXPECT_EQ(tree["mean_age"], 1.5);
  EXPECT_EQ(tree["dropped_fraction"], 0.0);
  EXPECT_EQ(tree["mode"], "synchronous");
  EXPECT_NEAR(tree["target_seconds"].get<double>(), 55.625, 1e-9);
}

// Every mode of the command line is priced, and none makes more gradients than asynchronous.
TEST(SyncReport, EveryMode) {
  SyncQuestion question;
  question.iteration_ms = {100, 100, 100, 100, 120, 150, 200, 400};
  question.jitter_percent = 5;
  question.apply_ms = 1;
  question.mode = "asynchronous";
  const double most = answer(question).value().measure.gradients_per_second;
  for (const char* mode : {"synchronous", "x:4", "grace:4", "groups", "ring:6", "backup:7",
                           "bounded:3", "x:2+bounded:4", "synchronous+local:4", "auto"}) {
    question.mode = mode;
    const auto report = answer(question);
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_GT(report.value().measure.gradients_per_second, 10) << mode;
    EXPECT_LT(report.value().measure.gradients_per_second, 1.02 * most) << mode;
    EXPECT_GT(report.value().target_seconds, 0) << mode;
  }
  question.mode = "auto";
  const auto report = answer(question);
  EXPECT_FALSE(report.value().reason.empty());
  EXPECT_GT(report.value().alternatives.size(), 15u);
  EXPECT_TRUE(to_json(report.value()).contains("alternatives"));
  EXPECT_NE(to_text(report.value()).find("progress/s"), std::string::npos);
}

TEST(SyncReport, NothingInTheTime) {
  SyncQuestion question;
  question.mode = "synchronous";
  question.seconds = 0.15;
  const auto report = answer(question);
  ASSERT_TRUE(report.ok());
  EXPECT_TRUE(to_json(report.value())["target_seconds"].is_null());
  EXPECT_NE(to_text(report.value()).find("too few updates"), std::string::npos);
}

// Eight offers arrive at once: those at the moment in which measuring begins are not counted.
TEST(SyncReport, AShortTimeHasTheRateOfALongOne) {
  SyncQuestion question;
  question.mode = "asynchronous";
  for (const double seconds : {1.0, 10.0, 100.0}) {
    question.seconds = seconds;
    const auto report = answer(question);
    ASSERT_TRUE(report.ok());
    EXPECT_DOUBLE_EQ(report.value().measure.gradients_per_second, 80) << seconds;
  }
}

// What "auto" has measured before says nothing of the luck of the run. With one replica and 24
// iterations in the run, the figures of both would go together if they were of the same draws.
TEST(SyncReport, AutoDoesNotKnowTheRun) {
  constexpr int kSeeds = 200;
  SyncQuestion question;
  question.mode = "auto";
  question.replicas = 1;
  question.jitter_percent = 50;
  question.seconds = 2.4;
  std::vector<double> promised, run;
  double promised_mean = 0, run_mean = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    question.seed = static_cast<uint64_t>(seed);
    const auto report = answer(question);
    ASSERT_TRUE(report.ok()) << report.error().message;
    ASSERT_EQ(report.value().alternatives.size(), 1u);
    promised.push_back(report.value().alternatives[0].measure.gradients_per_second);
    run.push_back(report.value().measure.gradients_per_second);
    promised_mean += promised.back() / kSeeds;
    run_mean += run.back() / kSeeds;
  }
  double both = 0, of_promised = 0, of_run = 0;
  for (size_t i = 0; i < promised.size(); ++i) {
    both += (promised[i] - promised_mean) * (run[i] - run_mean);
    of_promised += (promised[i] - promised_mean) * (promised[i] - promised_mean);
    of_run += (run[i] - run_mean) * (run[i] - run_mean);
  }
  ASSERT_GT(of_promised * of_run, 0);
  EXPECT_LT(std::abs(both), 0.3 * std::sqrt(of_promised * of_run));
}

// Gradients of 10 MB over ports of 100 MB/s take 100 ms each.
TEST(SyncReport, TreesOnTheWayToAShard) {
  SyncQuestion question;
  question.mode = "synchronous";
  question.replicas = 4;
  question.gradient_mb = 10;
  question.port_mb_per_second = {100};
  const auto report = answer(question);
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_TRUE(report.value().tree.has_value());
  EXPECT_EQ(report.value().tree->star, std::chrono::milliseconds(400));
  EXPECT_EQ(report.value().tree->time, std::chrono::milliseconds(300));
  const std::string text = to_text(report.value());
  EXPECT_NE(text.find("star        400.000 ms until the shard has all gradients\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("tree        300.000 ms with sums at replicas "), std::string::npos) << text;
  const Json tree = to_json(report.value());
  EXPECT_EQ(tree["tree"]["parents"].size(), 4u);
  EXPECT_NEAR(tree["tree"]["seconds"].get<double>(), 0.3, 1e-9);
  EXPECT_NEAR(tree["tree"]["star_seconds"].get<double>(), 0.4, 1e-9);
  question.shard_mb_per_second = 10000;
  const std::string wide = to_text(answer(question).value());
  EXPECT_NE(wide.find("tree        none is faster than the star\n"), std::string::npos) << wide;
  question.port_mb_per_second = {100, 100};
  EXPECT_EQ(refusal(question),
            "--port-mb-per-second: expected one rate, or one for each of 4 replicas, found 2");
  question.mode = "x:2";
  EXPECT_EQ(refusal(question),
            "--gradient-mb: a tree sums the gradients of all replicas, and x:2 does not wait for "
            "all: take synchronous");
}

TEST(SyncReport, Refusals) {
  SyncQuestion question;
  question.mode = "asynchron";
  EXPECT_NE(refusal(question).find("did you mean 'asynchronous'?"), std::string::npos);
  question.mode = "x:9";
  EXPECT_EQ(refusal(question),
            "sync mode x:9: expected a count from 1 to 8 with 8 replicas, found 9");
  question.mode = "asynchronous";
  question.iteration_ms = {1, 2, 3};
  EXPECT_EQ(refusal(question),
            "--iteration-ms: expected one time, or one for each of 8 replicas, found 3");
  question.iteration_ms = {0};
  EXPECT_EQ(refusal(question), "--iteration-ms: expected times above 0, found 0");
  question.iteration_ms = {1};
  question.seconds = 1e6;
  EXPECT_EQ(refusal(question),
            "--seconds: expected at most 606.060606 s for 8 replicas with these times, because "
            "the simulation would take too long, found 1e+06");
  question.seconds = 1;
  question.mode = "auto";
  question.replicas = 513;
  EXPECT_EQ(refusal(question),
            "--sync auto: expected at most 512 replicas, found 513: give a mode");
  question.mode = "synchronous+local:1000000";
  EXPECT_EQ(refusal(question),
            "--sync: expected at most 5e+06 local steps of all replicas together, found 5.13e+08");
  question.replicas = 0;
  EXPECT_EQ(refusal(question), "expected 1 to 16384 replicas, found 0");
}

}  // namespace
}  // namespace tenuto
