// Rules of workers, sums and the coordinator's office, broken in the code itself: whole runs, which
// are right without a bug, go wrong with it. A run is a scenario by its seed; its threads take
// turns as they like, so a bug that shows at one seed today may show at the next one tomorrow.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>

#include "base/random.h"
#include "base/text.h"
#include "sanitized.h"
#include "seeded/seeded.h"
#include "seeded/whole_run.h"

namespace tenuto {
namespace {

// Sanitizers make every run many times as long.
constexpr int32_t kPart = kSanitized ? 5 : 1;
// A run takes some tens of milliseconds. If it has not ended after kLimit, it hangs, however busy
// the machine is. Runs with a bug that may make them hang are given kHangs alone, to save time.
constexpr Duration kLimit = std::chrono::seconds(60);
constexpr Duration kHangs = std::chrono::seconds(kSanitized ? 20 : 10);

using Draw = std::function<Scenario(uint64_t)>;

// A worker of two stages and two pipelines dies, or is taken for dead, at one of its calls in five
// steps; the step is done again.
Scenario replayed(uint64_t seed) {
  Random random(mix(seed, 5));
  Scenario drawn{.seed = seed};
  drawn.way = std::chrono::microseconds(random.below(3000));
  drawn.split_backward = random.below(2) == 0;
  drawn.resumes = false;
  drawn.blows = {
      {{static_cast<int32_t>(random.below(4))}, random.below(160), random.below(3) == 0}};
  return drawn;
}

// The same; the others go on with what is left of the step.
Scenario resumed(uint64_t seed) {
  Scenario drawn = replayed(seed);
  drawn.resumes = true;
  return drawn;
}

// Two workers of different stages.
Scenario resumed_twice(uint64_t seed) {
  Scenario drawn = resumed(seed);
  Random random(mix(seed, 6));
  drawn.blows = {};
  for (int32_t stage = 0; stage < 2; ++stage) {
    const WorkerId worker{static_cast<int32_t>(2 * random.below(2)) + stage};
    drawn.blows.push_back({worker, random.below(160), random.below(3) == 0});
  }
  return drawn;
}

// Three pipelines: sums have several members also when one is gone.
Scenario three_pipelines(uint64_t seed) {
  Scenario drawn = replayed(seed);
  Random random(mix(seed, 7));
  drawn.pipelines = 3;
  drawn.blows.front().worker = {static_cast<int32_t>(random.below(6))};
  return drawn;
}

// What is said is on its way for so long that a step may end before the commit of the one before is
// known.
Scenario slow_words(uint64_t seed) {
  Scenario drawn = replayed(seed);
  drawn.way = std::chrono::milliseconds(20);
  return drawn;
}

// Four holders of one stage, of which the last dies: sums are a good part of each one's calls.
Scenario one_stage(uint64_t seed) {
  Scenario drawn = resumed(seed);
  drawn.stages = 1;
  drawn.pipelines = 4;
  drawn.blows.front().worker = {3};
  return drawn;
}

// With so few weights that a part of the sum has the same name and size with three of them.
Scenario small_stage(uint64_t seed) {
  Scenario drawn = one_stage(seed);
  drawn.parameter_bytes = 16;
  return drawn;
}

// The same; the step is done again.
Scenario small_stage_again(uint64_t seed) {
  Scenario drawn = small_stage(seed);
  drawn.resumes = false;
  return drawn;
}

// Three coordinators end, each before or behind a telling.
Scenario replaced(uint64_t seed) {
  Scenario drawn = seed % 2 == 0 ? replayed(seed) : resumed(seed);
  Random random(mix(seed, 8));
  for (int32_t fall = 0; fall < 3; ++fall) {
    drawn.falls.push_back({random.below(15), random.below(2) == 0});
  }
  return drawn;
}

// All at once, and new processes come to the places of the dead.
Scenario everything(uint64_t seed) {
  Scenario drawn = resumed_twice(seed);
  drawn.falls = replaced(seed).falls;
  drawn.comes_back = true;
  return drawn;
}

TEST(SeededRun, WithoutABugEveryRunIsRight) {
  for (const Draw& draw :
       {Draw(replayed), Draw(resumed), Draw(resumed_twice), Draw(three_pipelines), Draw(slow_words),
        Draw(one_stage), Draw(small_stage), Draw(small_stage_again), Draw(replaced),
        Draw(everything)}) {
    for (uint64_t at = 0; at < 12 / kPart + 1; ++at) {
      ASSERT_EQ(play(draw(at), kLimit), "") << "seed " << at;
    }
  }
}

// Some run is wrong with the bug, and the same one right without it. `how`: what is said of it;
// empty: anything, or the run comes to no end.
// Draws are such that of `seeds` runs ten and more are wrong, whatever turns the threads take.
void expect_found(Seeded bug, const Draw& draw, uint64_t seeds, const std::string& how) {
  for (uint64_t at = 0; at < seeds; ++at) {
    seed(bug);
    const std::string fault = play(draw(at), how.empty() ? kHangs : kLimit);
    seed(Seeded::None);
    if (fault.empty()) continue;
    std::printf("%s: seed %s: %s\n", name_of(bug), cat(at).c_str(), fault.c_str());
    EXPECT_NE(fault.find(how), fault.npos) << fault;
    EXPECT_EQ(play(draw(at), kLimit), "") << "seed " << at << " without a bug";
    return;
  }
  ADD_FAILURE() << name_of(bug) << " is not found in " << seeds << " runs";
}

// What a wire may still deliver of an epoch before is refused by the tally of the sum.
TEST(SeededRun, W2FenceIsDown) {
  expect_found(Seeded::Fence, small_stage_again, 200, "each once, and is not: ");
}

TEST(SeededRun, W2StalePartsOfWhatIsLeft) {
  expect_found(Seeded::Stale, small_stage, 200, "each once, and is not: ");
}

TEST(SeededRun, W8UndoIsForgotten) { expect_found(Seeded::Undo, three_pipelines, 300, ""); }

TEST(SeededRun, W5AheadOfTheCommit) { expect_found(Seeded::Ahead, slow_words, 100, ""); }

TEST(SeededRun, W7KeepAccWhenAStepIsDoneAgain) {
  expect_found(Seeded::KeepAcc, replayed, 200, "other parameters than those of a plain loop");
}

TEST(SeededRun, C4JournalIsWrittenAfterTheTelling) {
  expect_found(Seeded::Journal, replaced, 200, "");
}

TEST(SeededRun, InPlaceReductionSpoilsThePartial) {
  expect_found(Seeded::InPlace, one_stage, 200, "other parameters than those of a plain loop");
}

TEST(SeededRun, FreeTotalWithTheUpdate) {
  expect_found(Seeded::FreeTotal, resumed_twice, 200, "is not here, and what is left begins with");
}

}  // namespace
}  // namespace tenuto
