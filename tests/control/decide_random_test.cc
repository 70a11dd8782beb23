// Plays decide() and decide_worker() against each other in a small simulated world: a network that
// loses, doubles and delays messages, and deaths, signals and new coordinators at any moment. After
// every input the world checks what must always hold.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "control/random_cases.h"
#include "control/random_world.h"
#include "sanitized.h"

namespace tenuto {
namespace {

// Sanitizers make every play many times as long, so the longest tests then play only a part.
constexpr int32_t kPart = kSanitized ? 10 : 1;

// Returns true if workers were lost and all steps were done. Expects that a run ends early only if
// a stage has no holder, or a link is cut between workers whose work nobody else can do; if every
// stage has a holder, all committed steps must be saved.
bool has_survived(const World& world, const Case& of, uint64_t seed) {
  const State& state = world.state();
  if (world.redone() + world.rolled_forward() == 0) return false;
  if (!state.salvage.cause.empty()) {
    const std::string& why = state.ending->sentence;
    const bool cut = why.find("no other worker holds their stages") != std::string::npos;
    EXPECT_TRUE(cut || !world.whole()) << "seed " << seed << ": " << why;
    if (world.whole()) {
      EXPECT_EQ(state.saved, state.committed) << "seed " << seed << ": " << why;
      EXPECT_EQ(state.ending->exit_code, 75) << "seed " << seed << ": " << why;
    }
    return false;
  }
  EXPECT_EQ(*state.ending, (Ending{0, ""})) << "seed " << seed;
  EXPECT_EQ(state.committed, of.rules.steps) << "seed " << seed;
  return true;
}

// Layers move at any moment between workers, of which some die or come back, under coordinators of
// which some are replaced: nothing is lost, and every holder has the whole state of its layers.
TEST(DecideRandom, LayersMoveWhileWorkersAndCoordinatorsDie) {
  int32_t given = 0, moved = 0, survived = 0;
  for (uint64_t seed = 0; seed < 1200 / kPart; ++seed) {
    Case of = make_long_case(seed);
    of.stages = 2 + static_cast<int32_t>(seed % 2);
    of.rules.treatments.slow_links = of.rules.treatments.layers = Treatment::Adapt;
    Chances chances = seed % 4 == 0 ? Chances{.checkpoint = 5} : with_returns();
    chances.layers = 25;
    chances.stop = seed % 5 == 0 ? 1 : 0;
    if (seed % 3 == 0) {
      chances.restart = 2;
      chances.restarts_at_most = 3;
    }
    World world(seed, of.stages, of.pipelines, of.rules, chances);
    world.run(4000, 60000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    given += world.layers_given();
    moved += world.layers_moved();
    survived += world.deaths() > 0 && world.state().salvage.cause.empty();
    if (world.deaths() > 0 || world.state().saved < 0) continue;  // or stopped before a step
    const bool done = world.state().committed == of.rules.steps;
    EXPECT_EQ(world.state().ending->exit_code, done ? 0 : 128 + 15) << "seed " << seed;
    EXPECT_EQ(world.state().saved, world.state().committed) << "seed " << seed;
  }
  std::printf("    %d moves begun, %d ended, %d runs with deaths survived\n", given, moved,
              survived);
  EXPECT_GT(given, 600 / kPart);
  EXPECT_GT(moved, 200 / kPart);
  EXPECT_LT(moved, given);
  EXPECT_GT(survived, 300 / kPart);
}

TEST(DecideRandom, AnUndisturbedRunEndsWithAllStepsAndACheckpoint) {
  for (uint64_t seed = 0; seed < 300 / kPart; ++seed) {
    const Case of = make_case(seed);
    World world(seed, of.stages, of.pipelines, of.rules, {});
    world.run(400, 40000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    EXPECT_EQ(*world.state().ending, (Ending{0, ""})) << "seed " << seed;
    EXPECT_EQ(world.state().committed, of.rules.steps);
    EXPECT_EQ(world.state().saved, of.rules.steps);
  }
}

TEST(DecideRandom, AStopAtAnyMomentEndsWithACheckpointOfTheLastCommittedStep) {
  for (uint64_t seed = 0; seed < 600 / kPart; ++seed) {
    const Case of = make_case(seed);
    World world(seed, of.stages, of.pipelines, of.rules, {.stop = 8, .checkpoint = 10});
    world.run(600, 40000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    const State& state = world.state();
    const bool early = state.saved < 0;  // before the first step
    const bool done = state.committed == of.rules.steps;
    if (!early) {
      EXPECT_EQ(state.saved, state.committed) << "seed " << seed;
    }
    const int expected = done ? 0 : 128 + 15;
    EXPECT_EQ(state.ending->exit_code, expected) << "seed " << seed;
  }
}

TEST(DecideRandom, DeathsAtAnyMomentLoseNothingWhileEveryStageHasAHolder) {
  int32_t salvaged = 0, hopeless = 0;
  for (uint64_t seed = 0; seed < 2000 / kPart; ++seed) {
    const Case of = make_case(seed);
    World world(seed, of.stages, of.pipelines, of.rules,
                {.death = 6, .stop = 1, .checkpoint = 5, .deaths_at_most = 3});
    world.run(800, 60000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    const State& state = world.state();
    const int exit_code = state.ending->exit_code;
    if (world.deaths() == 0) continue;
    const bool begun = state.situation == Situation::Ended && state.salvage.cause != "";
    if (begun && world.whole()) {
      ++salvaged;
      EXPECT_GE(state.saved, state.committed) << "seed " << seed << ": " << state.ending->sentence;
      EXPECT_EQ(exit_code, 75) << "seed " << seed << ": " << state.ending->sentence;
    }
    if (begun && !world.whole()) {
      ++hopeless;
      EXPECT_EQ(exit_code, 75) << "seed " << seed;
    }
  }
  EXPECT_GT(salvaged, 100 / kPart);  // the cases must have been met at all
  EXPECT_GT(hopeless, 100 / kPart);
}

// Deaths and false suspicions at any moment, while reports and instructions are lost, doubled and
// late: as long as every stage has a holder, all steps are committed, each from one attempt, with
// all its losses.
TEST(DecideRandom, StepsGoOnWithoutTheDeadWhileEveryStageHasAHolder) {
  int32_t survived = 0, hopeless = 0, redone = 0, forward = 0, several = 0;
  for (uint64_t seed = 0; seed < 3000 / kPart; ++seed) {
    Case of = make_case(seed);
    of.rules.survive = true;
    World world(seed, of.stages, of.pipelines, of.rules,
                {.death = 6, .stop = 1, .checkpoint = 5, .deaths_at_most = 4, .suspicion = 3});
    world.run(900, 60000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    const State& state = world.state();
    redone += world.redone();
    forward += world.rolled_forward();
    if (world.deaths() == 0) continue;
    if (world.redone() + world.rolled_forward() == 0) continue;  // before the first step
    const bool salvaged = !state.salvage.cause.empty();
    if (!salvaged) {
      ++survived;
      several += state.epoch > 2;
      const int code = state.committed == of.rules.steps ? 0 : 128 + 15;
      EXPECT_EQ(state.ending->exit_code, code) << "seed " << seed;
      EXPECT_TRUE(code == 0 || world.stopped()) << "seed " << seed;
      EXPECT_EQ(state.saved, state.committed) << "seed " << seed;
    } else {
      ++hopeless;
      EXPECT_FALSE(world.whole()) << "seed " << seed << ": " << state.ending->sentence;
      EXPECT_EQ(state.ending->exit_code, 75) << "seed " << seed;
    }
  }
  EXPECT_GT(survived, 300 / kPart);  // the cases must have been met at all
  EXPECT_GT(several, 50 / kPart);
  EXPECT_GT(hopeless, 100 / kPart);
  EXPECT_GT(redone, 300 / kPart);
  EXPECT_GT(forward, 5 / kPart);
}

// Two live workers cannot reach each other, while both reach the coordinator: one of them is left
// out and may come back, and no step is lost.
TEST(DecideRandom, CutLinksLoseNothingWhileEveryStageHasAHolder) {
  int32_t cuts = 0, survived = 0, learned = 0;
  for (uint64_t seed = 0; seed < 600 / kPart; ++seed) {
    const Case of = make_long_case(seed);
    World world(seed, of.stages, of.pipelines, of.rules,
                {.death = 1, .checkpoint = 5, .deaths_at_most = 4, .joining = 30, .cut = 4});
    world.run(4000, 80000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    cuts += world.cuts();
    learned += world.received();
    survived += has_survived(world, of, seed);
  }
  EXPECT_GT(cuts, 300 / kPart);  // the cases must have been met at all
  EXPECT_GT(survived, 100 / kPart);
  EXPECT_GT(learned, 30 / kPart);
}

// New processes replace dead workers at any moment, also dead donors and joiners: every worker with
// a state has the committed one, in all its pieces.
TEST(DecideRandom, RejoinedWorkersHaveTheCommittedState) {
  int32_t survived = 0, hopeless = 0, learned = 0, whole = 0;
  for (uint64_t seed = 0; seed < 400 / kPart; ++seed) {
    const Case of = make_long_case(seed);
    World world(seed, of.stages, of.pipelines, of.rules, with_returns());
    world.run(6000, 80000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    const State& state = world.state();
    learned += world.received();
    if (world.redone() + world.rolled_forward() == 0) continue;
    if (!state.salvage.cause.empty()) {
      ++hopeless;
      EXPECT_FALSE(world.whole()) << "seed " << seed << ": " << state.ending->sentence;
      continue;
    }
    ++survived;
    whole += world.received() > 0 && !is_reduced(state);
    EXPECT_EQ(*state.ending, (Ending{0, ""})) << "seed " << seed;
    EXPECT_EQ(state.committed, of.rules.steps) << "seed " << seed;
    EXPECT_EQ(state.saved, of.rules.steps) << "seed " << seed;
  }
  EXPECT_GT(survived, 60 / kPart);  // the cases must have been met at all
  EXPECT_GT(hopeless, 60 / kPart);
  EXPECT_GT(learned, 200 / kPart);
  EXPECT_GT(whole, 50 / kPart);
}

// Workers rejoin while coordinators are replaced: a coordinator that starts during a state transfer
// does not know which pieces the joiner has.
TEST(DecideRandom, StateTransfersSurviveNewCoordinators) {
  int32_t survived = 0, learned = 0, restarts = 0;
  for (uint64_t seed = 0; seed < 400 / kPart; ++seed) {
    const Case of = make_long_case(seed);
    Chances chances = with_returns();
    chances.restart = 3;
    chances.restarts_at_most = 12;
    World world(seed, of.stages, of.pipelines, of.rules, chances);
    world.run(6000, 80000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    learned += world.received();
    restarts += world.restarts();
    survived += has_survived(world, of, seed) ? 1 : 0;
  }
  EXPECT_GT(survived, 60 / kPart);
  EXPECT_GT(learned, 100 / kPart);
  EXPECT_GT(restarts, 1000 / kPart);
}

// Runs that begin with fewer workers than they are planned for. The others join later, like workers
// that come back, also while coordinators are replaced.
TEST(DecideRandom, AbsentWorkersJoinLater) {
  int32_t learned = 0, grown = 0, whole = 0;
  for (uint64_t seed = 0; seed < 300 / kPart; ++seed) {
    const Case of = make_long_case(seed);
    Chances chances = with_returns();
    chances.absent = true;
    if (seed % 2 == 1) {
      chances.restart = 3;
      chances.restarts_at_most = 12;
    }
    World world(seed, of.stages, of.pipelines, of.rules, chances);
    world.run(6000, 80000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    const State& state = world.state();
    ASSERT_TRUE(state.ending) << "seed " << seed;
    learned += world.received();
    if (!state.grown || !state.salvage.cause.empty()) continue;
    ++grown;
    whole += !is_reduced(state);
    EXPECT_EQ(*state.ending, (Ending{0, ""})) << "seed " << seed;
    EXPECT_EQ(state.saved, of.rules.steps) << "seed " << seed;
  }
  std::printf("%d runs grew, %d to the end of which everybody was there\n", grown, whole);
  EXPECT_GT(learned, 150 / kPart);
  EXPECT_GT(grown, 25 / kPart);
  EXPECT_GT(whole, 15 / kPart);
}

// All of it in one run, in a different mixture for each seed. TENUTO_PLAYS says how many runs.
TEST(DecideRandom, EverythingAtOnceBreaksNoRule) {
  const char* wanted = std::getenv("TENUTO_PLAYS");
  const uint64_t plays = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 400 / kPart;
  int32_t survived = 0, restarts = 0, received = 0, resumed = 0;
  for (uint64_t seed = 0; seed < plays; ++seed) {
    const bool grows = seed % 4 == 0;
    Case of = grows ? make_long_case(seed) : make_case(seed);
    of.rules.survive = true;
    Chances chances{.death = 4,
                    .stop = seed % 3 == 0 ? 1 : 0,
                    .checkpoint = 5,
                    .deaths_at_most = 4,
                    .suspicion = 2};
    if (grows) chances = with_returns();
    if (seed % 2 == 0) chances.restart = 3, chances.restarts_at_most = 12;
    chances.resumes = seed % 5 != 0;
    chances.absent = seed % 16 == 0;
    chances.cut = seed % 7 == 0 ? 3 : 0;
    World world(seed, of.stages, of.pipelines, of.rules, chances);
    world.run(grows ? 4000 : 900, 120000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    survived += world.state().salvage.cause.empty() ? 1 : 0;
    restarts += world.restarts();
    received += world.received();
    resumed += world.resumed();
  }
  std::printf("%d runs went on to their end; %d restarts, %d transfers, %d resumed steps\n",
              survived, restarts, received, resumed);
  EXPECT_GT(survived, 0);
}

TEST(DecideRandom, BrokenRulesOfJoinersAreSeen) {
  for (const Bug bug : {Bug::HalfReceived, Bug::KeepsPieces}) {
    bool seen = false;
    for (uint64_t seed = 0; seed < 1000 && !seen; ++seed) {
      const Case of = make_long_case(seed);
      World world(seed, of.stages, of.pipelines, of.rules, with_returns(bug));
      world.run(6000, 20000);
      seen = world.failed();
    }
    EXPECT_TRUE(seen) << "bug " << static_cast<int>(bug);
  }
}

// The coordinator dies repeatedly: before it has written down a decision, between writing and
// telling it, and after that; in quiet steps, in recoveries and during a salvage. Nothing that was
// told is lost, and all steps are committed as without these deaths.
TEST(DecideRandom, ACoordinatorIsReplacedAtAnyMoment) {
  int32_t survived = 0, hopeless = 0, restarts = 0, recovering = 0, salvaging = 0;
  for (uint64_t seed = 0; seed < 3000 / kPart; ++seed) {
    Case of = make_case(seed);
    of.rules.survive = seed % 3 != 0;
    World world(seed, of.stages, of.pipelines, of.rules,
                {.death = 2,
                 .stop = 1,
                 .checkpoint = 5,
                 .deaths_at_most = 4,
                 .suspicion = 2,
                 .restart = 8,
                 .restarts_at_most = 12});
    world.run(900, 60000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    restarts += world.restarts();
    recovering += world.restarts_recovering();
    salvaging += world.restarts_salvaging();
    const State& state = world.state();
    const bool begun = state.committed > 0 || state.saved >= 0;
    if (!begun) continue;
    if (state.salvage.cause.empty()) {
      ++survived;
      const int code = state.committed == of.rules.steps ? 0 : 128 + 15;
      EXPECT_EQ(state.ending->exit_code, code) << "seed " << seed;
      EXPECT_TRUE(code == 0 || world.stopped()) << "seed " << seed;
      EXPECT_EQ(state.saved, state.committed) << "seed " << seed;
    } else {
      ++hopeless;
      EXPECT_TRUE(!world.whole() || !of.rules.survive)
          << "seed " << seed << ": " << state.ending->sentence;
      EXPECT_EQ(state.ending->exit_code, 75) << "seed " << seed;
    }
  }
  std::printf("%d restarts, %d of them in a recovery, %d while a run was saved for good\n",
              restarts, recovering, salvaging);
  EXPECT_GT(survived, 1000 / kPart);  // the cases must have been met at all
  EXPECT_GT(hopeless, 50 / kPart);
  EXPECT_GT(restarts, 3000 / kPart);
  EXPECT_GT(recovering, 300 / kPart);
  EXPECT_GT(salvaging, 30 / kPart);
}

// Workers report what they have of the open step and run the rest of it, while workers die again
// and come back, and coordinators are replaced: all values of the rest are always of one attempt,
// and so is every committed version.
TEST(DecideRandom, TheRestOfAStepIsOfOneAttempt) {
  int32_t survived = 0, resumed = 0, redone = 0, back = 0, learned = 0, restarts = 0;
  for (uint64_t seed = 0; seed < 2400 / kPart; ++seed) {
    Case of = seed % 8 == 0 ? make_long_case(seed) : make_case(seed);
    of.rules.survive = true;
    Chances chances{.death = 6, .checkpoint = 5, .deaths_at_most = 4, .suspicion = 3};
    if (seed % 8 == 0) chances = with_returns();
    if (seed % 2 == 0) chances.restart = 3, chances.restarts_at_most = 12;
    chances.resumes = true;
    World world(seed, of.stages, of.pipelines, of.rules, chances);
    world.run(seed % 8 == 0 ? 6000 : 900, 80000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    resumed += world.resumed();
    redone += world.redone() - world.resumed();
    back += world.taken_back();
    learned += world.received();
    restarts += world.restarts();
    survived += has_survived(world, of, seed) ? 1 : 0;
  }
  std::printf("%d steps went on, %d were done again, %d updates taken back\n", resumed, redone,
              back);
  EXPECT_GT(survived, 300 / kPart);  // the cases must have been met at all
  EXPECT_GT(resumed, 300 / kPart);
  EXPECT_GT(redone, 10 / kPart);
  EXPECT_GT(back, 50 / kPart);
  EXPECT_GT(learned, 50 / kPart);
  EXPECT_GT(restarts, 500 / kPart);
}

TEST(DecideRandom, BrokenRulesOfCoordinatorsAreSeen) {
  for (const Bug bug : {Bug::ToldFirst, Bug::TargetNotWritten, Bug::RestNotWritten}) {
    bool seen = false;
    for (uint64_t seed = 0; seed < 6000 && !seen; ++seed) {
      Case of = make_case(seed);
      of.rules.survive = true;
      World world(seed, of.stages, of.pipelines, of.rules,
                  {.death = 3,
                   .deaths_at_most = 3,
                   .suspicion = 3,
                   .bug = bug,
                   .restart = 40,
                   .restarts_at_most = 40,
                   .resumes = bug == Bug::RestNotWritten});
      world.run(900, 20000);
      seen = world.failed() || !world.state().ending;
    }
    EXPECT_TRUE(seen) << "bug " << static_cast<int>(bug);
  }
}

// If workers do not report their losses, the run ends early, but no step is committed without them.
TEST(DecideRandom, NoStepIsCommittedWithoutItsLosses) {
  for (uint64_t seed = 0; seed < 100 / kPart; ++seed) {
    Case of = make_case(seed);
    of.rules.survive = true;
    World world(seed, of.stages, of.pipelines, of.rules, {.bug = Bug::ForgetsLosses});
    world.run(400, 40000);
    ASSERT_EQ(world.fault(), "") << "seed " << seed;
    ASSERT_TRUE(world.state().ending) << "seed " << seed;
    EXPECT_EQ(world.state().ending->exit_code, 75) << "seed " << seed;
    EXPECT_EQ(world.state().committed, 0) << "seed " << seed;
    EXPECT_EQ(world.state().saved, 0) << "seed " << seed;
    EXPECT_NE(world.state().ending->sentence.find("micro-batches are lost"), std::string::npos)
        << "seed " << seed << ": " << world.state().ending->sentence;
  }
}

// A worker that breaks a rule is detected, so the plays above prove something.
TEST(DecideRandom, BrokenRulesOfWorkersAreSeen) {
  for (const Bug bug : {Bug::NoUndo, Bug::LateUndo, Bug::StepsAhead}) {
    // About one play in 3,000 shows this bug.
    if (kSanitized && bug == Bug::LateUndo) continue;
    bool seen = false;
    for (uint64_t seed = 0; seed < 10000 && !seen; ++seed) {
      Case of = make_case(seed);
      of.rules.survive = true;
      World world(seed, of.stages, of.pipelines, of.rules,
                  {.death = 6, .deaths_at_most = 3, .suspicion = 3, .bug = bug});
      world.run(900, 20000);
      seen = world.failed() || !world.state().ending;
    }
    EXPECT_TRUE(seen) << "bug " << static_cast<int>(bug);
  }
}

TEST(DecideRandom, APartOfALayerThatIsTakenForTheWholeIsSeen) {
  bool seen = false;
  for (uint64_t seed = 0; seed < 1200 && !seen; ++seed) {
    Case of = make_long_case(seed);
    of.stages = 2;
    of.rules.treatments.slow_links = of.rules.treatments.layers = Treatment::Adapt;
    Chances chances = with_returns();
    chances.layers = 25;
    chances.bug = Bug::HalfLayer;
    World world(seed, of.stages, of.pipelines, of.rules, chances);
    world.run(4000, 60000);
    seen = world.failed() || !world.fault().empty();
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace tenuto
