// What is kept of a long run.
#include "page/history.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/text.h"

namespace tenuto::page {
namespace {

TEST(History, KeepsTheNewestEvents) {
  History history;
  for (int i = 1; i <= 1000; ++i) history.add_event(i % 2 == 0 ? "fault" : "join", 1, i, cat(i));
  ASSERT_EQ(history.events().size(), History::kMostEvents);
  EXPECT_EQ(history.events().back().serial, 1000);
  EXPECT_EQ(history.events().front().serial, 1000 - static_cast<int>(History::kMostEvents) + 1);
  EXPECT_EQ(history.serial(), 1000);
  EXPECT_EQ(history.faults(), 500);
}

TEST(History, KeepsTheShapeOfALongCurve) {
  History history;
  constexpr int64_t kSteps = 20'000;
  for (int64_t step = 0; step < kSteps; ++step) {
    history.add_step({step, static_cast<double>(step), 0.5});
    ASSERT_LE(history.steps().size(), History::kMostSteps);
  }
  const std::vector<ShownStep> steps = history.steps();
  EXPECT_GE(steps.size(), History::kMostSteps / 3);
  EXPECT_EQ(steps.front().step, 0);
  EXPECT_EQ(steps.back().step, kSteps - 1);
  for (size_t i = 2; i + 1 < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step - steps[i - 1].step, steps[1].step - steps[0].step) << i;
  }
  EXPECT_EQ(history.seconds(), 0.5 * kSteps);
}

TEST(History, KeepsTheShapeOfHeldOutPasses) {
  History history;
  EXPECT_TRUE(history.validations().empty());
  constexpr int64_t kPasses = 5000;
  for (int64_t pass = 0; pass < kPasses; ++pass) {
    const auto accuracy = static_cast<double>(pass) / kPasses;
    history.add_validation({100 * pass + 99, 2.5, accuracy});
    ASSERT_LE(history.validations().size(), History::kMostValidations);
  }
  const std::vector<ShownValidation> passes = history.validations();
  EXPECT_GE(passes.size(), History::kMostValidations / 3);
  EXPECT_EQ(passes.front().step, 99);
  EXPECT_EQ(passes.back().step, 100 * kPasses - 1);
  EXPECT_EQ(passes.back().accuracy, static_cast<double>(kPasses - 1) / kPasses);
}

TEST(History, HasTheNewestStepOnce) {
  History history;
  EXPECT_TRUE(history.steps().empty());
  EXPECT_FALSE(history.newest().has_value());
  history.add_step({7, 1.0, 0});  // of a run that is resumed
  ASSERT_EQ(history.steps().size(), 1u);
  EXPECT_EQ(history.newest()->step, 7);
}

}  // namespace
}  // namespace tenuto::page
