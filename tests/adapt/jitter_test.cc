// Ready dispatch against fixed orders when every message has its own random delay.
#include "adapt/jitter.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "base/text.h"
#include "sanitized.h"

namespace tenuto {
namespace {

// Ready dispatch does not know the delays in advance. In every setting it is at most half a percent
// slower than the better of the two fixed orders made for the delays.
TEST(Jitter, ReadyDispatchIsNotSlowerThanFixedOrders) {
  ASSERT_EQ(jitters().size(), 24u);
  double worst = -1, worst_planned = -1;
  for (size_t at = 0; at < jitters().size(); at += kSanitized ? 5 : 1) {
    const Jitter jitter = jitters()[at];
    const JitterTimes times = run_jitter(jitter, 20, {1'000'000, 3'000, 6'000'000});
    const double above = times.above_fixed(times.ready);
    const double planned_above = times.above_fixed(times.ready_planned);
    const auto setting = cat(jitter.micros, " micro-batches, memory for ", jitter.memory,
                             ", delay ", jitter.mean, " +- ", jitter.deviation);
    std::printf("%-52s %.3f %.3f %.3f %.3f %.3f\n", setting.c_str(), times.fixed_zero_bubble,
                times.fixed_for_mean, times.fixed_for_mean_and_one, times.ready,
                times.ready_planned);
    EXPECT_LE(above, 0.005) << setting;
    EXPECT_LE(planned_above, 0.005) << setting;
    worst = std::max(worst, above);
    worst_planned = std::max(worst_planned, planned_above);
  }
  std::printf("against the better fixed order at most %.2f %%, with planned limits %.2f %%\n",
              100 * worst, 100 * worst_planned);
}

}  // namespace
}  // namespace tenuto
