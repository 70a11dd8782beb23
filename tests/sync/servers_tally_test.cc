// The audit of a run with server shards: what a tally counts, how it gets to another keeper and
// into a saved state, and each way in which keepers and the decider can disagree. The random
// clusters of servers_test.cc compare the tallies of all keepers at their end.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sync/servers/tally.h"
#include "sync/servers_by_hand.h"
#include "sync/servers_cluster.h"

namespace tenuto::servers {
namespace {

// Two works of one update.
DecidedUpdate update_of_two() {
  const Work first{8, {{0}, {5}, {4}, {3}}, 1, {{{0}, 15, 18}}};
  const Work second{9, {{1}, {4}, {4}, {2}}, 1, {{{0}, 3, 4}, {{1}, 12, 13}}};
  return {{4, {4}, {first.offer, second.offer}, {{0}, {1}}}, {first, second}};
}

TEST(ServerTally, CountsUpdatesAndTheirMass) {
  Tally tally{4, {20}, 7};
  const DecidedUpdate update = update_of_two();
  add(tally, update);
  EXPECT_EQ(tally, (Tally{5, {25}, digest_after(7, update)}));
}

// Whatever is in the digest changes it, and no two of these changes give the same.
TEST(ServerTally, TheDigestHasAllThatMatters) {
  const DecidedUpdate update = update_of_two();
  std::set<uint64_t> digests = {digest_after(7, update), digest_after(8, update)};
  const std::vector<std::function<void(DecidedUpdate&)>> changes = {
      [](DecidedUpdate& one) { ++one.update.number; },
      [](DecidedUpdate& one) { one.update.version = one.update.version + 1; },
      [](DecidedUpdate& one) { ++one.works[0].serial; },
      [](DecidedUpdate& one) { ++one.works[1].offer.replica.value; },
      [](DecidedUpdate& one) { ++one.works[0].offer.iteration.value; },
      [](DecidedUpdate& one) { ++one.works[1].micros[1].stream.value; },
      [](DecidedUpdate& one) { ++one.works[1].micros[1].begin; },
      [](DecidedUpdate& one) { ++one.works[0].micros[0].end; },
      [](DecidedUpdate& one) { std::swap(one.works[0], one.works[1]); },
      [](DecidedUpdate& one) { one.works.pop_back(); },
  };
  for (const auto& change : changes) {
    DecidedUpdate other = update;
    change(other);
    digests.insert(digest_after(7, other));
  }
  EXPECT_EQ(digests.size(), changes.size() + 2);
}

TEST(ServerTally, TheOrderOfUpdatesMatters) {
  const DecidedUpdate first = update_of_two();
  DecidedUpdate second = first;
  ++second.update.number;
  EXPECT_NE(digest_after(digest_after(0, first), second),
            digest_after(digest_after(0, second), first));
}

// ---- the comparison --------------------------------------------------------------------------

constexpr Tally kTally{5, {40}, 99};

Balance right_balance() { return {{5}, kTally, {52}, {3}, {8}, {1}}; }

std::vector<KeptTally> right_keepers() {
  return {{"keeper 3", {5}, kTally}, {"keeper 7", {5}, kTally}};
}

TEST(ServerTally, KeepersThatAgreeWithTheDeciderAreRight) {
  expect_ok(check_tallies(right_keepers(), right_balance()));
  EXPECT_EQ(audit_text(right_balance(), 2),
            "5 updates, 40 micro-batches applied, 3 dropped, the same at all 2 keepers");
}

TEST(ServerTally, AKeeperThatDiffersIsNamed) {
  const std::vector<std::function<void(KeptTally&)>> faults = {
      [](KeptTally& one) { one.version = {4}; },
      [](KeptTally& one) { one.tally.updates = 4; },
      [](KeptTally& one) { one.tally.applied = {39}; },
      [](KeptTally& one) { one.tally.digest = 98; },
  };
  const std::vector<std::string> found = {
      "version 4 after 5 updates of 40 micro-batches with digest 99",
      "version 5 after 4 updates of 40 micro-batches with digest 99",
      "version 5 after 5 updates of 39 micro-batches with digest 99",
      "version 5 after 5 updates of 40 micro-batches with digest 98",
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    std::vector<KeptTally> kept = right_keepers();
    faults[i](kept[1]);
    const Status wrong = check_tallies(kept, right_balance());
    ASSERT_FALSE(wrong.ok());
    EXPECT_EQ(wrong.error().code, Code::Corrupt);
    EXPECT_EQ(wrong.error().reach, Reach::Job);
    EXPECT_EQ(wrong.error().message,
              "audit: expected version 5 after 5 updates of 40 micro-batches with digest 99, as "
              "the decider has decided, found " +
                  found[i] + " at keeper 7: resume from a checkpoint that was made before");
  }
}

TEST(ServerTally, NobodyToCompareIsAFault) {
  expect_error(check_tallies({}, right_balance()), "expected keepers that say");
  expect_error(check_tallies(right_keepers(), {}), "expected a decider that says");
}

// A micro-batch more or less in each place.
TEST(ServerTally, MicroBatchesThatAreLostOrCountedTwiceAreFound) {
  const std::vector<std::function<void(Balance&)>> faults = {
      [](Balance& one) { one.given.micros += 1; },
      [](Balance& one) { one.dropped.micros -= 1; },
      [](Balance& one) { one.in_work.micros += 1; },
      [](Balance& one) { one.returned.micros -= 1; },
  };
  for (const auto& fault : faults) {
    Balance balance = right_balance();
    fault(balance);
    expect_error(check_tallies(right_keepers(), balance), "micro-batches that were given out");
  }
  Balance balance = right_balance();
  balance.given = {53};
  EXPECT_EQ(check_balance(balance).error().message,
            "audit: at version 5 expected 53 micro-batches that were given out to be in updates, "
            "dropped, in work or returned, found 40, 3, 8 and 1: resume from a checkpoint that "
            "was made before");
}

// ---- in the machines -------------------------------------------------------------------------

TEST(ServerTally, TheBalanceIsThatOfTheRecord) {
  Record record = first_record({}, 2);
  record.version = {7};
  record.updates_decided = 7;
  record.applied = {20};
  record.dropped = {3};
  record.digest = 55;
  record.streams = {{{5}, 15}, {{4}, 14}};
  record.returned = {{{0}, 3, 4}, {{1}, 8, 10}};
  record.open = {{{50, {{1}, {3}, {6}, {3}}, 1, {{{1}, 9, 12}}}, true, false}};
  EXPECT_EQ(balance_of(record), (Balance{{7}, {7, {20}, 55}, {29}, {3}, {3}, {3}}));
  expect_ok(check_balance(balance_of(record)));
}

// The decider counts what it decides, and a keeper what it applies.
TEST(ServerTally, ADeciderAndAKeeperCountTheSame) {
  Decider decider = decider_of("asynchronous", 6);
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  store(decider, 0);
  store(decider, 1);
  Tally tally;
  ASSERT_EQ(decider.record().updates.size(), 2u);
  for (const DecidedUpdate& one : decider.record().updates) add(tally, one);
  EXPECT_EQ(tally_of(decider.record()), tally);
  EXPECT_EQ(tally.applied, Mass{6});

  Keeper keeper;
  keeper.update();
  keeper.update();
  keeper.tell();
  Tally applied;
  for (const DecidedUpdate& one : keeper.record.updates) add(applied, one);
  EXPECT_EQ(keeper.shard.version(), Version{2});
  EXPECT_EQ(keeper.shard.tally(), applied);
}

// What a standby is filled with has a tally, from which it counts on.
TEST(ServerTally, AStandbyGoesOnFromTheTallyThatItIsFilledWith) {
  Keeper keeper;
  keeper.update();
  keeper.tell();
  EXPECT_EQ(keeper.shard.tally().updates, 1);
  constexpr ElementRange kRange{{0}, 0, 2};
  ServerShard standby({kStandby, kRange, false, {}, kKeptVersions},
                      std::make_unique<TallyStore>(kRange));
  Membership members = two_replicas();
  members.epoch = 2;
  expect_ok(keeper.shard.handle(message_of(kDecider, kShard, {}, Enter{members}, 2)));
  expect_ok(standby.handle(message_of(kDecider, kStandby, {}, Enter{members}, 2)));
  keeper.record.filling = {kStandby};
  expect_ok(
      keeper.shard.handle(message_of(kDecider, kShard, keeper.record.version, keeper.record, 2)));
  for (const Message& message : keeper.shard.take_messages()) {
    if (message.header.to == kStandby) expect_ok(standby.handle(message));
  }
  EXPECT_TRUE(standby.is_filled());
  EXPECT_EQ(standby.tally(), keeper.shard.tally());
}

TEST(ServerTally, AKeeperBeginsWithTheTallyOfItsStart) {
  constexpr ElementRange kRange{{0}, 0, 2};
  const Tally before{7, {20}, 0};
  const ServerShard shard({kShard, kRange, true, {7}, kKeptVersions, before},
                          std::make_unique<TallyStore>(kRange));
  EXPECT_EQ(shard.tally(), before);
}

// The state of a version has the tally of that version, though the keeper has gone on.
TEST(ServerTally, ASavedStateHasTheTallyOfItsVersion) {
  Keeper keeper;
  keeper.update();
  keeper.record.save = keeper.record.version;
  keeper.record.save_mass = {1};
  keeper.update();
  keeper.tell();
  Tally first;
  add(first, keeper.record.updates.front());
  const std::optional<SavedState> saved = keeper.shard.take_saved(true);
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->tally, first);
  EXPECT_NE(keeper.shard.tally(), first);
}

}  // namespace
}  // namespace tenuto::servers
