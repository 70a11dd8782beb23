// A run that evaluates a checkpoint: one held-out pass, which commits the version that was loaded.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "control/decide.h"
#include "control/survival.h"

namespace tenuto {
namespace {

constexpr int64_t kVersion = 6;

Rules evaluating_rules() {
  Rules rules = surviving_rules();
  rules.evaluates = true;
  rules.first_step = rules.steps = rules.saved = kVersion;
  rules.micro_count = 0;
  rules.resume_shards = {"a", "b"};
  return rules;
}

// A worker has run its part of the pass.
Decision evaluate(Survival& run, size_t worker, std::vector<MicroLoss> losses) {
  Report& of = run.reports[worker];
  of.steps = {StepSummary{.step = kVersion - 1, .evaluation = std::move(losses)}};
  of.version = kVersion;
  return run.report(worker);
}

TEST(Evaluation, EndsWithTheMeanOfAllLosses) {
  Survival run(evaluating_rules());
  EXPECT_EQ(run.state.told.directive.committed, kVersion - 1);
  EXPECT_EQ(run.state.told.directive.first_step, kVersion);
  EXPECT_EQ(run.state.told.directive.stop_at, kVersion);
  EXPECT_EQ(run.state.told.save_version, -1) << "the version is on disk";
  evaluate(run, 0, {});
  evaluate(run, 1, {{{0}, 2.0}});
  evaluate(run, 2, {});
  EXPECT_FALSE(run.state.ending);
  const Decision decision = evaluate(run, 3, {{{1}, 4.0}});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 0);
  EXPECT_EQ(run.state.ending->sentence, "");
  ASSERT_EQ(decision.steps.size(), 1u);
  EXPECT_EQ(decision.steps[0].step, kVersion - 1);
  EXPECT_EQ(decision.steps[0].validation_loss, 3.0);
  EXPECT_FALSE(decision.steps[0].has_loss());
  EXPECT_FALSE(decision.checkpoint);
}

TEST(Evaluation, APassThatADeathInterruptsBeginsAgain) {
  Survival run(evaluating_rules());
  evaluate(run, 0, {});
  evaluate(run, 1, {{{0}, 2.0}});
  run.keep(run.die());
  for (const size_t worker : {0, 1, 2}) run.reports[worker].version = kVersion;
  run.keep(run.freeze());
  EXPECT_EQ(run.state.committed, kVersion - 1);
  EXPECT_FALSE(run.state.ending);
  EXPECT_FALSE(run.state.told.rest);
  EXPECT_NE(run.reasons.back().find("the held-out pass is done again without worker 3"),
            std::string::npos)
      << run.reasons.back();
  run.run();
  evaluate(run, 0, {});
  evaluate(run, 2, {});
  EXPECT_FALSE(run.state.ending);
  const Decision decision = evaluate(run, 1, {{{0}, 2.0}, {{1}, 4.0}});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 0);
  ASSERT_EQ(decision.steps.size(), 1u);
  EXPECT_EQ(decision.steps[0].validation_loss, 3.0);
}

TEST(Evaluation, WithoutAHolderOfAStageItEndsAndSavesNothing) {
  Rules rules = evaluating_rules();
  rules.survive = false;
  Survival run(rules);
  run.die();
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 75);
  EXPECT_NE(run.state.ending->sentence.find("was killed by signal 9"), std::string::npos);
  EXPECT_EQ(run.state.told.save_version, -1);
}

}  // namespace
}  // namespace tenuto
