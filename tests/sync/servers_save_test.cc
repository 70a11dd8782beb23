// What keepers of server shards write down: which versions the decider names, which bits keepers
// make of them, and what a run goes on from. The random clusters of servers_test.cc audit the same
// over deaths, joins and changes of mode.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sync/servers_by_hand.h"
#include "sync/servers_cluster.h"

namespace tenuto::servers {
namespace {

Decider ready_decider(int64_t save_every) {
  Decider decider = decider_of("asynchronous", 6, {save_every});
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  decider.take_messages();
  return decider;
}

// Of the records that the decider has sent to the server shard since the last call.
std::vector<Version> versions_to_save(Decider& decider) {
  std::vector<Version> found;
  for (const Message& message : decider.take_messages()) {
    const auto* record = std::get_if<Record>(&message.body);
    if (record != nullptr && message.header.to == kShard) found.push_back(record->save);
  }
  return found;
}

// Each update has a mass of 3.
TEST(ServerSaves, EveryMultipleOfTheMassIsNamed) {
  Decider decider = ready_decider(6);
  const std::vector<int64_t> expected = {0, 2, 2, 4, 4, 6};
  for (size_t i = 0; i < expected.size(); ++i) {
    store(decider, static_cast<int32_t>(i % 2));
    const Version version = decider.record().version;
    EXPECT_EQ(version.value, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(versions_to_save(decider), std::vector<Version>{{expected[i]}});
    EXPECT_EQ(decider.record().save_mass, Mass{3 * expected[i]});
    for (const PeerId keeper : {kShard, kStandby}) {
      expect_ok(decider.handle(message_of(keeper, kDecider, version, Applied{})));
    }
    decider.take_messages();
  }
}

// A step may be no multiple of an update's mass: then the first version beyond it is named.
TEST(ServerSaves, AMultipleBetweenTwoVersionsIsNamedAfterIt) {
  Decider decider = ready_decider(4);
  const std::vector<int64_t> expected = {0, 2, 3, 4};
  for (size_t i = 0; i < expected.size(); ++i) {
    store(decider, static_cast<int32_t>(i % 2));
    EXPECT_EQ(decider.record().save.value, expected[i]);
  }
}

TEST(ServerSaves, OnRequestTheVersionIsNamedOnce) {
  Decider decider = ready_decider(0);
  store(decider, 0);
  EXPECT_EQ(versions_to_save(decider), std::vector<Version>{{0}});
  decider.save();
  EXPECT_EQ(versions_to_save(decider), std::vector<Version>{{1}});
  EXPECT_EQ(decider.record().save_mass, Mass{3});
  decider.save();
  EXPECT_TRUE(decider.take_messages().empty()) << "nothing is new";
  store(decider, 1);
  EXPECT_EQ(versions_to_save(decider), std::vector<Version>{{1}});
}

// Each update has a mass of 3, so the run is done with the second one. A state that is saved when
// the run is stopped is then that of its last step.
TEST(ServerSaves, NothingIsDecidedAfterTheEnd) {
  DeciderStart start{kDecider, 3, first_record(sync_mode_from_text("asynchronous").value(), 2)};
  start.end = {6};
  auto made = Decider::make(start);
  ASSERT_TRUE(made.ok());
  Decider decider = std::move(made).value();
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  for (const int32_t replica : {0, 1, 0, 1}) store(decider, replica);
  EXPECT_EQ(decider.record().applied, Mass{6});
  EXPECT_EQ(decider.record().version.value, 2);
  for (const PeerId keeper : {kShard, kStandby}) {
    expect_ok(decider.handle(message_of(keeper, kDecider, {2}, Applied{})));
  }
  EXPECT_EQ(decider.record().version.value, 2) << "the offers are still held back";
  EXPECT_EQ(decider.record().committed.value, 2);
  EXPECT_EQ(decider.record().open.size(), 2U);
  decider.save();
  EXPECT_EQ(decider.record().save_mass, Mass{6});
  start.end = {-1};
  const auto refused = Decider::make(start);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "servers: expected a run that ends at a mass of at least 1, or 0 for one without an "
            "end, found -1");
}

// In the middle of a change of members the request waits.
TEST(ServerSaves, ARequestWaitsUntilAllHaveReported) {
  Decider decider = ready_decider(0);
  store(decider, 0);
  Membership members = two_replicas();
  members.epoch = 2;
  expect_ok(decider.install(members));
  decider.take_messages();
  decider.save();
  EXPECT_TRUE(decider.take_messages().empty());
  for (const PeerId part : {kFirst, kSecond}) {
    expect_ok(decider.handle(message_of(part, kDecider, {}, PartReport{}, 2)));
  }
  for (const PeerId keeper : {kShard, kStandby}) {
    expect_ok(decider.handle(message_of(keeper, kDecider, {1}, KeeperReport{true, {}, {}}, 2)));
  }
  EXPECT_EQ(versions_to_save(decider), std::vector<Version>{{1}});
}

TEST(ServerSaves, AMassBelowZeroIsRefused) {
  const auto made = Decider::make({kDecider, 3, first_record({}, 2), 0, {-1}});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "servers: expected states to be saved whenever a mass of at least 1 is applied, or 0 "
            "for only on request, found -1");
}

// ---- a keeper --------------------------------------------------------------------------------

// The state of a store that has taken so many of the keeper's updates.
Elements state_after(int64_t updates) {
  constexpr ElementRange kRange{{0}, 0, 2};
  Elements elements = TallyStore(kRange).elements();
  for (int64_t i = 0; i < updates; ++i) {
    const Work work{0, {}, 1, {{{1}, i, i + 1}}};
    apply_to(elements, {gradient_of(work, kRange)});
  }
  elements.push_back(static_cast<uint32_t>(updates));
  return elements;
}

// The next record names its own version.
void name_version(Keeper& keeper) {
  keeper.record.save = keeper.record.version;
  keeper.record.save_mass = {keeper.record.version.value};
}

void commit(Keeper& keeper, int64_t version) {
  keeper.record.committed = {version};
  std::erase_if(keeper.record.updates,
                [&](const DecidedUpdate& one) { return one.update.version.value < version; });
}

// At the end of a run a keeper waits until it has heard of the last state to be written down.
TEST(ServerSaves, AKeeperSaysWhatItHasHeardOf) {
  Keeper keeper;
  keeper.update();
  keeper.tell();
  EXPECT_TRUE(keeper.shard.knows_save({}));
  EXPECT_FALSE(keeper.shard.knows_save({1}));
  name_version(keeper);
  EXPECT_FALSE(keeper.shard.knows_save({1}));
  keeper.tell();
  EXPECT_TRUE(keeper.shard.knows_save({1}));
  EXPECT_FALSE(keeper.shard.knows_save({2}));
}

TEST(ServerSaves, AStateIsGivenOutWhenItIsCommitted) {
  Keeper keeper;
  keeper.update();
  name_version(keeper);
  const Record named = keeper.record;
  keeper.tell();
  EXPECT_EQ(keeper.shard.version(), Version{1});
  EXPECT_FALSE(keeper.shard.take_saved().has_value());
  keeper.update();
  keeper.tell();
  EXPECT_FALSE(keeper.shard.take_saved().has_value());
  commit(keeper, 1);
  keeper.tell();
  const std::optional<SavedState> saved = keeper.shard.take_saved();
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->version, Version{1});
  EXPECT_EQ(saved->mass, Mass{1});
  EXPECT_EQ(elements_in(saved->state), state_after(1));
  ASSERT_TRUE(saved->record.has_value());
  EXPECT_EQ(*saved->record, named);
  keeper.tell();
  EXPECT_FALSE(keeper.shard.take_saved().has_value()) << "each version once";
}

// Whoever knows that all is committed need not wait for the record that says it.
TEST(ServerSaves, AtTheEndEveryStateIsGivenOut) {
  Keeper keeper;
  for (int64_t version = 1; version <= 2; ++version) {
    keeper.update();
    name_version(keeper);
    keeper.tell();
  }
  EXPECT_FALSE(keeper.shard.take_saved().has_value());
  for (int64_t version = 1; version <= 2; ++version) {
    const std::optional<SavedState> saved = keeper.shard.take_saved(true);
    ASSERT_TRUE(saved.has_value());
    EXPECT_EQ(saved->version, Version{version});
    EXPECT_EQ(elements_in(saved->state), state_after(version));
  }
  EXPECT_FALSE(keeper.shard.take_saved(true).has_value());
}

// The keeper hears late of the version, and of two updates at once: the state is that between them.
TEST(ServerSaves, TheStateIsThatOfExactlyTheVersion) {
  Keeper keeper;
  keeper.update();
  name_version(keeper);
  keeper.update();
  keeper.tell();
  EXPECT_EQ(keeper.shard.version(), Version{2});
  const std::optional<SavedState> saved = keeper.shard.take_saved(true);
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->version, Version{1});
  EXPECT_EQ(elements_in(saved->state), state_after(1));
  EXPECT_FALSE(saved->record.has_value()) << "it was not sent the record of this version";
}

TEST(ServerSaves, AKeeperThatIsThereAlreadySavesAtOnce) {
  Keeper keeper;
  keeper.update();
  keeper.tell();
  commit(keeper, 1);
  name_version(keeper);
  keeper.tell();
  const std::optional<SavedState> saved = keeper.shard.take_saved();
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(saved->version, Version{1});
}

TEST(ServerSaves, AVersionThatIsNotDecidedIsRefused) {
  Keeper keeper;
  keeper.record.save = {1};
  expect_error(keeper.shard.handle(message_of(kDecider, kShard, {}, keeper.record)),
               "0 to 0 with 1 to be saved, of peer 0");
}

// A standby makes nothing, until it takes the place of a shard that is lost.
TEST(ServerSaves, AStandbyThatTakesOverSaves) {
  constexpr ElementRange kRange{{0}, 0, 2};
  ServerShard standby({kStandby, kRange, true, {}, kKeptVersions},
                      std::make_unique<TallyStore>(kRange));
  expect_ok(standby.handle(message_of(kDecider, kStandby, {}, Enter{two_replicas()})));
  Keeper keeper;  // its records and gradients are the standby's too
  const Work work{1, {{1}, {0}, {0}, {1}}, 1, {{{1}, 0, 1}}};
  const Payload gradient = payload_with(gradient_of(work, kRange));
  expect_ok(standby.handle(message_of(kSecond, kStandby, {0}, Gradient{1, gradient})));
  keeper.update();
  name_version(keeper);
  commit(keeper, 0);
  expect_ok(standby.handle(message_of(kDecider, kStandby, {1}, keeper.record)));
  EXPECT_EQ(standby.version(), Version{1});
  EXPECT_FALSE(standby.take_saved(true).has_value());
  Membership members = without(two_replicas(), kShard);
  members.epoch = 2;
  expect_ok(standby.handle(message_of(kDecider, kStandby, {}, Enter{members}, 2)));
  EXPECT_FALSE(standby.take_saved(true).has_value());
  commit(keeper, 1);
  expect_ok(standby.handle(message_of(kDecider, kStandby, {1}, keeper.record, 2)));
  const std::optional<SavedState> saved = standby.take_saved();
  ASSERT_TRUE(saved.has_value());
  EXPECT_EQ(elements_in(saved->state), state_after(1));
}

// ---- a run that goes on ----------------------------------------------------------------------

// After seven updates, with a work of each replica and what was returned before.
Record record_of_a_run() {
  Record record = first_record(sync_mode_from_text("asynchronous").value(), 2);
  record.sequence = 40;
  record.version = {7};
  record.committed = {6};
  record.updates_decided = 7;
  record.last_serial = (int64_t{5} << 32) + 12;
  record.streams = {{{5}, 15}, {{4}, 12}};
  record.returned = {{{0}, 3, 4}};
  record.open = {{{50, {{1}, {3}, {6}, {3}}, 1, {{{1}, 9, 12}}}, true, false},
                 {{51, {{0}, {4}, {7}, {3}}, 1, {{{0}, 12, 15}}}, false, false}};
  record.updates.resize(1);
  record.filling = {kStandby};
  record.applied = {20};
  record.save = {7};
  record.save_mass = {20};
  record.digest = 77;
  return record;
}

TEST(ServerSaves, ResumedForgetsWhoLivedAndReturnsTheirMicroBatches) {
  const Record before = record_of_a_run();
  Record expected = before;
  expected.sequence = 0;
  expected.committed = {7};
  expected.last_serial = 0;
  expected.returned = {{{0}, 3, 4}, {{0}, 12, 15}, {{1}, 9, 12}};
  expected.open.clear();
  expected.updates.clear();
  expected.filling.clear();
  expected.save = {};
  expected.save_mass = {};
  expected.digest = 0;
  EXPECT_EQ(resumed(before), expected);
}

// The micro-batches that are given out first are those of works that were open.
TEST(ServerSaves, ADeciderGoesOnFromASave) {
  auto made = Decider::make({kDecider, 3, resumed(record_of_a_run()), 0, {24}});
  ASSERT_TRUE(made.ok()) << made.error().message;
  Decider decider = std::move(made).value();
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true, {7}));
  ASSERT_TRUE(decider.is_ready());
  EXPECT_EQ(decider.record().version, Version{7});
  EXPECT_EQ(decider.record().save, Version{}) << "what was resumed need not be written again";
  ASSERT_EQ(decider.record().open.size(), 2u);
  const std::vector<MicroRange> first = {{{0}, 3, 4}, {{0}, 12, 14}};
  const std::vector<MicroRange> second = {{{0}, 14, 15}, {{1}, 9, 11}};
  EXPECT_EQ(decider.record().open[0].work.micros, first);
  EXPECT_EQ(decider.record().open[1].work.micros, second);
  EXPECT_EQ(decider.record().returned, (std::vector<MicroRange>{{{1}, 11, 12}}));
  EXPECT_EQ(decider.record().open[0].work.offer.iteration.value, 5);
  store(decider, 0);
  EXPECT_EQ(decider.record().updates.back().update.number, 7);
  EXPECT_EQ(decider.record().applied, Mass{23});
  EXPECT_EQ(decider.record().save, Version{});
  store(decider, 1);
  EXPECT_EQ(decider.record().save, Version{9}) << "a mass of 26 is beyond 24";
}

}  // namespace
}  // namespace tenuto::servers
