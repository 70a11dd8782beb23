// Jobs that share a host: with a ledger none is slowed by more than was taken from it.
#include "sync/jobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "ir/golden.h"

namespace tenuto {
namespace {

// Simulated times are rounded to nanoseconds, each time that a speed changes.
constexpr double kRounding = 1e-5;

// Eight replicas, four of them on the host, with a core each. The link of one elsewhere is slow.
SharedJob job_of(const std::string& name, double arrives_ms, bool may_leave) {
  SharedJob job;
  job.name = name;
  job.arrives = from_milliseconds(arrives_ms);
  job.scenario.base = {from_milliseconds(80), from_milliseconds(20)};
  job.scenario.apply = from_milliseconds(1);
  SlowPhase slow_link;
  slow_link.slow.push_back({7, 1, 6});
  job.scenario.phases.push_back(slow_link);
  job.here = 4;
  job.gradients = 400;
  job.may_leave = may_leave;
  return job;
}

void remove_jitter(SharedHost& host) {
  for (SharedJob& job : host.jobs) {
    job.scenario.compute_jitter = 0;
    job.scenario.transfer_jitter = 0;
  }
}

SharedReport simulated(const SharedHost& host) {
  const auto report = simulate_host(host);
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.value();
}

TEST(DivideCores, ByHand) {
  // Not enough for all: by weight.
  const std::vector<CoreDemand> scarce = {{4, 1000, 1000}, {0, 1000, 1000}, {4, 2000, 2000}};
  const std::vector<double> by_weight = divide_cores(8000, scarce);
  EXPECT_NEAR(by_weight[0], 2000 / 3.0, 1e-9);
  EXPECT_EQ(by_weight[1], 0);
  EXPECT_NEAR(by_weight[2], 4000 / 3.0, 1e-9);
  // The first cannot use its three quarters; what is left of them goes to the second.
  const std::vector<CoreDemand> uneven = {{1, 3000, 1000}, {1, 1000, 4000}};
  EXPECT_EQ(divide_cores(4000, uneven), (std::vector<double>{1000, 3000}));
  // Enough for all.
  EXPECT_EQ(divide_cores(6000, uneven), (std::vector<double>{1000, 4000}));
  EXPECT_TRUE(divide_cores(1000, {}).empty());
}

TEST(DivideCores, GivesAllThatIsThereByWeight) {
  Random random(5);
  int scarce = 0, guaranteed = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto cores = static_cast<double>(1 + random.below(20'000));
    std::vector<CoreDemand> demands(static_cast<size_t>(1 + random.below(6)));
    double weights = 0;
    for (CoreDemand& of : demands) {
      of.replicas = random.below(5);
      of.weight = static_cast<double>(1 + random.below(2000));
      of.most = static_cast<double>(1 + random.below(3000));
      weights += static_cast<double>(of.replicas) * of.weight;
    }
    const std::vector<double> each = divide_cores(cores, demands);
    double given = 0, most = 0, per_weight = -1;
    for (size_t i = 0; i < demands.size(); ++i) {
      const CoreDemand& of = demands[i];
      given += static_cast<double>(of.replicas) * each[i];
      most += static_cast<double>(of.replicas) * of.most;
      ASSERT_LE(each[i], of.most) << round;
      if (of.replicas == 0) continue;
      if (weights <= cores) {
        ASSERT_GE(each[i], std::min(of.most, of.weight) - 1e-6) << round;
      }
      if (each[i] == of.most) continue;
      // Those that get less than they can use, get the same per weight.
      if (per_weight < 0) per_weight = each[i] / of.weight;
      ASSERT_NEAR(each[i] / of.weight, per_weight, 1e-6 * per_weight) << round;
    }
    ASSERT_NEAR(given, std::min(cores, most), 1e-6 * cores) << round;
    scarce += most > cores;
    guaranteed += weights <= cores;
  }
  EXPECT_GT(scarce, 100);
  EXPECT_GT(guaranteed, 100);
}

TEST(SharedJobs, AJobForItselfHasAll) {
  SharedHost host;
  host.cores = 4000;
  for (const bool may_leave : {false, true}) {
    host.jobs = {job_of("alone", 0, may_leave)};
    const SharedOutcome of = simulated(host).jobs[0];
    const SharedResult& with = of.of(HostSharing::Ledger);
    EXPECT_EQ(with.time, of.of(HostSharing::NoLedger).time);
    EXPECT_EQ(with.time, of.of(HostSharing::NoPrevention).time);
    EXPECT_EQ(with.least, of.peak);
    EXPECT_EQ(with.was_asynchronous, may_leave);
    EXPECT_EQ(with.refusal, "");
    EXPECT_EQ(may_leave, of.slowed(HostSharing::Ledger) < -0.2);
  }
}

// Seven replicas take 100 ms and one, elsewhere, 200 ms: those of the host may compute for 180 ms
// instead of 80.
TEST(SharedJobs, NeedByHand) {
  SharedHost host;
  host.jobs = {job_of("one", 0, false)};
  remove_jitter(host);
  const SharedOutcome of = simulated(host).jobs[0];
  EXPECT_EQ(of.peak, 4000);
  EXPECT_EQ(of.need, 1778);  // 4000 x 80 / 180
}

// The job that stays has no slack: taking a core costs it a quarter of its progress, and gains the
// other one a tenth. So that one leaves synchrony with a lease of nothing, and keeps to its use.
// Without a ledger twelve cores are wanted at times, where there are eight.
TEST(SharedJobs, OneLeavesSynchronyAndTheOtherIsSlowedByNoMoreThanWasLeased) {
  SharedHost host = two_job_host(0);
  remove_jitter(host);
  const SharedReport report = simulated(host);
  const SharedOutcome& stays = report.jobs[0];
  const SharedOutcome& leaves = report.jobs[1];
  EXPECT_EQ(stays.need, 4000);
  EXPECT_EQ(leaves.need, 3556);  // 8000 x 80 / 180
  EXPECT_TRUE(leaves.of(HostSharing::Ledger).was_asynchronous);
  EXPECT_LT(leaves.slowed(HostSharing::Ledger), 0);
  EXPECT_EQ(stays.of(HostSharing::Ledger).lent_beyond, 0);
  EXPECT_EQ(stays.bound(HostSharing::Ledger), 0);
  EXPECT_EQ(stays.of(HostSharing::Ledger).time, stays.alone);
  EXPECT_TRUE(leaves.of(HostSharing::NoLedger).was_asynchronous);
  EXPECT_GT(stays.slowed(HostSharing::NoLedger), 0.1);
  EXPECT_LE(report.most_allowed, host.cores);
}

// With jitter: by no more than the little that mean times hide.
TEST(SharedJobs, WithoutALedgerTheOtherIsSlowedByMore) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const SharedOutcome stays = simulated(two_job_host(seed)).jobs[0];
    const double bound = stays.bound(HostSharing::Ledger);
    EXPECT_LE(stays.slowed(HostSharing::Ledger), bound + kRounding) << seed;
    EXPECT_GT(stays.slowed(HostSharing::NoLedger), bound + 0.05) << seed;
  }
}

TEST(SharedJobs, TheSlackOfOthersIsTakenAndNoMore) {
  SharedHost host;
  host.cores = 6000;
  host.jobs = {job_of("stays", 0, false), job_of("leaves", 3000, true)};
  const SharedReport report = simulated(host);
  const SharedOutcome& stays = report.jobs[0];
  EXPECT_TRUE(report.jobs[1].of(HostSharing::Ledger).was_asynchronous);
  EXPECT_GT(report.jobs[1].of(HostSharing::Ledger).borrowed, 0);
  EXPECT_GT(stays.of(HostSharing::Ledger).lent_slack, 0);
  EXPECT_EQ(stays.of(HostSharing::Ledger).lent_beyond, 0);
  EXPECT_EQ(stays.bound(HostSharing::Ledger), 0);
  EXPECT_LE(stays.slowed(HostSharing::Ledger), kRounding);
  EXPECT_LE(report.most_allowed, host.cores);
  // Without prevention the slack of others stays theirs.
  EXPECT_EQ(stays.of(HostSharing::NoPrevention).lent_slack, 0);
  EXPECT_EQ(report.jobs[1].of(HostSharing::NoPrevention).borrowed, 0);
}

// A core is an eighth of what the first job needs, and gains the second one more than that.
TEST(SharedJobs, WhatIsWorthItsPriceIsTakenBeyondSlack) {
  SharedHost host;
  host.cores = 9000;
  host.jobs = {job_of("stays", 0, false), job_of("leaves", 0, true)};
  host.jobs[0].scenario.phases = {};
  host.jobs[0].here = 8;
  host.jobs[1].here = 2;
  for (SharedJob& job : host.jobs) job.scenario.apply = {};
  remove_jitter(host);
  const SharedReport report = simulated(host);
  const SharedOutcome& stays = report.jobs[0];
  EXPECT_EQ(stays.need, 8000);
  const int64_t lent = stays.of(HostSharing::Ledger).lent_beyond;
  EXPECT_GT(lent, 0);
  EXPECT_EQ(stays.of(HostSharing::Ledger).least, 8000 - lent);
  EXPECT_GT(stays.slowed(HostSharing::Ledger), 0);
  EXPECT_LE(stays.slowed(HostSharing::Ledger), stays.bound(HostSharing::Ledger) + kRounding);
  EXPECT_EQ(stays.of(HostSharing::NoPrevention).time, stays.alone);
}

// The first takes of the slack of the second, which wants to leave synchrony, too.
TEST(SharedJobs, WhoLendsStaysSynchronousAndHearsWhy) {
  SharedHost host;
  host.cores = 6000;
  host.jobs = {job_of("first", 0, true), job_of("second", 0, true)};
  const SharedReport report = simulated(host);
  EXPECT_EQ(report.jobs[0].of(HostSharing::Ledger).refusal, "");
  EXPECT_GT(report.jobs[1].of(HostSharing::Ledger).lent_slack, 0);
  EXPECT_EQ(report.jobs[1].of(HostSharing::Ledger).refusal,
            "host host: job 1 lends to others, so it keeps its mode until they give back");
  EXPECT_EQ(report.jobs[1].of(HostSharing::NoLedger).refusal, "");
}

// A job that stays synchronous is slowed by at most what was taken from it, and all together are
// allowed at most what there is. Without a ledger some are slowed by more.
TEST(SharedJobs, TheBoundHoldsOverRandomHosts) {
  int left = 0, lent = 0, crossed = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(mix(seed, 7));
    const auto jobs = static_cast<int32_t>(2 + random.below(4));
    SharedHost host = random_host(seed, jobs);
    host.cores = 10'000 + 1000 * random.below(8);
    for (SharedJob& job : host.jobs) {
      job.gradients = static_cast<double>(50 + random.below(300));
      job.arrives /= 5;
    }
    const SharedReport report = simulated(host);
    EXPECT_LE(report.most_allowed, host.cores) << seed;
    for (const SharedOutcome& of : report.jobs) {
      for (const HostSharing sharing : {HostSharing::Ledger, HostSharing::NoPrevention}) {
        ASSERT_GT(of.of(sharing).time.count(), 0);
        if (of.of(sharing).was_asynchronous) continue;
        EXPECT_LE(of.slowed(sharing), of.bound(sharing) + kRounding) << seed;
      }
      left += of.of(HostSharing::Ledger).was_asynchronous;
      lent += of.of(HostSharing::Ledger).lent_slack > 0;
      EXPECT_EQ(of.of(HostSharing::NoPrevention).lent_slack, 0);
      EXPECT_EQ(of.of(HostSharing::NoPrevention).lent_beyond, 0);
      EXPECT_EQ(of.of(HostSharing::NoLedger).borrowed, 0);
      crossed += !of.of(HostSharing::NoLedger).was_asynchronous &&
                 of.slowed(HostSharing::NoLedger) > of.bound(HostSharing::Ledger) + kRounding;
    }
  }
  EXPECT_GT(left, 10);
  EXPECT_GT(lent, 0);
  EXPECT_GT(crossed, 0);
}

SharedOutcome outcome_of(int64_t need, int64_t peak, int64_t alone_s,
                         const std::array<double, kHostSharings>& seconds) {
  SharedOutcome outcome;
  outcome.need = need;
  outcome.peak = peak;
  outcome.alone = std::chrono::seconds(alone_s);
  for (size_t way = 0; way < kHostSharings; ++way) {
    outcome.results[way].time = from_milliseconds(1000 * seconds[way]);
    outcome.results[way].least = peak;
  }
  return outcome;
}

TEST(SharedJobs, Table) {
  SharedHost host;
  host.jobs = {job_of("stays", 0, false), job_of("leaves", 1500, true),
               job_of("refused", 2000, true)};
  SharedReport report;
  report.jobs = {outcome_of(4000, 4000, 10, {10.5, 10, 12.5}),
                 outcome_of(3556, 8000, 20, {15, 16, 14}), outcome_of(1778, 4000, 8, {8, 8, 9})};
  SharedResult& lends = report.jobs[0].results[0];
  lends.least = 3600;
  lends.lent_beyond = 400;
  SharedResult& borrows = report.jobs[1].results[0];
  borrows.borrowed = 1400;
  borrows.was_asynchronous = true;
  report.jobs[2].results[0].lent_slack = 1000;
  expect_golden("sync/golden/jobs.txt", to_text(host, report));
}

TEST(SharedJobs, NamesOfTheWaysToShare) {
  EXPECT_EQ(to_text(HostSharing::Ledger), "ledger");
  EXPECT_EQ(to_text(HostSharing::NoPrevention), "no prevention");
  EXPECT_EQ(to_text(HostSharing::NoLedger), "no ledger");
}

TEST(SharedJobs, Refusals) {
  SharedHost host;
  EXPECT_FALSE(simulate_host(host).ok());
  host.cores = 1999;
  host.jobs = {job_of("one", 0, false), job_of("two", 0, false)};
  EXPECT_EQ(simulate_host(host).error().message,
            "host host: expected 1 to 64 jobs and at least a core for each, found 2 jobs and 1.999 "
            "cores");
  host.cores = 4000;
  EXPECT_TRUE(simulate_host(host).ok());
  SharedHost crowded = host;
  crowded.cores = kMostHostAmount;
  crowded.jobs.resize(kMostHostJobs + 1, host.jobs[0]);
  EXPECT_FALSE(simulate_host(crowded).ok());
  for (const double kappa : {-0.1, 1.001 * kMostKappa}) {
    SharedHost other = host;
    other.kappa = kappa;
    EXPECT_FALSE(simulate_host(other).ok());
  }
  const auto refused = [&host](const auto& change) {
    SharedHost other = host;
    change(other.jobs[1]);
    const auto report = simulate_host(other);
    return !report.ok() && report.error().message.find("job two of host host") == 0;
  };
  EXPECT_TRUE(refused([](SharedJob& job) { job.here = 0; }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.here = 9; }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.cores = 0; }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.cores = 1001; }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.gradients = 0; }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.gradients = 1.001 * kMostSharedGradients; }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.arrives = Duration(-1); }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.arrives = std::chrono::hours(25); }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.scenario.base.compute = {}; }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.scenario.phases.resize(2); }));
  EXPECT_TRUE(refused([](SharedJob& job) { job.scenario.phases[0].length = Duration{}; }));
  EXPECT_TRUE(refused([](SharedJob& job) {
    job.may_leave = true;
    job.scenario.replicas = job.here = 1;
  }));
}

}  // namespace
}  // namespace tenuto
