// Layers move, and in each play one fault comes at one point of the move: a worker dies, or the
// coordinator is replaced. decide_random_test.cc draws such faults; the first test here leaves
// none out.
#include <gtest/gtest.h>

#include <cstdio>

#include "control/moving_run.h"
#include "sanitized.h"

namespace tenuto {
namespace {

// Under sanitizers a play takes many times as long, so only some of the points are played.
constexpr int64_t kPart = kSanitized ? 13 : 1;

const WorkerId kCoordinator{-1};

// Plays the run for each victim and each `every`-th point of the move; if `every` is not 1, each
// victim has points of its own. Skips a worker's death where it is the same as at a later point. A
// worker dies for good in one play, and returns in another. Returns the number of plays.
int64_t try_all(const MovingRun& run, const std::vector<WorkerId>& victims, int64_t every) {
  const MovingPlay calm = play_move(run, {});
  EXPECT_EQ(calm.fault, "");
  EXPECT_GE(calm.first, 0);
  EXPECT_GT(calm.last, calm.first);
  int64_t plays = 0;
  for (size_t v = 0; v < victims.size(); ++v) {
    const WorkerId victim = victims[v];
    for (int64_t at = calm.first + static_cast<int64_t>(v) % every; at < calm.last; at += every) {
      const bool of_coordinator = calm.points[static_cast<size_t>(at)];
      if (of_coordinator && victim != kCoordinator) continue;
      for (const bool returns : {false, true}) {
        if (returns && victim == kCoordinator) continue;
        const std::string fault = play_move(run, DeathAt{at, victim, returns}).fault;
        ++plays;
        EXPECT_EQ(fault, "") << "victim " << victim.value << " at point " << at - calm.first
                             << (returns ? ", which returns" : "");
        if (!fault.empty()) return plays;
      }
    }
  }
  std::printf("    %lld points of a move, %lld plays\n",
              static_cast<long long>(calm.last - calm.first), static_cast<long long>(plays));
  return plays;
}

// Workers 0 and 1 are pipeline 0, workers 2 and 3 pipeline 1. Worker 0 gives its second layer to
// worker 1.
TEST(DeathsInMoves, OneLayerAtEveryPoint) {
  const MovingRun run{.seed = 1, .moves = {{{1}, {0}, {1}}}};
  EXPECT_GT(try_all(run, {{0}, {1}, {2}, {3}, kCoordinator}, kPart), 1500 / kPart);
}

// Worker 1 gives its first layer to worker 0, in another order of events, with a checkpoint of
// every version. Every fifth point.
TEST(DeathsInMoves, OneLayerTheOtherWay) {
  const MovingRun run{.seed = 2, .checkpoint_every = 1, .moves = {{{2}, {1}, {0}}}};
  EXPECT_GT(try_all(run, {{0}, {1}, {2}, {3}, kCoordinator}, 5 * kPart), 300 / kPart);
}

// Three stages: worker 0 gives a layer to worker 1, which gives one to worker 2. Every ninth point.
TEST(DeathsInMoves, TwoLayersOfThreeWorkers) {
  const MovingRun run{.seed = 3, .stages = 3, .moves = {{{1}, {0}, {1}}, {{3}, {1}, {2}}}};
  const int64_t plays = try_all(run, {{0}, {1}, {2}, {3}, {4}, {5}, kCoordinator}, 9 * kPart);
  EXPECT_GT(plays, 300 / kPart);
}

}  // namespace
}  // namespace tenuto
