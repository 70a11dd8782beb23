#include <gtest/gtest.h>

#include "app/config.h"
#include "app/make_job_plan.h"
#include "base/text.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

Plan plan_of(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"device.kind=paced", "parallel.stages=4", "parallel.pipelines=2",
                               "parallel.micros=8"});
  const auto loaded = load_effective_job("", flags);
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  auto plan = make_job_plan(loaded.value().job);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return std::move(plan).value();
}

// As many micro-batches held as stages: ready dispatch takes forwards that lists would put off.
TEST(JobPlan, ListsAreKeptToWhereMessagesThatComeALittleLateWouldCostMore) {
  EXPECT_EQ(plan_of({"parallel.order=zb-h1"}).dispatch, Dispatch::Listed);
  EXPECT_EQ(plan_of({"parallel.order=zb-h1", "parallel.dispatch=ready"}).dispatch, Dispatch::Ready);
}

TEST(JobPlan, DispatchIsReadyWhereItCostsNothing) {
  for (const char* order : {"1f1b", "gpipe", "auto"}) {
    EXPECT_EQ(plan_of({cat("parallel.order=", order)}).dispatch, Dispatch::Ready) << order;
    EXPECT_EQ(plan_of({cat("parallel.order=", order), "parallel.dispatch=listed"}).dispatch,
              Dispatch::Listed)
        << order;
  }
}

TEST(JobPlan, MessagesThroughTheQueueKeepToTheLists) {
  for (const char* order : {"1f1b", "zb-h1", "auto"}) {
    EXPECT_EQ(plan_of({cat("parallel.order=", order), "network.send=blocking"}).dispatch,
              Dispatch::Listed)
        << order;
  }
}

}  // namespace
}  // namespace tenuto
