#include "ir/plan.h"

#include <gtest/gtest.h>

namespace tenuto {
namespace {

std::vector<Stage> stages_held(const std::vector<std::vector<WorkerId>>& holders) {
  std::vector<Stage> stages;
  for (const auto& of : holders) stages.push_back({0, 1, of});
  return stages;
}

void expect_share(const std::vector<Stage>& stages, int32_t workers, int32_t stage, int32_t place,
                  int32_t chunks) {
  const TimeShare share = time_share_of(stages, workers, {stage});
  EXPECT_EQ(share.place, place) << "stage " << stage;
  EXPECT_EQ(share.chunks, chunks) << "stage " << stage;
}

TEST(Plan, SaysWhichStagesAWorkerHolds) {
  const auto stages = stages_held({{{0}, {2}}, {{1}}, {{0}, {1}}});
  EXPECT_TRUE(holds(stages[0], {2}));
  EXPECT_FALSE(holds(stages[0], {1}));
  EXPECT_EQ(stages_of(stages, {0}), (std::vector<StageId>{{0}, {2}}));
  EXPECT_EQ(stages_of(stages, {2}), (std::vector<StageId>{{0}}));
  EXPECT_TRUE(stages_of(stages, {3}).empty());
}

TEST(Plan, StagesOfOneWorkerShareItsTime) {
  // Two pipelines of two workers with two stages each.
  const auto stages = stages_held({{{0}, {2}}, {{1}, {3}}, {{0}, {2}}, {{1}, {3}}});
  for (int32_t s = 0; s < 4; ++s) expect_share(stages, 2, s, s % 2, 2);
  // A worker with two stages, and one with one.
  const auto unequal = stages_held({{{0}}, {{1}}, {{0}}});
  expect_share(unequal, 2, 0, 0, 2);
  expect_share(unequal, 2, 1, 1, 1);
}

// A worker that holds another stage besides its own is not faster at either.
TEST(Plan, CopiesTakeNoShareOfAWorkersTime) {
  const auto copied = stages_held({{{0}, {1}}, {{1}, {2}}, {{2}, {0}}});
  const auto taken_over = stages_held({{{1}}, {{1}}, {{2}}});
  for (int32_t s = 0; s < 3; ++s) {
    expect_share(copied, 3, s, s, 1);
    expect_share(taken_over, 3, s, s, 1);
  }
}

}  // namespace
}  // namespace tenuto
