#include <gtest/gtest.h>

#include <algorithm>

#include "app/config.h"
#include "app/make_job_plan.h"
#include "base/text.h"
#include "ir/check.h"
#include "plan/make_plan.h"

namespace tenuto {
namespace {

Job job_of(std::vector<std::string> flags) {
  flags.insert(flags.begin(), {"device.kind=paced", "parallel.stages=4", "parallel.pipelines=2",
                               "parallel.micros=8"});
  const auto loaded = load_effective_job("", flags);
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  return loaded.value().job;
}

Plan plan_of(std::vector<std::string> flags) {
  auto plan = make_job_plan(job_of(std::move(flags)));
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return std::move(plan).value();
}

// Memory for as many micro-batches as stages: ready dispatch may run a forward earlier than the
// list would.
TEST(JobPlan, DispatchIsListedWhereLateMessagesCostMore) {
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

TEST(JobPlan, DispatchIsListedForBlockingMessages) {
  for (const char* order : {"1f1b", "zb-h1", "auto"}) {
    EXPECT_EQ(plan_of({cat("parallel.order=", order), "network.send=blocking"}).dispatch,
              Dispatch::Listed)
        << order;
  }
}

Fault absent(const std::string& worker) {
  Fault fault;
  fault.kind = "dead-worker";
  fault.worker = worker;
  return fault;
}

std::vector<std::vector<WorkerId>> holders_of(const Plan& plan) {
  std::vector<std::vector<WorkerId>> holders;
  for (const Stage& stage : plan.stages) holders.push_back(stage.holders);
  return holders;
}

TEST(JobPlan, WithAllWorkersPresentTheWholePlanIsUsed) {
  for (const char* order : {"1f1b", "auto", "interleaved"}) {
    Job job = job_of({cat("parallel.order=", order), "parallel.stages=2", "parallel.pipelines=3"});
    const Plan everybody = make_job_plan(job).value();
    EXPECT_FALSE(make_plan_of_all(job, everybody)) << order << ": nobody is absent";
    job.faults = {absent("2.1")};
    const Plan first = make_job_plan(job).value();
    EXPECT_NE(holders_of(first), holders_of(everybody)) << order;
    const auto all = make_plan_of_all(job, first);
    ASSERT_TRUE(all) << order;
    EXPECT_EQ(*all, everybody) << order;
  }
}

// All holders of stage 0 but one are absent, so another worker moves there; the absent ones then
// take the free places.
TEST(JobPlan, MovedWorkersStayWhenAbsentOnesJoin) {
  Job job = job_of({"parallel.order=1f1b", "parallel.stages=2", "parallel.pipelines=4"});
  job.faults = {absent("1.0"), absent("2.0"), absent("3.0")};
  const Plan first = make_job_plan(job).value();
  ASSERT_EQ(first.stages[0].holders.size(), 2U);
  const auto all = make_plan_of_all(job, first);
  ASSERT_TRUE(all);
  ASSERT_TRUE(check(*all).ok()) << check(*all).error().message;
  for (size_t s = 0; s < 2; ++s) {
    EXPECT_EQ(all->stages[s].holders.size(), 4U);
    for (const WorkerId worker : first.stages[s].holders) {
      const auto& holders = all->stages[s].holders;
      EXPECT_NE(std::find(holders.begin(), holders.end(), worker), holders.end()) << worker.value;
    }
  }
}

}  // namespace
}  // namespace tenuto
