// Rules of the coordinator, broken in the code itself: the plays of decide_random_test pass without
// a bug and fail with it.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/text.h"
#include "control/moving_run.h"
#include "control/random_cases.h"
#include "control/random_world.h"
#include "seeded/seeded.h"

namespace tenuto {
namespace {

// Runs a play by its seed; returns what went wrong, or "".
using Play = std::function<std::string(uint64_t)>;

std::string run_play(uint64_t seed, Case of, const Chances& chances, int32_t wild) {
  of.rules.survive = true;
  World world(seed, of.stages, of.pipelines, of.rules, chances);
  world.run(wild, 80000);
  if (world.failed()) return world.fault();
  if (!world.state().ending) return "the run comes to no end";
  const bool given_up = !world.state().salvage.cause.empty() && world.whole();
  return given_up ? cat("the run is given up, though every stage has a holder: ",
                        world.state().ending->sentence)
                  : "";
}

// Deaths and wrong suspicions; workers resume interrupted steps.
std::string disturbed(uint64_t seed) {
  const Chances chances{
      .death = 6, .checkpoint = 5, .deaths_at_most = 4, .suspicion = 3, .resumes = true};
  return run_play(seed, make_case(seed), chances, 900);
}

// Deaths end the run: it saves the newest version that survives.
std::string given_up(uint64_t seed) {
  const Case of = make_case(seed);
  World world(seed, of.stages, of.pipelines, of.rules,
              {.death = 6, .checkpoint = 5, .deaths_at_most = 3});
  world.run(800, 60000);
  if (world.failed()) return world.fault();
  return world.state().ending ? "" : "the run comes to no end";
}

// The same as `disturbed` while coordinators are replaced.
std::string replaced(uint64_t seed) {
  const Chances chances{.death = 6,
                        .checkpoint = 5,
                        .deaths_at_most = 4,
                        .suspicion = 3,
                        .restart = 10,
                        .restarts_at_most = 12,
                        .resumes = true};
  return run_play(seed, make_case(seed), chances, 900);
}

// Longer runs, in which new processes join.
std::string joined(uint64_t seed) {
  return run_play(seed, make_long_case(seed), with_returns(), 6000);
}

// A layer moves, and a worker dies or the coordinator is replaced: the seed says who, at which
// point of the move, and in which order of events. The play without a fault, which says where the
// points of the move begin, is played once for all plays that share it.
Play dying() {
  return [first = std::map<std::pair<bool, uint64_t>, int64_t>()](uint64_t seed) mutable {
    constexpr uint64_t kVictims = 5, kPoints = 250;
    const MovingRun run{.seed = seed / kVictims / kPoints, .moves = {{{1}, {0}, {1}}}};
    const auto [known, fresh] = first.try_emplace({is_seeded(Seeded::None), run.seed});
    if (fresh) known->second = play_move(run, {}).first;
    const auto point = static_cast<int64_t>(seed / kVictims % kPoints);
    const WorkerId victim{static_cast<int32_t>(seed % kVictims) - 1};
    return play_move(run, DeathAt{known->second + point, victim, false}).fault;
  };
}

// Expects a play that fails with the bug and passes without it.
void expect_found(Seeded bug, const Play& play, uint64_t seeds) {
  for (uint64_t at = 0; at < seeds; ++at) {
    seed(bug);
    const std::string fault = play(at);
    seed(Seeded::None);
    if (fault.empty()) continue;
    std::printf("%s: seed %s: %s\n", name_of(bug), cat(at).c_str(), fault.c_str());
    EXPECT_EQ(play(at), "") << "seed " << at << " without a bug";
    return;
  }
  ADD_FAILURE() << name_of(bug) << " is not found in " << seeds << " plays";
}

TEST(SeededControl, C4PhaseIsIgnored) { expect_found(Seeded::Phase, replaced, 1000); }

TEST(SeededControl, C4FirstReportOfAStageIsEnough) { expect_found(Seeded::First, replaced, 100); }

TEST(SeededControl, C5DecisionIsNotWrittenDown) { expect_found(Seeded::Decision, replaced, 100); }

TEST(SeededControl, ValuesOfAnAbandonedAttemptCount) {
  expect_found(Seeded::Attempt, disturbed, 10000);
}

TEST(SeededControl, MissingLossesOfTheLastStepAreIgnored) {
  expect_found(Seeded::Losses, given_up, 1000);
}

TEST(SeededControl, J2UncommittedStateStays) { expect_found(Seeded::Uncommitted, joined, 100); }

TEST(SeededControl, LayersOfAnUncommittedVersionAreHeld) {
  expect_found(Seeded::Early, dying(), 13000);
}

TEST(SeededControl, ANewCoordinatorForgetsMoves) { expect_found(Seeded::Forgets, dying(), 1300); }

TEST(SeededControl, J4NoTagOnReceivedState) { expect_found(Seeded::NoTag, joined, 1000); }

}  // namespace
}  // namespace tenuto
