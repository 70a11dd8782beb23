// Server shards: clusters with random deaths, joins, replaced deciders and changes of mode, and
// what each machine refuses.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <numeric>

#include "base/text.h"
#include "ir/sync_mode.h"
#include "sanitized.h"
#include "sync/formed.h"
#include "sync/servers/micros.h"
#include "sync/servers_by_hand.h"
#include "sync/servers_cluster.h"

namespace tenuto::servers {
namespace {

// Clusters until so many changes of mode, deaths and joins have happened in all.
void run_clusters(Architecture architecture, int32_t stages, uint64_t first_seed) {
  constexpr int64_t kAll = kSanitized ? 150 : 2000, kEach = 50;
  std::array<int64_t, kEvents> happened{};
  int64_t updates = 0, filled = 0, refused = 0, at_kept_limit = 0, saves = 0, resumed_runs = 0;
  int64_t handed_over = 0, relayed = 0, ring_changes = 0;
  for (int64_t done = 0; done < kAll; done += kEach) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(done / kEach);
    SCOPED_TRACE(cat("seed ", seed, ", stages ", stages));
    Cluster cluster(seed, stages, architecture);
    cluster.run(kEach);
    cluster.finish();
    if (testing::Test::HasFailure()) return;
    for (size_t i = 0; i < kEvents; ++i) happened[i] += cluster.happened()[i];
    updates += cluster.applied_updates();
    filled += cluster.filled();
    refused += cluster.refused();
    at_kept_limit += cluster.met_kept_limit() ? 1 : 0;
    saves += cluster.whole_saves();
    handed_over += cluster.handed_over();
    relayed += cluster.relayed();
    ring_changes += cluster.ring_changes();
    if (!cluster.newest_save()) continue;
    // The audit of the run that goes on counts what was done before, too.
    Cluster next = Cluster::resume(cluster, seed + 1000);
    next.run(kEach / 5);
    next.finish();
    if (testing::Test::HasFailure()) return;
    EXPECT_GT(next.applied_updates(), *cluster.newest_save());
    ++resumed_runs;
  }
  const int64_t all = std::accumulate(happened.begin(), happened.end(), int64_t{0});
  EXPECT_GE(all, kAll) << "changes of mode, deaths and joins";
  testing::Test::RecordProperty("events", static_cast<int>(all));
  if (kSanitized) return;
  if (architecture == Architecture::AllReduce) {
    EXPECT_GT(handed_over, 50) << "keepers whose range went to another process";
    EXPECT_GT(relayed, 100) << "gradients that were sent to a parent";
    EXPECT_GT(ring_changes, 50);
  } else {
    EXPECT_EQ(handed_over + relayed + ring_changes, 0);
  }
  for (size_t i = 0; i < kEvents; ++i) {
    EXPECT_GT(happened[i], 10) << "event " << i;
    testing::Test::RecordProperty(cat("event_", i), static_cast<int>(happened[i]));
  }
  testing::Test::RecordProperty("updates", static_cast<int>(updates));
  EXPECT_GT(updates, 50);
  EXPECT_GT(filled, 10) << "standbys that got their range";
  EXPECT_GT(saves, 20) << "versions that were written down as a whole";
  EXPECT_GT(resumed_runs, 5);
  EXPECT_GT(refused, 0) << "messages of older epochs";
  EXPECT_GT(at_kept_limit, 0) << "no keeper had as many old versions as it may have";
}

TEST(Servers, OneStageOverDeathsJoinsAndModes) { run_clusters(Architecture::Servers, 1, 100); }

TEST(Servers, TwoStagesOverDeathsJoinsAndModes) { run_clusters(Architecture::Servers, 2, 200); }

TEST(Servers, ReplicasThatKeepOverDeathsJoinsAndModes) {
  run_clusters(Architecture::AllReduce, 1, 300);
}

TEST(Servers, ReplicasOfTwoStagesThatKeepOverDeathsJoinsAndModes) {
  run_clusters(Architecture::AllReduce, 2, 400);
}

// ---- a cluster by hand -----------------------------------------------------------------------

TEST(Servers, ReplicasReadTheirOwnDataWhileNobodyIsLost) {
  Decider decider = decider_of("synchronous");
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  EXPECT_TRUE(decider.is_ready());
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    ASSERT_EQ(decider.record().open.size(), 2u);
    for (const OpenWork& open : decider.record().open) {
      const std::vector<MicroRange> own = {
          {open.work.offer.replica, 3 * iteration, 3 * iteration + 3}};
      EXPECT_EQ(open.work.micros, own);
      EXPECT_EQ(open.work.offer.iteration.value, iteration);
      EXPECT_EQ(open.work.applied, Mass{6 * iteration});
    }
    store(decider, 1);
    EXPECT_EQ(decider.record().version.value, iteration);
    store(decider, 0);
    EXPECT_EQ(decider.record().version.value, iteration + 1);
    const Version version{iteration + 1};
    expect_ok(decider.handle(message_of(kShard, kDecider, version, Applied{})));
    EXPECT_EQ(decider.record().committed.value, iteration);
    expect_ok(decider.handle(message_of(kStandby, kDecider, version, Applied{})));
    EXPECT_EQ(decider.record().committed, version);
    EXPECT_TRUE(decider.record().updates.empty());
  }
}

// A work has the mode in which it was given out, and keeps it when the mode changes.
TEST(Servers, AWorkHasTheLocalStepsOfItsMode) {
  Decider decider = decider_of("synchronous+local:2+outer:0.5,0.25");
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  expect_ok(decider.change(SyncMode{}));
  ASSERT_EQ(decider.record().open.size(), 2u);
  for (const OpenWork& open : decider.record().open) {
    EXPECT_EQ(open.work.micros, (std::vector<MicroRange>{{open.work.offer.replica, 0, 6}}));
    EXPECT_EQ(open.work.offer.mass, Mass{6});
    EXPECT_EQ(open.work.local_steps, 2);
    EXPECT_EQ(open.work.outer, (OuterStep{0.5, 0.25}));
  }
  store(decider, 1);
  store(decider, 0);
  ASSERT_EQ(decider.record().updates.size(), 1u);
  for (const Work& work : decider.record().updates.front().works) {
    EXPECT_EQ(work.outer, (OuterStep{0.5, 0.25}));
  }
  ASSERT_EQ(decider.record().open.size(), 2u);
  for (const OpenWork& open : decider.record().open) {
    EXPECT_EQ(open.work.micros, (std::vector<MicroRange>{{open.work.offer.replica, 6, 9}}));
    EXPECT_EQ(open.work.offer.iteration.value, 2);
    EXPECT_EQ(open.work.applied, Mass{12});
    EXPECT_EQ(open.work.local_steps, 1);
    EXPECT_EQ(open.work.outer, OuterStep{});
  }
}

// The lost replica's micro-batches are the first ones of the other one's next works.
TEST(Servers, MicroBatchesOfALostReplicaAreDealtOut) {
  Decider decider = decider_of("asynchronous");
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  Membership members = without(two_replicas(), kSecond);
  members.epoch = 2;
  expect_ok(decider.install(members));
  expect_ok(decider.handle(message_of(kFirst, kDecider, {}, PartReport{}, 2)));
  const int64_t serial = decider.record().open.front().work.serial;
  for (const PeerId keeper : {kShard, kStandby}) {
    expect_ok(
        decider.handle(message_of(keeper, kDecider, {}, KeeperReport{true, {}, {serial}}, 2)));
  }
  // The first replica's gradient was here already, so its next work is given out at once.
  const std::vector<DroppedWork> dropped = decider.take_dropped();
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped.front().reason, DropReason::Lost);
  ASSERT_EQ(decider.record().open.size(), 1u);
  EXPECT_EQ(decider.record().open.front().work.micros, dropped.front().work.micros);
  EXPECT_EQ(decider.record().version.value, 1);
  EXPECT_TRUE(decider.record().returned.empty());
}

// With a limit of one offer the second one waits until the first update is committed.
TEST(Servers, UncommittedOffersHaveALimit) {
  Decider decider = decider_of("asynchronous", 1);
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  store(decider, 0);
  EXPECT_EQ(decider.record().version.value, 1);
  store(decider, 1);
  EXPECT_EQ(decider.record().version.value, 1);
  expect_ok(decider.handle(message_of(kShard, kDecider, {1}, Applied{})));
  EXPECT_EQ(decider.record().version.value, 1);
  expect_ok(decider.handle(message_of(kStandby, kDecider, {1}, Applied{})));
  EXPECT_EQ(decider.record().version.value, 2);
  const Record record = first_record({}, 2);
  for (const int64_t limit : {-1, 7}) {
    const auto made = Decider::make({kDecider, 3, record, limit});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message,
              cat("servers: expected a limit of 1 to 6 uncommitted offers, or 0 for the usual "
                  "one, found ",
                  limit));
  }
}

TEST(Servers, ARangeThatNobodyHasEndsTheRun) {
  Decider decider = decider_of("synchronous");
  expect_ok(decider.install(two_replicas()));
  const Status lost = report_all(decider, false, false);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, Code::Infeasible);
  EXPECT_EQ(lost.error().message,
            "servers: no living process has range 0 of the parameters: resume from a checkpoint");
}

TEST(Servers, ADeciderRefusesWhatDoesNotFit) {
  Decider decider = decider_of("synchronous");
  EXPECT_FALSE(decider.change({}).ok());
  expect_ok(decider.install(two_replicas()));
  expect_error(decider.install(two_replicas()), "expected an epoch after 1, found 1");
  Membership other = two_replicas();
  other.epoch = 2;
  other.ranges[0].range.end = 3;
  expect_error(decider.install(other), "the same ranges");
  other = two_replicas();
  other.replicas.push_back({});
  other.epoch = 2;
  expect_error(decider.install(other), "expected 2 replicas, found 3");
  expect_error(decider.handle(message_of(kShard, kDecider, {}, Stored{1})), "did not report");
  expect_ok(report_all(decider, true, true));
  expect_error(decider.handle(message_of(kShard, kDecider, {1}, Applied{})),
               "version 1, which is not decided");
  expect_error(decider.handle(message_of(kFirst, kDecider, {}, Fetch{})), "not for it");
  // Of another epoch, of a stranger, and to somebody else.
  const Record before = decider.record();
  expect_ok(decider.handle(message_of(kShard, kDecider, {1}, Applied{}, 2)));
  expect_ok(decider.handle(message_of({9}, kDecider, {1}, Applied{})));
  expect_ok(decider.handle(message_of(kShard, kStandby, {1}, Applied{})));
  EXPECT_EQ(decider.refused(), 3);
  EXPECT_EQ(decider.record(), before);
}

TEST(Servers, MembersAreChecked) {
  expect_ok(check(two_replicas()));
  Membership members = two_replicas();
  members.epoch = kMostEpochs + 1;
  expect_error(check(members), "expected an epoch from 1 to 2147483647");
  members = two_replicas();
  members.ranges[0].range.begin = 1;
  expect_error(check(members), "range 0 to begin at element 0 of stage 0");
  members = two_replicas();
  members.ranges[0].keepers.clear();
  expect_error(check(members), "found 0 keepers");
  members = two_replicas();
  members.replicas[1].push_back({5});
  expect_error(check(members), "expected 1 parts of replica 1");
  members = two_replicas();
  members.replicas[1] = {kFirst};
  expect_error(check(members), "peers with different numbers");
}

// ---- a keeper by hand ------------------------------------------------------------------------

// With one old version, an update that would need another one waits for a reader.
TEST(Servers, OldVersionsHaveALimit) {
  Keeper keeper(1);
  const Work first = keeper.open(0);
  keeper.update();
  keeper.tell();
  EXPECT_EQ(keeper.shard.version().value, 1);
  EXPECT_EQ(keeper.shard.kept_versions(), 1);
  const Work second = keeper.open(1);
  keeper.update();
  keeper.tell();
  EXPECT_EQ(keeper.shard.version().value, 1);
  keeper.shard.take_messages();
  expect_ok(keeper.shard.handle(message_of(kFirst, kShard, first.offer.version, Fetch{})));
  const std::vector<Message> answers = keeper.shard.take_messages();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers.front().header.version.value, 0);
  EXPECT_EQ(payload_of(answers.front()).count, 2 * kElementBytes);
  keeper.record.open.front().read = true;
  keeper.tell();
  EXPECT_EQ(keeper.shard.version().value, 2);
  EXPECT_EQ(keeper.shard.kept_versions(), 1);
  expect_error(keeper.shard.handle(message_of(kFirst, kShard, {0}, Fetch{})),
               "version 0, which is not kept any more");
  expect_ok(keeper.shard.handle(message_of(kFirst, kShard, second.offer.version, Fetch{})));
}

TEST(Servers, GradientsOfAKeeperHaveALimit) {
  Keeper keeper;
  keeper.tell();
  const Payload gradient = payload_with({1, 2});
  for (int64_t serial = 1; serial <= 2 * kGradientsPerReplica; ++serial) {
    expect_ok(keeper.shard.handle(message_of(kFirst, kShard, {}, Gradient{serial, gradient})));
  }
  const Status full = keeper.shard.handle(
      message_of(kFirst, kShard, {}, Gradient{2 * kGradientsPerReplica + 1, gradient}));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, Code::Exhausted);
  // One that is here already is confirmed again.
  expect_ok(keeper.shard.handle(message_of(kFirst, kShard, {}, Gradient{1, gradient})));
}

TEST(Servers, AKeeperRefusesWhatDoesNotFit) {
  Keeper keeper;
  keeper.tell();
  const Payload small = payload_with({1});
  expect_error(keeper.shard.handle(message_of(kFirst, kShard, {}, Gradient{1, small})),
               "expected a gradient of 8 bytes, found 4");
  expect_error(keeper.shard.handle(message_of(kFirst, kShard, {}, Read{1})), "not for a keeper");
  expect_error(keeper.shard.handle(message_of(kDecider, kShard, {1}, keeper.record)),
               "expected a record of the decider");
  // The gradient of a decided work that was computed with another version.
  keeper.update();
  const int64_t serial = keeper.record.last_serial + 1;
  expect_ok(keeper.shard.handle(
      message_of(kSecond, kShard, {0}, Gradient{serial, payload_with({1, 2})})));
  const Work work{serial, {{1}, {1}, {1}, {1}}, 1, {{{1}, 1, 2}}};
  keeper.record.last_serial = serial;
  keeper.record.updates.push_back({{1, {1}, {work.offer}, {{1}}}, {work}});
  keeper.record.version = {2};
  expect_error(keeper.shard.handle(message_of(kDecider, kShard, {2}, keeper.record)),
               "a gradient of version 0");
  // Of an older epoch.
  expect_ok(keeper.shard.handle(message_of(kFirst, kShard, {}, Fetch{}, 0)));
  EXPECT_EQ(keeper.shard.refused(), 1);
}

// A wrong record of another process changes nothing, and the next one is taken.
TEST(Servers, AKeeperRefusesAnUpdateWithoutMass) {
  constexpr int64_t kMost = int64_t{1} << 53;
  Keeper keeper;
  keeper.tell();
  keeper.update();
  const Record right = keeper.record;
  const auto refuses = [&](const std::vector<Offer>& members, int64_t found) {
    Record wrong = right;
    wrong.updates.back().update.members = members;
    expect_error(keeper.shard.handle(message_of(kDecider, kShard, wrong.version, wrong)),
                 cat("keeper 1 cannot take update 0 on version 0 of decider 0: expected a mass "
                     "from 1 to 9007199254740992 of each offer and of all together, found ",
                     found));
    EXPECT_EQ(keeper.shard.version().value, 0);
  };
  refuses({}, 0);
  Offer offer = right.updates.back().update.members.front();
  for (const int64_t mass : {int64_t{0}, int64_t{-1}, kMost + 1}) {
    offer.mass = {mass};
    refuses({offer}, mass);
  }
  offer.mass = {kMost};
  refuses({offer, offer}, kMost);
  const auto refuses_works = [&](const std::vector<Work>& works) {
    Record wrong = right;
    wrong.updates.back().works = works;
    expect_error(keeper.shard.handle(message_of(kDecider, kShard, wrong.version, wrong)),
                 cat("expected a work for each of 1 offers, with an outer step in range, found ",
                     works.size(), " works"));
    EXPECT_EQ(keeper.shard.version().value, 0);
  };
  refuses_works({});
  Work work = right.updates.back().works.front();
  work.outer.momentum = 1;
  refuses_works({work});
  work.outer = {std::numeric_limits<double>::quiet_NaN(), 0};
  refuses_works({work});
  keeper.tell();
  EXPECT_EQ(keeper.shard.version().value, 1);
}

TEST(Servers, AKeeperRefusesAFillThatDoesNotFit) {
  constexpr ElementRange kRange{{0}, 0, 2};
  ServerShard standby({kStandby, kRange, false, {}, kKeptVersions},
                      std::make_unique<TallyStore>(kRange));
  expect_ok(standby.handle(message_of(kDecider, kStandby, {}, Enter{two_replicas()})));
  const Payload right = payload_with({1, 2}), small = payload_with({1});
  const Payload state = TallyStore(kRange).save();
  const auto fill = [&](const Payload& parameters, const Payload& gradient) {
    const Fill body{state, {{{0}, parameters}}, {{1, {0}, gradient}}};
    return standby.handle(message_of(kShard, kStandby, {1}, body));
  };
  expect_error(fill(small, right), "expected parameters of 8 bytes, found 4 of peer 1");
  expect_error(fill(right, small), "expected a gradient of 8 bytes, found 4 of peer 1");
  expect_error(fill(right, nullptr), "expected a gradient of 8 bytes, found 0 of peer 1");
  EXPECT_FALSE(standby.is_filled());
  expect_ok(fill(right, right));
  EXPECT_TRUE(standby.is_filled());
}

TEST(Servers, APartRefusesWhatDoesNotFit) {
  ReplicaPart part(kFirst, {0});
  expect_ok(part.handle(message_of(kDecider, kFirst, {}, Enter{two_replicas()})));
  const Work work{1, {{0}, {0}, {0}, {1}}, 1, {{{0}, 0, 1}}};
  expect_error(part.handle(message_of(kDecider, kFirst, {1}, Assign{work, {}})),
               "on version 0 in a message of version 1");
  expect_ok(part.handle(message_of(kDecider, kFirst, {0}, Assign{work, {}})));
  const Payload right = payload_with({1, 2});
  expect_error(part.handle(message_of(kShard, kFirst, {1}, Parameters{right})), "not asked");
  expect_error(part.handle(message_of(kStandby, kFirst, {0}, Parameters{right})), "not asked");
  expect_error(part.handle(message_of(kShard, kFirst, {0}, Parameters{payload_with({1})})),
               "got 4 bytes");
  expect_error(part.offer(1, {right}), "expected one gradient of work 1");
  expect_ok(part.handle(message_of(kShard, kFirst, {0}, Parameters{right})));
  EXPECT_TRUE(part.is_ready());
  expect_error(part.offer(1, {}), "for each of 1 ranges");
  expect_ok(part.offer(7, {right}));  // of a work that it does not have any more
  EXPECT_TRUE(part.is_ready());
  part.take_messages();
  expect_ok(part.offer(1, {right}));
  EXPECT_EQ(part.take_messages().size(), 2u);  // to both keepers
}

// ---- children and their parents --------------------------------------------------------------

// The assignments that the decider has sent since the last call, by part.
std::map<PeerId, Assign> assignments(Decider& decider) {
  std::map<PeerId, Assign> found;
  for (const Message& message : decider.take_messages()) {
    const auto* assign = std::get_if<Assign>(&message.body);
    if (assign != nullptr) found[message.header.to] = *assign;
  }
  return found;
}

Decider decider_with_children(const std::string& mode) {
  DeciderStart start;
  start.self = kDecider;
  start.micros = 3;
  start.record = first_record(sync_mode_from_text(mode).value(), 2);
  start.children_send_to_parents = true;
  auto made = Decider::make(start);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

TEST(Servers, AChildIsToldItsParent) {
  Decider decider = decider_with_children("ring:1:0,0");
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  std::map<PeerId, Assign> assigned = assignments(decider);
  ASSERT_EQ(assigned.size(), 2u);
  EXPECT_FALSE(assigned.at(kFirst).parent.has_value());
  EXPECT_EQ(assigned.at(kSecond).parent, kFirst);
  // Without its parent it sends to the keepers itself.
  Membership members = without(two_replicas(), kFirst);
  members.epoch = 2;
  expect_ok(decider.install(members));
  expect_ok(decider.handle(message_of(kSecond, kDecider, {}, PartReport{}, 2)));
  for (const PeerId keeper : {kShard, kStandby}) {
    expect_ok(decider.handle(message_of(keeper, kDecider, {}, KeeperReport{true, {}, {}}, 2)));
  }
  assigned = assignments(decider);
  ASSERT_EQ(assigned.size(), 1u);
  EXPECT_TRUE(assigned.at(kSecond).work.has_value());
  EXPECT_FALSE(assigned.at(kSecond).parent.has_value());
}

// Replica 0 is faster, and its host is overloaded: so the other one is its parent.
TEST(Servers, NoChildIsSentToAnOverloadedParent) {
  const std::vector<IterationTime> times = {{from_milliseconds(10), {}},
                                            {from_milliseconds(20), {}}};
  const std::vector<RelayLimit> limits = {{true, kMostReplicas}, {false, 1}};
  const SyncMode ring = form(sync_mode_from_text("ring:1").value(), times, 3, limits).value();
  Decider decider = decider_with_children(to_text(ring));
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  const std::map<PeerId, Assign> assigned = assignments(decider);
  ASSERT_EQ(assigned.size(), 2u);
  EXPECT_EQ(assigned.at(kFirst).parent, kSecond);
  EXPECT_FALSE(assigned.at(kSecond).parent.has_value());
}

TEST(Servers, OnlyARingHasChildren) {
  for (const char* mode : {"synchronous", "asynchronous", "ring:2:0,1"}) {
    SCOPED_TRACE(mode);
    Decider decider = decider_with_children(mode);
    expect_ok(decider.install(two_replicas()));
    expect_ok(report_all(decider, true, true));
    const std::map<PeerId, Assign> assigned = assignments(decider);
    ASSERT_EQ(assigned.size(), 2u);
    for (const auto& one : assigned) EXPECT_FALSE(one.second.parent.has_value());
  }
  // As in a run with servers.
  Decider decider = decider_of("ring:1:0,0");
  expect_ok(decider.install(two_replicas()));
  expect_ok(report_all(decider, true, true));
  EXPECT_FALSE(assignments(decider).at(kSecond).parent.has_value());
}

// The child's gradient leaves it once, for the keepers that do not have it yet; the parent passes
// it on as it is.
TEST(Servers, AChildsGradientGoesThroughItsParent) {
  ReplicaPart child(kSecond, {0}), parent(kFirst, {0});
  expect_ok(child.handle(message_of(kDecider, kSecond, {}, Enter{two_replicas()})));
  expect_ok(parent.handle(message_of(kDecider, kFirst, {}, Enter{two_replicas()})));
  parent.take_messages();
  const Work work{5, {{1}, {0}, {2}, {1}}, 1, {{{1}, 0, 1}}};
  const Payload gradient = payload_with({3, 4});
  const auto sent_with = [&](const std::vector<PeerId>& have) {
    expect_ok(child.handle(message_of(kDecider, kSecond, {2}, Assign{work, have, kFirst})));
    if (child.work() && !child.is_ready() && have.empty()) {
      expect_ok(child.handle(message_of(kShard, kSecond, {2}, Parameters{payload_with({1, 2})})));
      child.take_messages();
      expect_ok(child.offer(5, {gradient}));
    }
    std::vector<Message> relayed = child.take_messages();
    std::erase_if(relayed,
                  [](const Message& one) { return !std::holds_alternative<Relayed>(one.body); });
    return relayed;
  };
  const std::vector<Message> first = sent_with({});
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].header.to, kFirst);
  EXPECT_EQ(std::get<Relayed>(first[0].body).keepers, (std::vector<PeerId>{kShard, kStandby}));
  EXPECT_EQ(payload_of(first[0]).count, 2 * kElementBytes);
  expect_ok(parent.handle(first[0]));
  const std::vector<Message> passed_on = parent.take_messages();
  ASSERT_EQ(passed_on.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(passed_on[i].header.to, i == 0 ? kShard : kStandby);
    EXPECT_EQ(passed_on[i].header.from, kFirst);
    EXPECT_EQ(passed_on[i].header.version, Version{2});
    EXPECT_EQ(std::get<Gradient>(passed_on[i].body).serial, 5);
    EXPECT_EQ(std::get<Gradient>(passed_on[i].body).payload, gradient) << "it is not copied";
  }
  // Assigned again: one keeper has it by now, then both.
  const std::vector<Message> second = sent_with({kShard});
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(std::get<Relayed>(second[0].body).keepers, std::vector<PeerId>{kStandby});
  EXPECT_TRUE(sent_with({kShard, kStandby}).empty());
}

TEST(Servers, AParentRefusesWhatDoesNotFit) {
  ReplicaPart parent(kFirst, {0});
  expect_ok(parent.handle(message_of(kDecider, kFirst, {}, Enter{two_replicas()})));
  parent.take_messages();
  const Payload right = payload_with({1, 2});
  const auto pass_on = [&](PeerId from, const Relayed& body) {
    return parent.handle(message_of(from, kFirst, {}, body));
  };
  expect_error(pass_on(kSecond, {1, 1, {kShard}, right}), "of range 1 of peer 4");
  expect_error(pass_on(kSecond, {1, -1, {kShard}, right}), "of range -1");
  expect_error(pass_on(kSecond, {1, 0, {kShard}, payload_with({1})}), "found 4 bytes");
  expect_error(pass_on(kSecond, {1, 0, {kShard}, nullptr}), "found 0 bytes");
  expect_error(pass_on(kSecond, {1, 0, {kFirst}, right}), "for the keepers of a range");
  expect_error(pass_on(kSecond, {1, 0, {kShard, kShard, kShard}, right}), "for 3 keepers");
  expect_error(pass_on(kShard, {1, 0, {kShard}, right}), "not for a part");
  EXPECT_TRUE(parent.take_messages().empty());
  expect_ok(pass_on({9}, {1, 0, {kShard}, right}));
  expect_ok(parent.handle(message_of(kSecond, kFirst, {}, Relayed{1, 0, {kShard}, right}, 2)));
  EXPECT_EQ(parent.refused(), 2);
  EXPECT_TRUE(parent.take_messages().empty());
  const Work work{1, {{0}, {0}, {0}, {1}}, 1, {{{0}, 0, 1}}};
  for (const PeerId other : {kFirst, kShard}) {
    expect_error(parent.handle(message_of(kDecider, kFirst, {0}, Assign{work, {}, other})),
                 "expected the part of stage 0 of another replica as its parent");
  }
  expect_ok(pass_on(kSecond, {1, 0, {kShard}, right}));
  EXPECT_EQ(parent.take_messages().size(), 1u);
}

// Whatever is given back is given out again, once.
TEST(Servers, MicroBatchesAreGivenOutOnce) {
  Random random(7);
  std::vector<MicroRange> returned;
  std::vector<Stream> streams(3);
  std::vector<Work> open;
  for (int step = 0; step < 2000; ++step) {
    const bool gives_back = !open.empty() && (open.size() == 6 || random.below(2) == 0);
    if (gives_back) {
      const auto which = static_cast<size_t>(random.below(std::ssize(open)));
      give_back(returned, open[which]);
      open.erase(open.begin() + static_cast<int64_t>(which));
    } else {
      const auto replica = static_cast<int32_t>(random.below(3));
      const Mass mass{1 + random.below(5)};
      Work work;
      work.micros = deal(returned, streams[static_cast<size_t>(replica)], {replica}, mass);
      open.push_back(work);
    }
    std::map<std::pair<int32_t, int64_t>, int> seen;
    int64_t given = 0;
    const auto count = [&](const std::vector<MicroRange>& ranges) {
      for (const MicroRange& range : ranges) {
        for (int64_t i = range.begin; i < range.end; ++i) ++seen[{range.stream.value, i}];
        given += range.end - range.begin;
      }
    };
    count(returned);
    for (const Work& work : open) count(work.micros);
    int64_t fresh = 0;
    for (const Stream& stream : streams) fresh += stream.fresh;
    ASSERT_EQ(given, fresh);
    ASSERT_EQ(std::ssize(seen), fresh);
    ASSERT_LE(fresh, 6 * 5);  // never more than the works that there can be at once
  }
}

}  // namespace
}  // namespace tenuto::servers
