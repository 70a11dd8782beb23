// Rules of salvage, broken in the code itself: on the cluster of hashes of salvage_test, which
// passes without a bug.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "adapt/random_losses.h"
#include "seeded/seeded.h"

namespace tenuto {
namespace {

// Expects that random losses fail with the bug, and that the first failure says `how`.
void expect_found(Seeded bug, int32_t runs, const std::string& how) {
  seed(bug);
  const auto [failed, first] = random_runs(runs, Broken::Nothing);
  seed(Seeded::None);
  std::printf("%s: %d of %d runs; %s\n", name_of(bug), failed, runs,
              first.substr(0, first.find(';')).c_str());
  EXPECT_GT(failed, 0) << name_of(bug) << " is not found";
  EXPECT_NE(first.find(how), first.npos) << first;
}

// check() refuses such a rest, and recover() then replays the whole step.
TEST(SeededSalvage, NoKeepLostValuesAreNotComputedAgain) {
  expect_found(Seeded::NoKeep, 200, "the rest is not right: ");
}

TEST(SeededSalvage, RedoneGradientsInATotalAreSummedAgain) {
  expect_found(Seeded::Redone, 100, "the rest is not right: ");
}

TEST(SeededSalvage, NoRedoAWorkerThatSteppedHasNoOps) {
  expect_found(Seeded::NoRedo, 400, "has stepped with a wrong total");
}

// Sums over runs of a small plan, one for each worker and event: the worker is lost after that
// event.
struct Sums {
  int64_t ops = 0, copied = 0, back = 0;
};

Sums lose_each() {
  const Plan plan = plan_of(2, 2, 2);
  const int64_t events = run_disturbed(plan, {1, {}, true, Broken::Nothing, {}}).events;
  Sums sums;
  for (int32_t worker = 0; worker < 4; ++worker) {
    for (int64_t event = 0; event <= events; ++event) {
      const Ran ran = run_disturbed(plan, {1, {{event, {worker}}}, true, Broken::Nothing, {}});
      EXPECT_EQ(ran.failure, "") << "worker " << worker << " after " << event;
      sums.ops += ran.ops;
      sums.copied += ran.copied;
      sums.back += ran.back;
    }
  }
  return sums;
}

// Ignoring a surviving total is no error: partials stay until the step is over, and their names say
// what is in them. So the sum is made again, correctly, with more work.
TEST(SeededSalvage, TotalIgnoringTotalsOnlyCostsWork) {
  const Sums right = lose_each();
  seed(Seeded::Total);
  const Sums bug = lose_each();
  seed(Seeded::None);
  std::printf("TOTAL: ops %ld, without it %ld; Steps taken back %ld, %ld; totals copied %ld, %ld\n",
              static_cast<long>(bug.ops), static_cast<long>(right.ops), static_cast<long>(bug.back),
              static_cast<long>(right.back), static_cast<long>(bug.copied),
              static_cast<long>(right.copied));
  EXPECT_EQ(bug.copied, 0);
  EXPECT_GT(right.copied, 0);
  EXPECT_GT(bug.ops, right.ops);
  EXPECT_GT(bug.back, right.back);
}

}  // namespace
}  // namespace tenuto
