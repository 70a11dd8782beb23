// What modes get from the replicas' times, and the scenarios' times themselves.
#include "sync/formed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"
#include "sync/progress.h"

namespace tenuto {
namespace {

std::vector<IterationTime> times(const std::vector<double>& compute,
                                 const std::vector<double>& transfer) {
  std::vector<IterationTime> all;
  for (size_t i = 0; i < compute.size(); ++i) {
    all.push_back({from_milliseconds(compute[i]), from_milliseconds(transfer[i])});
  }
  return all;
}

std::string formed(const std::string& mode, const std::vector<IterationTime>& all,
                   int64_t micros = 8) {
  const auto made = form(sync_mode_from_text(mode).value(), all, micros);
  return made.ok() ? to_text(made.value()) : made.error().message;
}

TEST(Formed, ByTime) {
  const auto all = times({80, 80, 80, 80, 170}, {20, 300, 21, 22, 20});
  EXPECT_EQ(formed("groups", all), "groups:0,2,3/1/4");
  EXPECT_EQ(formed("ring:3", all), "ring:3:0,2,2,3,0");
  EXPECT_EQ(formed("grace:3", all), "grace:3:12.24ms");
  EXPECT_EQ(formed("grace:3:5ms", all), "grace:3:5ms");
  EXPECT_EQ(formed("rebalanced", times({100, 100, 100, 200}, {0, 0, 0, 0}), 8),
            "rebalanced:9,9,9,5");
  EXPECT_EQ(formed("ring:6", all),
            "sync mode ring:6: expected a count from 1 to 5 with 5 replicas, found 6");
}

TEST(Formed, RandomTimesGiveModesThatTheRuleAccepts) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    const auto replicas = static_cast<size_t>(2 + random.below(20));
    std::vector<double> compute, transfer;
    for (size_t i = 0; i < replicas; ++i) {
      compute.push_back(1 + 100 * random.uniform());
      transfer.push_back(random.below(3) == 0 ? 0 : 100 * random.uniform());
    }
    const auto all = times(compute, transfer);
    const auto micros = 1 + random.below(32);
    for (const char* name : {"groups", "ring:2", "rebalanced", "grace:1"}) {
      const auto made = form(sync_mode_from_text(name).value(), all, micros);
      ASSERT_TRUE(made.ok()) << made.error().message;
      EXPECT_TRUE(is_formed(made.value()));
      EXPECT_TRUE(check(made.value(), static_cast<int32_t>(replicas)).ok());
    }
    const std::vector<int64_t> shares = shares_by_time(all, micros);
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), int64_t{0}),
              static_cast<int64_t>(replicas) * micros);
    // No micro-batch can move and make the slowest replica faster, apart from the limits.
    const auto end = [&](size_t i, int64_t share) {
      return transfer[i] + compute[i] * static_cast<double>(share) / static_cast<double>(micros);
    };
    for (size_t from = 0; from < replicas; ++from) {
      for (size_t to = 0; to < replicas; ++to) {
        const bool allowed =
            4 * (shares[from] - 1) >= micros && shares[from] > 1 && shares[to] + 1 <= 2 * micros;
        if (from == to || !allowed) continue;
        const double step =
            *std::max_element(compute.begin(), compute.end()) / static_cast<double>(micros);
        EXPECT_LE(end(from, shares[from]), end(to, shares[to] + 1) + 2 * step);
      }
    }
  }
}

TEST(Scenario, DrawnTimesHaveTheirMeansAndDoNotDependOnOrder) {
  const SyncScenario& scenario = *find_sync_scenario("random");
  const IterationTimes drawn = times_of(scenario, 5);
  double compute = 0, transfer = 0;
  int slow = 0;
  constexpr int kDraws = 20000;
  for (int i = kDraws - 1; i >= 0; --i) {
    const IterationTime one = drawn(3, i, Duration{});
    compute += to_milliseconds(one.compute) / kDraws;
    const bool is_slow = one.transfer > from_milliseconds(100);
    slow += is_slow;
    if (!is_slow) transfer += to_milliseconds(one.transfer);
  }
  EXPECT_NEAR(compute, 80, 0.2);
  EXPECT_NEAR(transfer / (kDraws - slow), 20, 0.2);
  EXPECT_NEAR(static_cast<double>(slow) / kDraws, 0.1, 0.01);
  const IterationTimes again = times_of(scenario, 5);
  EXPECT_EQ(again(3, 17, Duration{}).compute, drawn(3, 17, Duration{}).compute);
}

TEST(Scenario, PhasesComeInTurn) {
  const IterationTimes drawn = times_of(*find_sync_scenario("phases"), 1);
  const auto transfer_at = [&](int32_t replica, double seconds) {
    return to_milliseconds(drawn(replica, 7, from_milliseconds(1000 * seconds)).transfer);
  };
  EXPECT_LT(transfer_at(0, 1), 40);
  EXPECT_GT(transfer_at(0, 7), 200);
  EXPECT_LT(transfer_at(1, 7), 40);
  EXPECT_GT(transfer_at(1, 13), 100);
  EXPECT_LT(transfer_at(0, 19), 40);
  EXPECT_EQ(transfer_at(0, 31), transfer_at(0, 1));  // from the first again
}

TEST(Scenario, PairsAreSlowTogether) {
  const IterationTimes drawn = times_of(*find_sync_scenario("pairs"), 2);
  int slow = 0;
  for (int64_t i = 0; i < 2000; ++i) {
    const bool left = drawn(2, i, Duration{}).transfer > from_milliseconds(100);
    const bool right = drawn(3, i, Duration{}).transfer > from_milliseconds(100);
    EXPECT_EQ(left, right);
    slow += left;
  }
  EXPECT_NEAR(slow / 2000.0, 0.08, 0.02);
}

TEST(Progress, KappaIsFoundAgain) {
  Random random(4);
  for (int i = 0; i < 200; ++i) {
    const double kappa = 1.5 * random.uniform();
    const double low = 3 + random.uniform(), high = 5 + 2 * random.uniform();
    const LossDrop fresh{low, value_of_gradient(low, 8, kappa)};
    const LossDrop old{high, value_of_gradient(high, 8, kappa)};
    EXPECT_NEAR(kappa_of(fresh, old, 8), kappa, 1e-9);
  }
  EXPECT_EQ(kappa_of({3, 1.0}, {7, 1.2}, 8), 0);            // old gradients were worth more
  EXPECT_EQ(kappa_of({3, 1.0}, {7, 0.01}, 8), kMostKappa);  // or nothing
}

}  // namespace
}  // namespace tenuto
