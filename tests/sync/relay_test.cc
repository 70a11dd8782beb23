// Who may be in a ring, and how many children a member may have: limits by hand, rings with random
// limits, and what a choice makes of a ring in force that is against them.
#include "sync/relay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "sync/choose.h"
#include "sync/formed.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

RelaySample sample(int64_t compute, int64_t send, int64_t receive, double pressure = 0) {
  return {{milliseconds(compute), milliseconds(send + receive)}, milliseconds(receive), pressure};
}

TEST(RelayWatch, PortsAndProcessors) {
  RelayWatch watch(4);
  EXPECT_EQ(watch.limits(), std::vector<RelayLimit>(4));
  watch.add({0}, sample(80, 10, 10));
  watch.add({1}, sample(85, 5, 10, 0.9));
  watch.add({2}, sample(60, 35, 5));
  // In 80 of 100 ms: eight gradients of 10 ms, or two of 35 ms. One is the replica's own.
  const std::vector<RelayLimit> limits = watch.limits();
  EXPECT_EQ(limits[0], (RelayLimit{false, 7}));
  EXPECT_EQ(limits[1], (RelayLimit{true, 7}));
  EXPECT_EQ(limits[2], (RelayLimit{false, 1}));
  EXPECT_EQ(limits[3], RelayLimit{}) << "it has not been heard of";
}

// If all hosts are as busy, or if all replicas are on one host, none is overloaded.
TEST(RelayWatch, PressureIsComparedWithTheOthers) {
  RelayWatch watch(3);
  for (int32_t replica = 0; replica < 3; ++replica) watch.add({replica}, sample(80, 1, 1, 0.9));
  for (const RelayLimit& limit : watch.limits()) EXPECT_FALSE(limit.is_overloaded);
  // It goes by a mean: after some iterations two of them are quiet.
  for (int i = 0; i < 20; ++i) {
    watch.add({0}, sample(80, 1, 1, 0.1));
    watch.add({1}, sample(80, 1, 1, 0.1));
  }
  EXPECT_FALSE(watch.limits()[0].is_overloaded);
  EXPECT_FALSE(watch.limits()[1].is_overloaded);
  EXPECT_TRUE(watch.limits()[2].is_overloaded);
  // Half as long as all the time is the least.
  for (int i = 0; i < 40; ++i) watch.add({2}, sample(80, 1, 1, 0.4));
  EXPECT_FALSE(watch.limits()[2].is_overloaded);
}

std::vector<IterationTime> times_in_ms(const std::vector<int64_t>& ms) {
  std::vector<IterationTime> all;
  for (const int64_t one : ms) all.push_back({milliseconds(one), Duration{}});
  return all;
}

std::string ring_text(int32_t count, const std::vector<int64_t>& ms,
                      const std::vector<RelayLimit>& limits) {
  const auto made = ring_within(times_in_ms(ms), count, limits);
  if (!made.ok()) return made.error().message;
  std::string text;
  for (const ReplicaId parent : made.value()) text += cat(text.empty() ? "" : ",", parent);
  return text;
}

TEST(RingWithin, OverloadedHostsAreChildren) {
  const RelayLimit busy{true, kMostReplicas}, any{};
  EXPECT_EQ(ring_text(2, {10, 20, 30, 40}, {}), "0,1,0,1");
  EXPECT_EQ(ring_text(2, {10, 20, 30, 40}, {busy, any, any, any}), "1,1,2,2");
  EXPECT_EQ(ring_text(3, {10, 20, 30, 40}, {busy, any, any, busy}),
            "a ring of 3 replicas: expected as many whose hosts are not overloaded, found 2 "
            "(overloaded: 0, 3): take a smaller ring, or relieve these hosts");
}

TEST(RingWithin, PortsBoundTheChildren) {
  const RelayLimit none{false, 0}, one{false, 1}, any{};
  EXPECT_EQ(ring_text(2, {10, 20, 30, 40, 50}, {one, any, any, any, any}), "0,1,0,1,1");
  EXPECT_EQ(ring_text(2, {10, 20, 30, 40, 50}, {none, any, any, any, any}), "0,1,1,1,1");
  EXPECT_EQ(ring_text(2, {10, 20, 30, 40, 50}, {none, one, any, any, any}),
            "a ring of 2 replicas: 3 others would be its children, and the ports of its members "
            "take the gradients of 1: take a larger ring, or a mode without one");
}

TEST(RingWithin, RandomLimits) {
  Random random(8);
  int made = 0, refused = 0;
  for (int round = 0; round < 1000; ++round) {
    SCOPED_TRACE(cat("round ", round));
    const auto replicas = 2 + random.below(9);
    std::vector<int64_t> ms;
    std::vector<RelayLimit> limits;
    for (int64_t i = 0; i < replicas; ++i) {
      ms.push_back(1 + random.below(100));
      limits.push_back({random.below(4) == 0, random.below(4)});
    }
    const auto count = static_cast<int32_t>(1 + random.below(replicas - 1));
    const auto ring = ring_within(times_in_ms(ms), count, limits);
    // The fastest that are not overloaded would be the members.
    std::vector<size_t> able;
    for (size_t i = 0; i < limits.size(); ++i) {
      if (!limits[i].is_overloaded) able.push_back(i);
    }
    std::stable_sort(able.begin(), able.end(),
                     [&](size_t left, size_t right) { return ms[left] < ms[right]; });
    int64_t most = 0;
    for (size_t i = 0; i < able.size() && std::cmp_less(i, count); ++i) {
      most += limits[able[i]].most_children;
    }
    const bool is_possible = std::ssize(able) >= count && most >= replicas - count;
    ASSERT_EQ(ring.ok(), is_possible);
    (ring.ok() ? made : refused) += 1;
    if (!ring.ok()) {
      EXPECT_EQ(ring.error().code, Code::Infeasible);
      continue;
    }
    SyncMode mode;
    mode.kind = SyncKind::Ring;
    mode.count = count;
    mode.parents = ring.value();
    const Status right = check(mode, static_cast<int32_t>(replicas));
    EXPECT_TRUE(right.ok()) << (right.ok() ? "" : right.error().message);
    EXPECT_EQ(relay_fault(mode, limits), "");
    for (int64_t i = 0; i < count; ++i) {
      const size_t member = able[static_cast<size_t>(i)];
      EXPECT_EQ(mode.parents[member].value, static_cast<int32_t>(member));
    }
    // Without limits it is the ring by time.
    const std::vector<ReplicaId> by_time = ring_by_time(times_in_ms(ms), count);
    EXPECT_EQ(ring_within(times_in_ms(ms), count, {}).value(), by_time);
  }
  EXPECT_GT(made, 50);
  EXPECT_GT(refused, 50);
}

TEST(RelayFault, WhatIsAgainstTheRing) {
  const SyncMode ring = sync_mode_from_text("ring:2:0,1,0,0").value();
  const RelayLimit any{};
  EXPECT_EQ(relay_fault(ring, {}), "");
  EXPECT_EQ(relay_fault(ring, std::vector<RelayLimit>(4, any)), "");
  EXPECT_EQ(relay_fault(ring, std::vector<RelayLimit>{any, {true, 9}, any, any}),
            "replica 1 is in the ring, and its host is overloaded");
  EXPECT_EQ(relay_fault(ring, std::vector<RelayLimit>{{false, 1}, any, {true, 9}, any}),
            "replica 0 has 2 children, and its port takes 1");
  EXPECT_EQ(relay_fault({}, std::vector<RelayLimit>(4, {true, 0})), "");
}

// Whatever the ring is worth, another mode is better once a member's host is overloaded.
TEST(RelayFault, ARingInForceIsLeft) {
  ChooseInput input;
  for (const int64_t one : {100, 100, 100, 400}) {
    input.samples.push_back({{milliseconds(one), Duration{}}});
  }
  input.micros = 16;
  input.current = sync_mode_from_text("ring:3:0,1,2,0").value();
  const auto before = choose_by_look_ahead(input);
  ASSERT_TRUE(before.ok()) << before.error().message;
  for (const SyncAlternative& one : before.value().alternatives) EXPECT_GT(one.score, 0);
  input.relays.assign(4, {});
  input.relays[1].is_overloaded = true;
  const auto after = choose_by_look_ahead(input);
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_NE(after.value().mode, input.current);
  EXPECT_EQ(relay_fault(after.value().mode, input.relays), "");
  EXPECT_NE(after.value().reason.find("(replica 1 is in the ring, and its host is overloaded)"),
            std::string::npos)
      << after.value().reason;
}

}  // namespace
}  // namespace tenuto
