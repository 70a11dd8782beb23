// Random mixtures of dead workers, slow workers and slow links: the routed step passes check() and
// runs to its end.
#include <gtest/gtest.h>

#include <algorithm>

#include "adapt/random_step.h"
#include "adapt/route.h"
#include "base/text.h"
#include "ir/check.h"
#include "sanitized.h"

namespace tenuto {
namespace {

constexpr MixtureSize kMost{8, 4, 16};
constexpr uint64_t kParts = 5, kOfAPart = kSanitized ? 400 : 2000;

class Mixtures : public testing::TestWithParam<uint64_t> {};

// With a barrier and without, ready and listed, split or not, memory from one micro-batch to all.
TEST_P(Mixtures, RunToTheEnd) {
  int dead = 0, slow = 0, links = 0;
  for (uint64_t i = 0; i < kOfAPart; ++i) {
    const uint64_t seed = GetParam() * kOfAPart + i;
    Random random(mix(97, seed));
    Step it = random_step(random, kMost);
    it.options.staggered = seed % 2 == 1;
    it.options.update = seed % 4 == 1;
    it.options.steps = 2;
    it.options.lower_bound = false;
    const auto mesh = mesh_of(it.plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(mesh.ok()) << mesh.error().message;
    const Routed routed = search_route(mesh.value(), kFirstRoute);
    const Dispatch dispatch = seed % 8 < 4 ? Dispatch::Ready : Dispatch::Listed;
    const RoutedStep& step = dispatch == Dispatch::Ready ? routed.ready : routed.listed;
    const Plan plan = with_routing(it.plan, mesh.value(), step, dispatch);
    const Status right = check(plan, sizes_of(it.model, plan.stages));
    ASSERT_TRUE(right.ok()) << "seed " << seed << ": " << right.error().message;
    const auto timeline = price(plan, it.model, it.cluster, it.options);
    ASSERT_TRUE(timeline.ok()) << "seed " << seed << ": " << timeline.error().message;
    // Without a common start, the time is the mean of a few steps, which may be below the bound.
    if (mesh.value().pace != Pace::Apart) {
      ASSERT_GE(step.time, routed.bound) << "seed " << seed;
    }
    for (const Worker& worker : it.cluster.workers) {
      dead += !worker.alive;
      slow += worker.alive && worker.speed != 1;
    }
    links += !it.cluster.exceptions.empty();
  }
  EXPECT_GT(std::min({dead, slow, links}), static_cast<int>(kOfAPart / 4));
}

INSTANTIATE_TEST_SUITE_P(Parts, Mixtures, testing::Range(uint64_t{0}, kParts));

}  // namespace
}  // namespace tenuto
