// When a run with server shards says who straggles: by hand, with a clock that the test turns.
#include "run/straggler_watch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>

namespace tenuto {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr ReplicaId kFast{0}, kOther{1}, kSlow{2};

IterationSample sample(int64_t compute, int64_t transfer = 10) {
  IterationSample one;
  one.compute = one.cpu = milliseconds(compute);
  one.send = milliseconds(transfer);
  return one;
}

class StragglerWatchTest : public testing::Test {
 protected:
  // All three end an iteration, the slow one last. Nothing is said of the others.
  std::optional<StragglerNews> round(const IterationSample& slow) {
    EXPECT_FALSE(watch_.add(kFast, sample(100), now_).has_value());
    EXPECT_FALSE(watch_.add(kOther, sample(101), now_).has_value());
    now_ += milliseconds(200);
    return watch_.add(kSlow, slow, now_);
  }
  // The number of the first of so many rounds, from 1, that has news; 0 = none has.
  int first_news(const IterationSample& slow, int rounds) {
    for (int i = 1; i <= rounds; ++i) {
      if ((news_ = round(slow)).has_value()) return i;
    }
    return 0;
  }

  StragglerWatch watch_{3};
  Duration now_ = seconds(50);
  std::optional<StragglerNews> news_;
};

TEST_F(StragglerWatchTest, AReplicaThatIsLateInMostIterationsIsNamedOnce) {
  EXPECT_EQ(first_news(sample(100), 3), 0);
  EXPECT_EQ(first_news(sample(160), 8), 5);
  EXPECT_EQ(news_->replica, kSlow);
  EXPECT_TRUE(news_->straggles);
  EXPECT_EQ(news_->cause, StragglerCause::Device);
  EXPECT_EQ(news_->sentence,
            "replica 2 takes 1.55 times as long as the fastest one: its device is slow, it "
            "computes for 160.0 ms instead of 100.0 ms, in 5 of its last 8 iterations");
  EXPECT_EQ(first_news(sample(160), 300), 0) << "it is known";
}

TEST_F(StragglerWatchTest, AFewLateIterationsSayNothing) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(round(sample(i % 2 == 0 ? 160 : 100)).has_value());
  }
}

TEST_F(StragglerWatchTest, TheCauseIsPartOfTheNews) {
  EXPECT_EQ(first_news(sample(100, 70), 8), 5);
  EXPECT_EQ(news_->cause, StragglerCause::Link);
  IterationSample busy = sample(200);
  busy.run_delay = milliseconds(90);
  busy.cpu = milliseconds(110);
  // Another cause is other news, but not within half a minute.
  const Duration before = now_;
  EXPECT_GT(first_news(busy, 300), 0);
  EXPECT_EQ(news_->cause, StragglerCause::Cpu);
  EXPECT_GE(now_ - before, StragglerWatch::kPause);
  EXPECT_LT(now_ - before, StragglerWatch::kPause + seconds(1));
}

TEST_F(StragglerWatchTest, CausesThatChangeAllTheTimeAreNoNews) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(round(i % 2 == 0 ? sample(160) : sample(100, 70)).has_value());
  }
}

TEST_F(StragglerWatchTest, TheEndIsSaidOnce) {
  EXPECT_EQ(first_news(sample(160), 8), 5);
  now_ += StragglerWatch::kPause;
  EXPECT_EQ(first_news(sample(100), 8), 5);
  EXPECT_EQ(news_->replica, kSlow);
  EXPECT_FALSE(news_->straggles);
  EXPECT_EQ(news_->sentence,
            "replica 2 is no straggler any more: in 5 of its last 8 iterations it was not late");
  now_ += StragglerWatch::kPause;
  EXPECT_EQ(first_news(sample(100), 20), 0);
}

// Nothing is compared with a replica that has not ended an iteration, or is lost.
TEST_F(StragglerWatchTest, OnlyReplicasOfTheRunAreCompared) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(watch_.add(kFast, sample(100), now_).has_value());
    EXPECT_FALSE(watch_.add(kSlow, sample(160), now_).has_value());
  }
  watch_.set_replicas({kFast, kSlow});
  EXPECT_FALSE(watch_.add(kOther, sample(10), now_).has_value()) << "it is not in the run";
  int named = 0;
  for (int i = 1; i <= 8; ++i) {
    EXPECT_FALSE(watch_.add(kFast, sample(100), now_).has_value());
    const auto news = watch_.add(kSlow, sample(160), now_);
    if (!news) continue;
    EXPECT_EQ(i, 5);
    EXPECT_EQ(news->sentence.find("replica 2 takes 1.55 times"), 0u) << news->sentence;
    ++named;
  }
  EXPECT_EQ(named, 1);
  // Alone nobody is late.
  watch_.set_replicas({kSlow});
  now_ += StragglerWatch::kPause;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(watch_.add(kSlow, sample(160), now_).has_value());
  }
}

// A replica that comes back begins without findings.
TEST_F(StragglerWatchTest, WhatWasKnownOfALostReplicaIsForgotten) {
  EXPECT_EQ(first_news(sample(160), 8), 5);
  watch_.set_replicas({kFast, kOther});
  watch_.set_replicas({kFast, kOther, kSlow});
  EXPECT_EQ(first_news(sample(160), 8), 5) << "another process, so it is news";
}

TEST_F(StragglerWatchTest, AStrangerChangesNothing) {
  for (const int32_t stranger : {-1, 3}) {
    EXPECT_FALSE(watch_.add({stranger}, sample(500), now_).has_value());
  }
}

}  // namespace
}  // namespace tenuto
