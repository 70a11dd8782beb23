// Plans made ahead: which ones are kept for which situation, and which one a death gets.
#include "run/planner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "adapt/random_step.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

PlanRequest request_of(const Step& it, int64_t number) {
  RemedyTerms terms;
  terms.routes = true;
  terms.left = 1000;
  return {number, std::make_shared<const Plan>(it.plan), it.model, it.cluster, terms};
}

// One worker is slow, so that sharing out a dead worker's work evenly is not the best plan.
Step uneven_step(const MixtureSize& size) {
  Step it = step_of(size, 2 * size.stages);
  it.cluster.workers[5].speed = 0.5;
  return it;
}

// The request that control makes when these workers have died.
PlanRequest after_deaths(const Step& it, const std::vector<int32_t>& dead, int64_t number) {
  Step left = it;
  std::vector<bool> alive(left.cluster.workers.size(), true);
  for (const int32_t worker : dead) {
    alive[at(worker)] = left.cluster.workers[at(worker)].alive = false;
  }
  left.plan = without_workers(it.plan, alive).value();
  return request_of(left, number);
}

// Waits until there() is true; only the test's own time limit ends the wait.
template <class There>
void wait_until(There there) {
  while (!there()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Planned answer_of(Planner& planner, PlanRequest request) {
  planner.ask(std::move(request));
  std::vector<Planned> answers;
  wait_until([&] { return !(answers = planner.take()).empty(); });
  EXPECT_EQ(answers.size(), 1u);
  return answers.back();
}

TEST(PlanCache, IsKeyedByTheSituation) {
  const Step it = step_of({4, 3, 6}, 8);
  const PlanRequest request = request_of(it, 1);
  PlanCache cache;
  EXPECT_EQ(cache.find(request), nullptr);
  cache.keep(request, request.plan);
  EXPECT_EQ(cache.find(request), request.plan);
  const auto found_with = [&](auto change) {
    Step other = it;
    change(other);
    return cache.find(request_of(other, 2)) != nullptr;
  };
  EXPECT_TRUE(found_with([](Step& s) { s.plan.order = "another"; }));
  EXPECT_TRUE(found_with([](Step& s) { s.model.layers[0].forward += kStepOp / 20; }));
  EXPECT_FALSE(found_with([](Step& s) { s.model.layers[0].forward += kStepOp / 2; }));
  EXPECT_FALSE(found_with([](Step& s) { s.cluster.workers[3].alive = false; }));
  EXPECT_FALSE(found_with([](Step& s) { s.cluster.workers[3].speed = 0.5; }));
  EXPECT_FALSE(found_with([](Step& s) { s.cluster.exceptions[{{0}, {1}}] = {kStepOp, 0}; }));
  EXPECT_FALSE(found_with([](Step& s) { s.plan.stages[0].holders.pop_back(); }));
  EXPECT_FALSE(found_with([](Step& s) { s.plan.split_backward = !s.plan.split_backward; }));
  EXPECT_FALSE(found_with([](Step& s) { s.plan.limits[0].memory.most += 1; }));
}

TEST(PlanCache, ForgetsTheOldest) {
  const Step it = step_of({4, 3, 6}, 8);
  int64_t ops = 0;
  for (const auto& list : it.plan.schedule.lists) ops += static_cast<int64_t>(list.size());
  PlanCache cache(3 * ops);
  std::vector<PlanRequest> requests;
  for (int32_t w = 0; w < 5; ++w) {
    Step other = it;
    other.cluster.workers[at(w)].speed = 0.5;
    requests.push_back(request_of(other, w));
    cache.keep(requests.back(), requests.back().plan);
    cache.keep(requests.back(), requests.back().plan);  // replaces itself
  }
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(cache.find(requests[1]), nullptr);
  EXPECT_NE(cache.find(requests[2]), nullptr);
  PlanCache small(ops - 1);
  small.keep(requests[0], requests[0].plan);
  EXPECT_EQ(small.size(), 0u);
}

// Whichever worker dies first, its plan is ready, equals that of a search, and passes check().
TEST(Planner, APlanForADeathIsMadeAhead) {
  const Step it = uneven_step({4, 3, 6});
  const auto workers = static_cast<int32_t>(it.cluster.workers.size());
  Planner planner([] {});
  planner.make_ahead(request_of(it, 1));
  wait_until([&] { return planner.made_ahead() == workers; });
  int32_t better = 0;
  for (int32_t w = 0; w < workers; ++w) {
    const PlanRequest request = after_deaths(it, {w}, w + 1);
    const Planned planned = answer_of(planner, request);
    EXPECT_EQ(planned.request, w + 1);
    EXPECT_TRUE(planned.reason.find("made ahead") != std::string::npos) << planned.reason;
    const auto searched =
        choose_remedy(*request.plan, request.model, request.cluster, request.terms);
    ASSERT_TRUE(searched.ok());
    EXPECT_EQ(planned.plan != nullptr, searched.value().plan != nullptr);
    if (planned.plan == nullptr) continue;
    ++better;
    EXPECT_TRUE(check(*planned.plan).ok());
    EXPECT_EQ(*planned.plan, *searched.value().plan);
  }
  EXPECT_GT(better, workers / 2);
}

// Plans for two deaths are not made ahead; when the same is asked again, the answer is ready.
TEST(Planner, AnsweredRequestsAreKept) {
  const Step it = uneven_step({4, 3, 6});
  Planner planner([] {});
  const PlanRequest request = after_deaths(it, {1, 6}, 1);
  const Planned first = answer_of(planner, request);
  EXPECT_EQ(first.reason.find("made ahead"), std::string::npos) << first.reason;
  ASSERT_NE(first.plan, nullptr) << first.reason;
  PlanRequest again = request;
  again.request = 2;
  const Planned second = answer_of(planner, again);
  EXPECT_EQ(second.request, 2);
  EXPECT_NE(second.reason.find("made ahead"), std::string::npos) << second.reason;
  ASSERT_NE(second.plan, nullptr);
  EXPECT_EQ(*second.plan, *first.plan);
  again.plan = first.plan;  // already in force, and no plan is better
  EXPECT_EQ(answer_of(planner, again).plan, nullptr);
}

// The planner is destroyed while it makes plans ahead.
TEST(Planner, CanBeDestroyedAtAnyTime) {
  const Step it = uneven_step({8, 4, 16});
  for (int round = 0; round < 3; ++round) {
    Planner planner([] {});
    planner.make_ahead(request_of(it, 1));
    planner.make_ahead(request_of(it, 2));
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * round));
  }
}

TEST(Planner, WeighsStepsAheadOfTheNorm) {
  const Step it = step_of({4, 3, 6}, 8);
  PlanRequest request = request_of(it, 1);
  request.update = true;
  Planner planner([] {});
  const Planned answer = answer_of(planner, request);
  ASSERT_NE(answer.plan, nullptr) << answer.reason;
  EXPECT_TRUE(answer.plan->update.staggered);
  EXPECT_TRUE(check(*answer.plan).ok());
  EXPECT_GT(answer.bearable, 0.02);
  EXPECT_LT(answer.bearable, 0.5);
  EXPECT_NE(answer.reason.find("steps without waiting for the norm: "), std::string::npos)
      << answer.reason;
}

}  // namespace
}  // namespace tenuto
