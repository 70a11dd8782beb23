// Which losses a worker reports for a step that it ends after another worker's death.
#include "runtime/step_account.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenuto {
namespace {

std::vector<double> losses_of(StepAccount& account) {
  std::vector<double> losses;
  for (const MicroLoss& loss : account.sorted_outcome().losses) losses.push_back(loss.loss);
  return losses;
}

// The held-out pass before a step has the same number as the step. A worker that has not begun the
// step when another worker dies must not report the losses of the pass as losses of the step.
TEST(StepAccount, HeldOutLossesDoNotCountForTheStep) {
  StepAccount account(StageId{1});
  account.begin(19);
  account.note_loss({MicroId{0}, 1.0}, false);
  account.begin(20);
  account.note_loss({MicroId{0}, 8.0}, true);
  account.note_loss({MicroId{1}, 9.0}, true);
  ASSERT_TRUE(account.resume(20, {}).ok());
  EXPECT_EQ(std::vector<double>{}, losses_of(account));
  account.note_loss({MicroId{1}, 2.0}, false);
  EXPECT_EQ(std::vector<double>{2.0}, losses_of(account));
}

// Some worker may still have to end the step before the held-out pass: that step's losses are kept.
TEST(StepAccount, LossesOfTheStepBeforeAHeldOutPassAreKept) {
  StepAccount account(StageId{1});
  account.begin(19);
  account.note_loss({MicroId{0}, 1.0}, false);
  account.note_loss({MicroId{1}, 3.0}, false);
  account.begin(20);
  account.note_loss({MicroId{0}, 8.0}, true);
  ASSERT_TRUE(account.resume(19, {}).ok());
  EXPECT_EQ((std::vector<double>{1.0, 3.0}), losses_of(account));
}

// The forwards of a step that ran before the death keep their losses.
TEST(StepAccount, LossesOfTheStepItselfAreKept) {
  StepAccount account(StageId{1});
  account.begin(20);
  account.note_loss({MicroId{0}, 8.0}, true);
  account.begin(20);
  account.note_loss({MicroId{0}, 4.0}, false);
  ASSERT_TRUE(account.resume(20, {}).ok());
  EXPECT_EQ(std::vector<double>{4.0}, losses_of(account));
}

}  // namespace
}  // namespace tenuto
