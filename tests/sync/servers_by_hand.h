// Two replicas of one stage with one range of two elements: a decider and a keeper whose messages a
// test writes by hand.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "sync/servers_cluster.h"

namespace tenuto::servers {

inline constexpr PeerId kDecider{0}, kShard{1}, kStandby{2}, kFirst{3}, kSecond{4};

// Two replicas of one stage, and one range of two elements.
inline Membership two_replicas() {
  return {1, kDecider, {{{{0}, 0, 2}, {kShard, kStandby}}}, {{kFirst}, {kSecond}}};
}

inline Decider decider_of(const std::string& mode, int64_t most_uncommitted = 0,
                          Mass save_every = {}) {
  auto made = Decider::make({kDecider, 3, first_record(sync_mode_from_text(mode).value(), 2),
                             most_uncommitted, save_every});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

template <class Body>
Message message_of(PeerId from, PeerId to, Version version, Body body, int64_t epoch = 1) {
  return {{epoch, from, to, version}, std::move(body)};
}

inline void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
}

inline void expect_error(const Status& status, const std::string& part) {
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
}

// All report, with the ranges at this version, filled or not.
inline Status report_all(Decider& decider, bool shard_is_filled, bool standby_is_filled,
                         Version version = {}) {
  expect_ok(decider.handle(message_of(kFirst, kDecider, {}, PartReport{})));
  expect_ok(decider.handle(message_of(kSecond, kDecider, {}, PartReport{})));
  expect_ok(
      decider.handle(message_of(kShard, kDecider, version, KeeperReport{shard_is_filled, {}, {}})));
  EXPECT_FALSE(decider.is_ready());
  return decider.handle(
      message_of(kStandby, kDecider, version, KeeperReport{standby_is_filled, {}, {}}));
}

// Both keepers have the gradient of the replica's open work.
inline void store(Decider& decider, int32_t replica) {
  int64_t serial = 0;
  Version version;
  for (const OpenWork& open : decider.record().open) {
    if (open.work.offer.replica.value != replica) continue;
    serial = open.work.serial;
    version = open.work.offer.version;
  }
  for (const PeerId keeper : {kShard, kStandby}) {
    expect_ok(decider.handle(message_of(keeper, kDecider, version, Stored{serial})));
  }
}

// A keeper of the range, the first one.
struct Keeper {
  explicit Keeper(int64_t kept_versions = kKeptVersions)
      : shard({kShard, {{0}, 0, 2}, true, {}, kept_versions},
              std::make_unique<TallyStore>(ElementRange{{0}, 0, 2})) {
    expect_ok(shard.handle(message_of(kDecider, kShard, {}, Enter{two_replicas()})));
    record = first_record({}, 2);
    record.sequence = 1;
  }
  void tell() {
    expect_ok(shard.handle(message_of(kDecider, kShard, record.version, record)));
    ++record.sequence;
  }
  // The work of replica 0 on this version, which its part has not read yet.
  Work open(int64_t version) {
    Work work{
        ++record.last_serial, {{0}, {version}, {version}, {1}}, 1, {{{0}, version, version + 1}}};
    record.open.push_back({work, false, false});
    return work;
  }
  // An update of one work of replica 1, whose gradient comes first.
  void update() {
    const Version version = record.version;
    const Work work{++record.last_serial,
                    {{1}, {version.value}, version, {1}},
                    1,
                    {{{1}, version.value, version.value + 1}}};
    const Payload gradient = payload_with(gradient_of(work, {{0}, 0, 2}));
    expect_ok(shard.handle(message_of(kSecond, kShard, version, Gradient{work.serial, gradient})));
    record.updates.push_back({{version.value, version, {work.offer}, {{1}}}, {work}});
    record.version = version + 1;
  }

  ServerShard shard;
  Record record;
};

}  // namespace tenuto::servers
