// The ledger of a host: cases by hand, all small cases against brute force, and random histories of
// many jobs with the promises that must hold after each call.
#include "sync/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr HostJob kFirst{0}, kSecond{1}, kThird{2};

HostUse cores(int64_t use, int64_t slack, double sensitivity = 0.001) {
  return {{use, 0, 0}, {slack, 0, 0}, {sensitivity, 0, 0}};
}

LeaseRequest more(HostJob job, int64_t amount, double gain = 0) {
  LeaseRequest request{job, {}, seconds(10)};
  request.options.push_back({{amount, 0, 0}, gain});
  return request;
}

HostLedger ledger_of(int64_t millicores, LedgerRules rules = {}) {
  return HostLedger::make("a", {millicores, 1000, 1000}, rules).value();
}

std::vector<EndedLease> announced(HostLedger& ledger, HostJob job, const HostUse& use,
                                  Duration now = {}) {
  auto ended = ledger.announce(job, use, now);
  EXPECT_TRUE(ended.ok()) << ended.error().message;
  return std::move(ended).value();
}

LeaseAnswer asked(HostLedger& ledger, const LeaseRequest& request, Duration now = {}) {
  const auto answer = ledger.ask(request, now);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  return answer.value();
}

TEST(HostLedger, UnusedThenSlackThenByProgress) {
  HostLedger ledger = ledger_of(8000);
  announced(ledger, kFirst, cores(2000, 0));
  announced(ledger, kSecond, cores(4000, 1000, 0.00025));
  EXPECT_EQ(ledger.unused()[0], 2000);
  EXPECT_EQ(asked(ledger, more(kFirst, 3000)).reason,
            "host a: job 0 may take 3 cores, 0 MB/s of sending and 0 MB/s of receiving more until "
            "10.0 s; others lose 0.0 % of their progress");
  EXPECT_EQ(ledger.allowed(kFirst)[0], 5000);
  EXPECT_EQ(ledger.allowed(kSecond)[0], 3000);
  // A core more is a quarter of the other's progress.
  EXPECT_EQ(asked(ledger, more(kFirst, 4000, 0.25)).reason,
            "host a: job 0 would gain 25.0 % of its progress, and others would lose 25.0 %");
  EXPECT_EQ(ledger.allowed(kFirst)[0], 5000);
  EXPECT_TRUE(asked(ledger, more(kFirst, 4000, 0.26)).granted);
  EXPECT_EQ(ledger.allowed(kSecond)[0], 2000);
  EXPECT_EQ(asked(ledger, more(kFirst, 6000, 9)).reason,
            "host a: job 0 needs 6 cores more, and there are 2 cores unused, 1 core of others' "
            "slack and 1.5 cores that may be taken beyond it");
  ledger.give_back(kFirst);
  EXPECT_EQ(ledger.allowed(kFirst)[0], 2000);
  EXPECT_EQ(ledger.allowed(kSecond)[0], 4000);
}

// A core costs the second 25 % of its progress. One core gains the first 30 %, a second one 20 %.
TEST(HostLedger, TheBestOfSeveralOptions) {
  HostLedger ledger = ledger_of(4000);
  announced(ledger, kFirst, cores(0, 0));
  announced(ledger, kSecond, cores(4000, 0, 0.00025));
  LeaseRequest request = more(kFirst, 2000, 0.5);
  request.options.push_back({{1000, 0, 0}, 0.3});
  request.options.push_back({{0, 0, 0}, 0.01});
  EXPECT_TRUE(asked(ledger, request).granted);
  EXPECT_EQ(ledger.lease_of(kFirst)->amount[0], 1000);
  EXPECT_EQ(ledger.lease_of(kFirst)->loss, 0.25);
  // A lease of nothing costs nobody anything, and keeps its job from lending.
  request.options[1].gain = 0.25;
  EXPECT_TRUE(asked(ledger, request).granted);
  EXPECT_EQ(ledger.lease_of(kFirst)->amount, HostAmounts{});
  EXPECT_EQ(ledger.allowed(kSecond)[0], 4000);
  // The reason of a refusal is that of the first option.
  request.options.pop_back();
  const LeaseAnswer answer = asked(ledger, request);
  EXPECT_FALSE(answer.granted);
  EXPECT_EQ(answer.reason,
            "host a: job 0 would gain 50.0 % of its progress, and others would lose 50.0 %");
  EXPECT_EQ(ledger.lease_of(kFirst)->amount, HostAmounts{});
}

TEST(HostLedger, WithoutPreventionOnlyWhatNobodyUsesIsLeased) {
  LedgerRules rules;
  rules.takes_from_others = false;
  HostLedger ledger = ledger_of(4000, rules);
  announced(ledger, kFirst, cores(1000, 0));
  announced(ledger, kSecond, cores(2500, 2000));
  EXPECT_TRUE(asked(ledger, more(kFirst, 500)).granted);
  EXPECT_EQ(asked(ledger, more(kFirst, 501, 9)).reason,
            "host a: job 0 needs 0.501 cores more, and there are 0.5 cores unused");
  EXPECT_EQ(ledger.lent(kSecond).slack, HostAmounts{});
}

TEST(HostLedger, WhoLendsDoesNotBorrow) {
  HostLedger ledger = ledger_of(4000);
  announced(ledger, kFirst, cores(2000, 1000));
  announced(ledger, kSecond, cores(2000, 1000));
  ASSERT_TRUE(asked(ledger, more(kFirst, 500)).granted);
  EXPECT_EQ(asked(ledger, more(kSecond, 100)).reason,
            "host a: job 1 lends to others, so it keeps its mode until they give back");
  // Who borrows does not wait any more, so its slack is not there for a third one.
  announced(ledger, kThird, cores(0, 0));
  EXPECT_TRUE(asked(ledger, more(kThird, 500)).granted);
  EXPECT_FALSE(asked(ledger, more(kThird, 501)).granted);
}

TEST(HostLedger, LeasesEndWithTheirTimeAndTheirJob) {
  HostLedger ledger = ledger_of(4000, {seconds(30), seconds(5), 0.5, true});
  announced(ledger, kFirst, cores(1000, 0));
  announced(ledger, kSecond, cores(3000, 1000));
  ASSERT_TRUE(asked(ledger, more(kFirst, 1000)).granted);
  EXPECT_TRUE(ledger.advance(seconds(5) - milliseconds(1)).value().empty());
  const auto over = ledger.advance(seconds(5)).value();
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].reason, "its time was over at 5.0 s");
  EXPECT_EQ(ledger.allowed(kSecond)[0], 3000);
  // The second goes on announcing, the first does not.
  announced(ledger, kSecond, cores(3000, 1000), seconds(29));
  ASSERT_TRUE(asked(ledger, more(kFirst, 1000), seconds(29)).granted);
  const auto gone = ledger.advance(seconds(30)).value();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].reason, "job 0 of host a is gone");
  EXPECT_FALSE(ledger.knows(kFirst));
  EXPECT_EQ(ledger.allowed(kFirst), HostAmounts{});
  EXPECT_EQ(asked(ledger, more(kFirst, 1), seconds(30)).reason,
            "host a: job 0 has to announce its use before it asks, and again every 30.0 s");
}

// Who asks later hears which leases have ended.
TEST(HostLedger, AnAnswerNamesTheLeasesThatHaveEnded) {
  HostLedger ledger = ledger_of(4000, {seconds(30), seconds(5), 0.5, true});
  announced(ledger, kFirst, cores(1000, 0));
  announced(ledger, kSecond, cores(1000, 0));
  ASSERT_TRUE(asked(ledger, more(kFirst, 2000)).granted);
  EXPECT_FALSE(asked(ledger, more(kSecond, 500), seconds(4)).granted);
  const LeaseAnswer answer = asked(ledger, more(kSecond, 500), seconds(5));
  EXPECT_TRUE(answer.granted);
  ASSERT_EQ(answer.ended.size(), 1u);
  EXPECT_EQ(answer.ended[0].lease.job, kFirst);
  EXPECT_EQ(answer.ended[0].reason, "its time was over at 5.0 s");
}

TEST(HostLedger, AnotherUseEndsTheNewestLeases) {
  HostLedger ledger = ledger_of(6000);
  announced(ledger, kFirst, cores(1000, 0));
  announced(ledger, kSecond, cores(1000, 0));
  announced(ledger, kThird, cores(2000, 1000));
  ASSERT_TRUE(asked(ledger, more(kFirst, 1000)).granted);
  ASSERT_TRUE(asked(ledger, more(kSecond, 2000)).granted);  // 1000 unused, 1000 of slack
  EXPECT_TRUE(announced(ledger, kThird, cores(2000, 1000)).empty());
  const auto ended = announced(ledger, kThird, cores(2000, 0));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].lease.job, kSecond);
  EXPECT_EQ(ended[0].reason, "job 2 of host a announced another use");
  EXPECT_EQ(announced(ledger, kThird, cores(3500, 0)).size(), 1u);
  // More is used than there is: nothing is leased, whatever slack there is.
  announced(ledger, kThird, cores(6000, 5000));
  EXPECT_EQ(asked(ledger, more(kFirst, 1)).reason,
            "host a: job 0 needs 0.001 cores more, and all jobs together use 8 cores, where there "
            "are 6 cores");
}

// A lease that takes nothing of what is missing stays, also if it is newer.
TEST(HostLedger, OnlyLeasesThatTakeWhatIsMissingEnd) {
  HostLedger ledger = ledger_of(4000);
  announced(ledger, kFirst, cores(1000, 0));
  announced(ledger, kSecond, cores(1000, 0));
  announced(ledger, kThird, cores(2000, 1000));
  ASSERT_TRUE(asked(ledger, more(kFirst, 1000)).granted);
  LeaseRequest sending = more(kSecond, 0);
  sending.options[0].more[1] = 1000;
  ASSERT_TRUE(asked(ledger, sending).granted);
  const auto ended = announced(ledger, kThird, cores(2000, 0));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].lease.job, kFirst);
  EXPECT_NE(ledger.lease_of(kSecond), nullptr);
}

TEST(HostLedger, WhatAJobHadLentIsUnusedWhenItLeaves) {
  HostLedger ledger = ledger_of(4000);
  announced(ledger, kFirst, cores(1000, 0));
  announced(ledger, kSecond, cores(3000, 1000, 0.0001));
  ASSERT_TRUE(asked(ledger, more(kFirst, 1500, 1)).granted);
  EXPECT_GT(ledger.leases()[0].loss, 0);
  ledger.remove(kSecond);
  ASSERT_EQ(ledger.leases().size(), 1u);
  EXPECT_EQ(ledger.leases()[0].unused[0], 1500);
  EXPECT_EQ(ledger.leases()[0].loss, 0);
  EXPECT_EQ(ledger.unused()[0], 1500);
}

TEST(HostLedger, SlackIsThatOfTheReplicaWithTheLeast) {
  const std::vector<Duration> busy = {milliseconds(80), milliseconds(80)};
  const std::vector<Duration> whole = {milliseconds(100), milliseconds(110)};
  // The second may stretch 80 ms to 160 ms.
  EXPECT_EQ(slack_of(4000, busy, whole, milliseconds(190)), 2000);
  EXPECT_EQ(slack_of(4000, busy, whole, milliseconds(110)), 0);
  EXPECT_EQ(slack_of(4000, {}, {}, milliseconds(110)), 0);
}

TEST(HostLedger, RefusesWhatCannotBe) {
  EXPECT_FALSE(HostLedger::make("a", {-1, 0, 0}).ok());
  EXPECT_FALSE(HostLedger::make("a", {kMostHostAmount + 1, 0, 0}).ok());
  EXPECT_FALSE(HostLedger::make("a", {}, {seconds(1), seconds(1), 1.5, true}).ok());
  EXPECT_FALSE(HostLedger::make("a", {}, {seconds(0), seconds(1), 0.5, true}).ok());
  HostLedger ledger = ledger_of(4000);
  EXPECT_FALSE(ledger.announce(kFirst, cores(1, 2), {}).ok());
  EXPECT_FALSE(ledger.announce(kFirst, cores(2, 1, -1), {}).ok());
  EXPECT_FALSE(asked(ledger, more(kFirst, 1)).granted);
  announced(ledger, kFirst, cores(0, 0), seconds(2));
  EXPECT_FALSE(ledger.advance(seconds(1)).ok());
  EXPECT_FALSE(ledger.ask(more(kFirst, -1), seconds(2)).ok());
  EXPECT_FALSE(ledger.ask({kFirst, {}, seconds(10)}, seconds(2)).ok());
  for (int32_t job = 1; job < static_cast<int32_t>(kMostHostJobs); ++job) {
    announced(ledger, {job}, cores(0, 0), seconds(2));
  }
  const auto beyond = ledger.announce({static_cast<int32_t>(kMostHostJobs)}, {}, seconds(2));
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code, Code::Exhausted);
}

// The least loss at which `amount` can be had, by trying all divisions; -1 = not at all.
int64_t least_loss(int64_t amount, int64_t unused, const std::vector<HostUse>& others) {
  int64_t best = -1;
  const HostUse& one = others[0];
  const HostUse& two = others[1];
  const auto most = [](const HostUse& of) { return (of.use[0] - of.slack[0]) / 2; };
  for (int64_t free = 0; free <= unused; ++free) {
    for (int64_t a = 0; a <= one.slack[0] + most(one); ++a) {
      const int64_t b = amount - free - a;
      if (b < 0 || b > two.slack[0] + most(two)) continue;
      const int64_t loss =
          std::max<int64_t>(0, a - one.slack[0]) * static_cast<int64_t>(one.sensitivity[0]) +
          std::max<int64_t>(0, b - two.slack[0]) * static_cast<int64_t>(two.sensitivity[0]);
      if (best < 0 || loss < best) best = loss;
    }
  }
  return best;
}

TEST(HostLedger, SmallCasesByBruteForce) {
  Random random(7);
  int64_t granted = 0, refused = 0, lossy = 0;
  for (int round = 0; round < 4000; ++round) {
    HostLedger ledger = ledger_of(12);
    std::vector<HostUse> others;
    for (int32_t i = 0; i < 2; ++i) {
      const int64_t use = random.below(6);
      const int64_t slack = random.below(use + 1);
      const auto loss = static_cast<double>(1 + random.below(3));
      others.push_back(cores(use, slack, loss));
      announced(ledger, {1 + i}, others.back());
    }
    announced(ledger, kFirst, cores(random.below(3), 0));
    const int64_t amount = 1 + random.below(12);
    const int64_t gain = random.below(8);
    const int64_t unused = ledger.unused()[0];
    const int64_t least = least_loss(amount, unused, others);
    // A division without loss takes nothing beyond slack, because each unit beyond it costs.
    const bool wanted = least == 0 || (least > 0 && gain > least);
    const LeaseAnswer answer = asked(ledger, more(kFirst, amount, static_cast<double>(gain)));
    ASSERT_EQ(answer.granted, wanted) << answer.reason << ", round " << round;
    if (answer.granted) {
      ASSERT_EQ(ledger.leases()[0].loss, static_cast<double>(least));
    }
    granted += answer.granted;
    lossy += answer.granted && least > 0;
    refused += !answer.granted;
  }
  EXPECT_GT(granted, 500);
  EXPECT_GT(refused, 500);
  EXPECT_GT(lossy, 50);
}

// Of several options, the one is granted that is worth most when each is asked for alone.
TEST(HostLedger, TheBestOptionByBruteForce) {
  Random random(8);
  int64_t lossy = 0;
  for (int round = 0; round < 1000; ++round) {
    HostLedger ledger = ledger_of(12);
    for (int32_t i = 0; i < 3; ++i) {
      const int64_t use = random.below(6);
      const int64_t slack = random.below(use + 1);
      const auto sensitivity = static_cast<double>(1 + random.below(3));
      announced(ledger, {i}, cores(use, slack, sensitivity));
    }
    LeaseRequest request = more(kFirst, 0);
    request.options.clear();
    std::optional<Lease> best;
    const auto options = 1 + random.below(4);
    for (int64_t i = 0; i < options; ++i) {
      const int64_t amount = random.below(10);
      const auto gain = static_cast<double>(random.below(12));
      request.options.push_back({{amount, 0, 0}, gain});
      HostLedger other = ledger;
      if (!asked(other, more(kFirst, amount, gain)).granted) continue;
      const Lease& lease = *other.lease_of(kFirst);
      if (!best || lease.gain - lease.loss > best->gain - best->loss) best = lease;
    }
    ASSERT_EQ(asked(ledger, request).granted, best.has_value()) << round;
    if (!best) continue;
    ASSERT_EQ(ledger.lease_of(kFirst)->amount, best->amount) << round;
    ASSERT_EQ(ledger.lease_of(kFirst)->loss, best->loss) << round;
    lossy += best->loss > 0;
  }
  EXPECT_GT(lossy, 10);
}

// What must hold after every call.
void expect_sound(const HostLedger& ledger, const std::map<HostJob, HostUse>& jobs,
                  const HostAmounts& capacity, Duration now) {
  for (size_t r = 0; r < kHostResources; ++r) {
    int64_t used = 0, allowed = 0, leased = 0;
    for (const auto& [job, use] : jobs) {
      used += use.use[r];
      allowed += ledger.allowed(job)[r];
      const LeasedPart lent = ledger.lent(job);
      ASSERT_LE(lent.slack[r], use.slack[r]);
      ASSERT_LE(2 * lent.beyond[r], use.use[r] - use.slack[r]);
      ASSERT_GE(ledger.allowed(job)[r], 0);
    }
    for (const Lease& lease : ledger.leases()) {
      leased += lease.amount[r];
      int64_t parts = lease.unused[r];
      for (const LeasedPart& part : lease.parts) parts += part.slack[r] + part.beyond[r];
      ASSERT_EQ(parts, lease.amount[r]);
    }
    if (leased > 0) {
      ASSERT_LE(allowed, capacity[r]);
    } else {
      ASSERT_EQ(allowed, used);
    }
  }
  for (const Lease& lease : ledger.leases()) {
    ASSERT_TRUE(jobs.count(lease.job));
    ASSERT_GT(lease.until, now);
    bool beyond = false;
    for (const LeasedPart& part : lease.parts) {
      ASSERT_TRUE(jobs.count(part.from));
      beyond = beyond || part.beyond != HostAmounts{};
    }
    if (beyond) {
      ASSERT_GT(lease.gain, lease.loss);
    }
  }
}

TEST(HostLedger, RandomHistories) {
  int64_t granted = 0, ended = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    const HostAmounts capacity = {40, 60, 80};
    HostLedger ledger =
        HostLedger::make("a", capacity, {seconds(8), seconds(5), 0.5, true}).value();
    std::map<HostJob, HostUse> jobs;
    std::map<HostJob, Duration> heard;
    Duration now{};
    for (int call = 0; call < 300; ++call) {
      now += milliseconds(random.below(800));
      const HostJob job{static_cast<int32_t>(random.below(6))};
      const int64_t kind = random.below(10);
      for (auto at = jobs.begin(); at != jobs.end();) {
        at = heard[at->first] + seconds(8) <= now ? jobs.erase(at) : std::next(at);
      }
      if (kind < 4) {
        HostUse use;
        for (size_t r = 0; r < kHostResources; ++r) {
          use.use[r] = random.below(20);
          use.slack[r] = random.below(use.use[r] + 1);
          use.sensitivity[r] = 0.01 * random.uniform();
        }
        ended += std::ssize(announced(ledger, job, use, now));
        jobs[job] = use;
        heard[job] = now;
      } else if (kind < 8) {
        LeaseRequest request{job, {}, milliseconds(1 + random.below(6000))};
        request.options.resize(static_cast<size_t>(1 + random.below(3)));
        for (LeaseOption& option : request.options) {
          for (int64_t& amount : option.more) amount = random.below(12);
          option.gain = 0.1 * random.uniform();
        }
        const auto answer = ledger.ask(request, now);
        ASSERT_TRUE(answer.ok());
        ASSERT_TRUE(!answer.value().granted || jobs.count(job) > 0);
        ASSERT_EQ(answer.value().reason.find(cat("host a: job ", job, " ")), 0u);
        granted += answer.value().granted;
        ended += std::ssize(answer.value().ended);
      } else if (kind < 9) {
        ledger.give_back(job);
        ASSERT_TRUE(ledger.advance(now).ok());
        if (jobs.count(job)) {
          ASSERT_EQ(ledger.lease_of(job), nullptr);
        }
      } else {
        ASSERT_TRUE(ledger.advance(now).ok());
        ledger.remove(job);
        jobs.erase(job);
        ASSERT_FALSE(ledger.knows(job));
      }
      expect_sound(ledger, jobs, capacity, now);
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << ", call " << call;
    }
  }
  EXPECT_GT(granted, 200);
  EXPECT_GT(ended, 50);
}

}  // namespace
}  // namespace tenuto
