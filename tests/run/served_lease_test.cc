// What a run says to the ledger of its host, second by second, and what it makes of the answers.
#include "run/served_lease.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

SyncMode asynchronous() {
  SyncMode mode;
  mode.kind = SyncKind::Asynchronous;
  return mode;
}

// Two replicas on a host of four cores, of which one needs 100 ms and the other one 200 ms for an
// iteration. So without waiting the job would use one and a half times as much.
class TwoReplicas : public testing::Test {
 protected:
  TwoReplicas() {
    measure(0, 100);
    measure(1, 200);
  }
  void measure(int32_t replica, int64_t compute, int64_t transfer = 0) {
    servers::MeasuredIteration one;
    one.replica = {replica};
    one.time = {milliseconds(compute), milliseconds(transfer)};
    for (int i = 0; i < 24; ++i) lease.add(one);
  }
  // A second in which the job used so many cores.
  LedgerCall second(double cores = 2) {
    now += seconds(1);
    HostRates rates;
    rates.used = {cores, 0, 0};
    return lease.next(rates, now);
  }
  void want(double gain = 0.3) {
    servers::AskReport question;
    question.mode = asynchronous();
    question.gain = gain;
    lease.ask(question, now);
  }
  // The ledger has nothing to say, and the job has a lease or none.
  LedgerNews news(bool has_lease = false) const {
    LedgerNews one;
    one.now = now + seconds(1000);  // another clock
    one.allowed = {2000, 0, 0};
    if (!has_lease) return one;
    one.allowed = {3000, 0, 0};
    one.lease = Lease{};
    one.lease->amount = {1000, 0, 0};
    one.lease->until = one.now + seconds(120);
    return one;
  }
  LedgerNews answered(bool granted) const {
    LedgerNews one = news(granted);
    one.answer = LeaseAnswer{granted, granted ? "there is enough" : "there is not enough", {}};
    return one;
  }
  // The job asks and has its lease.
  void be_granted() {
    take(second(), news());
    want();
    EXPECT_FALSE(second().options.empty());
    lease.take(answered(true), now);
    EXPECT_TRUE(lease.may_leave());
  }
  std::vector<std::string> take(const LedgerCall&, const LedgerNews& one) {
    return lease.take(one, now);
  }

  Duration now = seconds(50);
  ServedLease lease{2, {4000, 0, 0}};
};

using Events = std::vector<std::string>;

TEST_F(TwoReplicas, ItAnnouncesWhatItUses) {
  EXPECT_EQ(second(1).use.use[0], 1000);
  EXPECT_EQ(second(2).use.use[0], 1500);  // the mean
  const LedgerCall call = second(3);
  EXPECT_EQ(call.use.use[0], 2000);
  // The slowest replica is here, and can do without nothing.
  EXPECT_EQ(call.use.slack[0], 0);
  EXPECT_EQ(call.use.sensitivity[0], 1.0 / 2000);
  EXPECT_EQ(call.use.use[1], 0);
  EXPECT_TRUE(call.options.empty());
  EXPECT_FALSE(call.gives_back);
  // No job uses more than there is.
  for (int i = 0; i < 5; ++i) second(9);
  EXPECT_EQ(second(9).use.use[0], 4000);
}

TEST_F(TwoReplicas, NothingIsKnownInTheBeginning) {
  ServedLease fresh(2, {4000, 0, 0});
  const LedgerCall call = fresh.next({}, now);
  EXPECT_EQ(call.use.use, HostAmounts{});
  EXPECT_EQ(call.use.slack, HostAmounts{});
  EXPECT_FALSE(fresh.may_leave());
  EXPECT_EQ(fresh.limit(HostResource::Cores), 0);
}

TEST_F(TwoReplicas, AQuestionIsAskedOnceForSeveralAmounts) {
  take(second(), news());
  want(0.5);
  const LedgerCall call = second();
  ASSERT_EQ(call.options.size(), 2u);
  // All that it could use, and half of it: 1.5 x 2.5 / 3 - 1. Nothing more would be no gain.
  EXPECT_EQ(call.options[0].more[0], 1000);
  EXPECT_EQ(call.options[0].gain, 0.5);
  EXPECT_EQ(call.options[1].more[0], 500);
  EXPECT_NEAR(call.options[1].gain, 0.25, 1e-9);
  EXPECT_GT(call.length, seconds(30));
  EXPECT_EQ(lease.take(answered(false), now),
            Events{"the job may not leave the synchronous mode: there is not enough"});
  EXPECT_FALSE(lease.may_leave());
  EXPECT_EQ(lease.limit(HostResource::Cores), 0);
  EXPECT_TRUE(second().options.empty());
}

TEST_F(TwoReplicas, ARefusedJobAsksAgainAfterAPause) {
  take(second(), news());
  std::vector<int> pauses;
  for (int refusals = 0; refusals < 3; ++refusals) {
    int count = 0;
    want();
    while (second().options.empty()) {
      ++count;
      lease.take(news(), now);
      want();
    }
    pauses.push_back(count);
    lease.take(answered(false), now);
  }
  EXPECT_EQ(pauses, (std::vector<int>{0, 4, 9}));
  // A grant ends this.
  want();
  while (second().options.empty()) want();
  lease.take(answered(true), now);
  EXPECT_TRUE(lease.may_leave());
}

TEST_F(TwoReplicas, AnOldQuestionIsForgotten) {
  want();
  now += seconds(120);
  EXPECT_TRUE(second().options.empty());
}

TEST_F(TwoReplicas, WithALeaseItsUseIsThatFromBefore) {
  be_granted();
  EXPECT_EQ(lease.limit(HostResource::Cores), 3);
  lease.set_mode(asynchronous());
  for (int i = 0; i < 10; ++i) {
    const LedgerCall call = second(3);
    EXPECT_EQ(call.use.use[0], 2000);
    EXPECT_TRUE(call.options.empty());
    EXPECT_FALSE(call.gives_back);
    EXPECT_TRUE(lease.take(news(true), now).empty());
  }
}

TEST_F(TwoReplicas, ALeaseIsGivenBackWhenTheModeIsSynchronousAgain) {
  be_granted();
  // Not before it was used.
  EXPECT_FALSE(second().gives_back);
  lease.take(news(true), now);
  lease.set_mode(asynchronous());
  EXPECT_FALSE(second(3).gives_back);
  lease.take(news(true), now);
  lease.set_mode({});
  EXPECT_TRUE(second().gives_back);
  EXPECT_EQ(lease.take(news(), now), Events{"the lease is given back: the mode is synchronous"});
  EXPECT_FALSE(lease.may_leave());
  EXPECT_EQ(lease.limit(HostResource::Cores), 0);
  EXPECT_FALSE(second().gives_back);
}

TEST_F(TwoReplicas, ALeaseThatIsNotUsedIsGivenBack) {
  be_granted();
  int count = 0;
  while (!second().gives_back) {
    ++count;
    lease.take(news(true), now);
  }
  EXPECT_EQ(count, 9);
}

TEST_F(TwoReplicas, ALeaseIsRenewedBeforeItEnds) {
  be_granted();
  lease.set_mode(asynchronous());
  LedgerNews present = news(true);
  const Duration until = present.lease->until;
  int count = 0;
  while (second(3).options.empty()) {
    ++count;
    present.now = now + seconds(1000);
    lease.take(present, now);
  }
  EXPECT_GT(count, 60);
  EXPECT_LT(now + seconds(1000), until);
  EXPECT_EQ(lease.take(answered(true), now), Events{"the lease is renewed: there is enough"});
  EXPECT_TRUE(lease.may_leave());
  EXPECT_TRUE(second(3).options.empty());
}

TEST_F(TwoReplicas, ALeaseThatHasEndedIsTold) {
  be_granted();
  lease.set_mode(asynchronous());
  second(3);
  LedgerNews ended = news();
  ended.ended.push_back("job 7 of host a announced another use");
  EXPECT_EQ(lease.take(ended, now),
            Events{"the lease has ended: job 7 of host a announced another use"});
  EXPECT_FALSE(lease.may_leave());
  EXPECT_EQ(lease.limit(HostResource::Cores), 0);
}

// What a person wants is not asked for, but all know of it.
TEST_F(TwoReplicas, AWantedModeIsAnnounced) {
  take(second(), news());
  lease.set_mode(asynchronous());
  const LedgerCall call = second(3.5);
  EXPECT_EQ(call.use.use[0], 3500);
  EXPECT_EQ(call.use.slack[0], 0);
  EXPECT_TRUE(call.options.empty());
}

TEST_F(TwoReplicas, AJobThatLendsIsLimited) {
  take(second(), news());
  LedgerNews lends = news();
  lends.lends = {500, 0, 0};
  lends.allowed = {1500, 0, 0};
  take(second(), lends);
  EXPECT_EQ(lease.limit(HostResource::Cores), 1.5);
  // Its use is not measured while it is held down.
  EXPECT_EQ(second(1).use.use[0], 2000);
  take(second(1), lends);
  // It is slower than it thought it would be, so it announces what it has now.
  measure(1, 300);
  EXPECT_LT(second(1).use.use[0], 2000);
  take(second(1), news());
  EXPECT_EQ(lease.limit(HostResource::Cores), 0);
}

TEST_F(TwoReplicas, ALedgerThatCannotBeAskedGrantsNothing) {
  be_granted();
  EXPECT_EQ(lease.fail("it is damaged").size(), 1u);
  EXPECT_TRUE(lease.fail("it is damaged").empty());
  EXPECT_EQ(lease.fail("it is locked").size(), 1u);
  EXPECT_FALSE(lease.may_leave());
  EXPECT_EQ(lease.limit(HostResource::Cores), 0);
  EXPECT_EQ(lease.take(news(), now), Events{"the ledger of the host can be asked again"});
}

// ---- the network, by the same rule -----------------------------------------------------------

constexpr size_t kCores = 0, kTransmit = 1, kReceive = 2;

// The same replicas on a host whose network carries 10 MB/s in each direction. Their
// iterations last 100 and 200 ms.
class TwoSendingReplicas : public testing::Test {
 protected:
  TwoSendingReplicas() {
    measure(0, 50, 50);
    measure(1, 50, 150);
  }
  void measure(int32_t replica, int64_t compute, int64_t transfer) {
    servers::MeasuredIteration one;
    one.replica = {replica};
    one.time = {milliseconds(compute), milliseconds(transfer)};
    for (int i = 0; i < 24; ++i) lease.add(one);
  }
  LedgerCall second(const HostRates& rates) {
    now += seconds(1);
    return lease.next(rates, now);
  }
  void want() {
    servers::AskReport question;
    question.mode = asynchronous();
    question.gain = 0.5;
    lease.ask(question, now);
  }

  Duration now = seconds(50);
  ServedLease lease{2, {4000, 10'000'000, 10'000'000}};
};

constexpr HostRates kBusy{{1, 4e6, 2e6}, {}};

TEST_F(TwoSendingReplicas, TheyAnnounceWhatTheySendAndReceive) {
  const LedgerCall call = second(kBusy);
  EXPECT_EQ(call.use.use, (HostAmounts{1000, 4'000'000, 2'000'000}));
  // The slowest replica is here, and can do without nothing.
  EXPECT_EQ(call.use.slack[kTransmit], 0);
  EXPECT_EQ(call.use.slack[kReceive], 0);
  EXPECT_EQ(call.use.slack[kCores], 0);
  EXPECT_EQ(call.use.sensitivity[kTransmit], 1.0 / 4'000'000);
  // No job sends more than the network carries.
  for (int i = 0; i < 5; ++i) second({{1, 5e7, 0}, {}});
  EXPECT_EQ(second({{1, 5e7, 0}, {}}).use.use[kTransmit], 10'000'000);
}

TEST_F(TwoSendingReplicas, TheyAskForAllResourcesAtOnce) {
  second(kBusy);
  lease.take({}, now);
  want();
  const LedgerCall call = second(kBusy);
  ASSERT_EQ(call.options.size(), 2u);
  EXPECT_EQ(call.options[0].more, (HostAmounts{500, 2'000'000, 1'000'000}));
  EXPECT_EQ(call.options[0].gain, 0.5);
  EXPECT_EQ(call.options[1].more, (HostAmounts{250, 1'000'000, 500'000}));
  EXPECT_NEAR(call.options[1].gain, 0.25, 1e-9);
}

// What others than jobs send is not there to be leased.
TEST_F(TwoSendingReplicas, ForeignTrafficIsNotAskedFor) {
  HostRates rates = kBusy;
  rates.foreign[kTransmit] = 5'000'000;
  second(rates);
  lease.take({}, now);
  want();
  const LedgerCall call = second(rates);
  ASSERT_FALSE(call.options.empty());
  EXPECT_EQ(call.options[0].more, (HostAmounts{500, 1'000'000, 1'000'000}));
}

TEST_F(TwoSendingReplicas, WhatIsLentIsLimitedAndNothingElse) {
  second(kBusy);
  LedgerNews news;
  news.lends[kTransmit] = 1'000'000;
  news.allowed = {1000, 3'000'000, 2'000'000};
  lease.take(news, now);
  EXPECT_EQ(lease.limit(HostResource::Transmit), 3e6);
  EXPECT_EQ(lease.limit(HostResource::Receive), 0);
  EXPECT_EQ(lease.limit(HostResource::Cores), 0);
  // A run goes on, however little it is allowed.
  news.allowed[kTransmit] = 5;
  lease.take(news, now);
  EXPECT_EQ(lease.limit(HostResource::Transmit), kLeastHostRate);
  lease.take({}, now);
  EXPECT_EQ(lease.limit(HostResource::Transmit), 0);
}

TEST_F(TwoSendingReplicas, WithALeaseAllIsLimited) {
  LedgerNews news;
  news.lease = Lease{};
  news.allowed = {1500, 6'000'000, 3'000'000};
  lease.take(news, now);
  EXPECT_EQ(lease.limit(HostResource::Cores), 1.5);
  EXPECT_EQ(lease.limit(HostResource::Transmit), 6e6);
  EXPECT_EQ(lease.limit(HostResource::Receive), 3e6);
}

}  // namespace
}  // namespace tenuto
