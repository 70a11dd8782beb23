// The host's members where the parts of replicas keep the parameters: random deaths, joins and
// changes of the ring, and by hand how a range is handed over.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/contains.h"
#include "base/random.h"
#include "base/text.h"
#include "parameter_server/roster.h"
#include "sanitized.h"

namespace tenuto::servers {
namespace {

// What has happened in all histories.
struct Happened {
  int64_t deaths = 0, joins = 0, rings = 0, epochs = 0, handed_over = 0;
};

// A run whose keepers get their ranges when the test says so, and whose members are compared with
// the rules after each change.
class PartsRun {
 public:
  PartsRun(const RosterStart& start, int32_t stages, Happened& happened)
      : roster_(Roster::make(start).value()),
        stages_(stages),
        processes_(static_cast<size_t>(start.replicas * stages)),
        happened_(happened) {
    for (size_t i = 0; i < processes_.size(); ++i) join(i);
    advance();
  }

  // A process without a range of its own dies, or one whose ranges others have; or one comes.
  void toggle(size_t index) {
    if (processes_[index].value < 0) {
      join(index);
      ++happened_.joins;
      return;
    }
    if (!can_die(processes_[index])) return;
    roster_.lose(processes_[index]);
    processes_[index] = {};
    ++happened_.deaths;
  }

  void set_ring(const std::vector<ReplicaId>& ring) {
    ring_ = ring;
    roster_.set_ring(ring);
    ++happened_.rings;
  }

  // The decider hears that all keepers have their ranges.
  void fill() {
    for (const KeptRange& kept : before_.members.ranges) {
      filled_.insert(kept.keepers.begin(), kept.keepers.end());
    }
    roster_.note_filled(before_.members.epoch);
  }

  // False when the members are those of before.
  bool advance() {
    const auto next = roster_.next();
    EXPECT_TRUE(next.ok()) << (next.ok() ? "" : next.error().message);
    if (!next.ok()) return false;
    if (next.value()) {
      expect_members(*next.value());
      before_ = *next.value();
      if (before_.members.epoch == 1) fill();
      ++happened_.epochs;
    }
    expect_complete();
    const auto again = roster_.next();
    EXPECT_TRUE(again.ok() && !again.value()) << "nothing has changed meanwhile";
    return next.value().has_value();
  }

  // All handovers come to their end.
  void finish_handovers() {
    int rounds = 0;
    advance();
    do {
      fill();
      ASSERT_LT(++rounds, 20) << "ranges go round and round";
    } while (advance());
    for (int32_t stage = 0; stage < stages_; ++stage) expect_finished({stage});
  }

  const PlacedMembers& members() const { return before_; }

 private:
  void join(size_t index) {
    processes_[index] = {next_process_++};
    const auto at = static_cast<int32_t>(index);
    const Status joined =
        roster_.join({processes_[index], ProcessKind::Part, {at / stages_}, {at % stages_}});
    EXPECT_TRUE(joined.ok()) << (joined.ok() ? "" : joined.error().message);
  }

  bool lives(WorkerId process) const { return contains(processes_, process); }
  bool lives(PeerId peer) const { return lives(before_.places.at(peer)); }

  // Of the stage that live; `ring_only`: of the ring, or all if none of these lives.
  std::vector<WorkerId> living(StageId stage, bool ring_only) const {
    std::vector<WorkerId> found;
    for (size_t i = 0; i < processes_.size(); ++i) {
      const auto at = static_cast<int32_t>(i);
      if (processes_[i].value < 0 || at % stages_ != stage.value) continue;
      if (ring_only && !contains(ring_, ReplicaId{at / stages_})) continue;
      found.push_back(processes_[i]);
    }
    return found.empty() && ring_only ? living(stage, false) : found;
  }

  bool is_whole(WorkerId process) const {
    const auto found = std::find(processes_.begin(), processes_.end(), process);
    const auto first = (found - processes_.begin()) / stages_ * stages_;
    return std::all_of(processes_.begin() + first, processes_.begin() + first + stages_,
                       [](WorkerId one) { return one.value >= 0; });
  }

  // Every range has a keeper elsewhere that has it.
  bool can_die(WorkerId process) const {
    return std::all_of(
        before_.members.ranges.begin(), before_.members.ranges.end(), [&](const KeptRange& kept) {
          return std::any_of(kept.keepers.begin(), kept.keepers.end(), [&](PeerId keeper) {
            return lives(keeper) && before_.places.at(keeper) != process &&
                   filled_.count(keeper) > 0;
          });
        });
  }

  void expect_members(const PlacedMembers& placed) {
    const Status right = check(placed);
    EXPECT_TRUE(right.ok()) << (right.ok() ? "" : right.error().message);
    EXPECT_EQ(placed.members.epoch, before_.members.epoch + 1);
    for (const auto& [peer, process] : placed.places) {
      EXPECT_TRUE(lives(process));
      const auto was = before_.places.find(peer);
      if (was != before_.places.end()) {
        EXPECT_EQ(was->second, process) << "peer " << peer.value << " has moved";
      } else {
        EXPECT_TRUE(used_.insert(peer).second) << "peer " << peer.value << " was used before";
      }
    }
    const auto read = placed_members_from_text(to_text(placed));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read.value(), placed);
    if (before_.members.epoch == 0) return;
    if (lives(before_.members.decider)) {
      EXPECT_EQ(placed.members.decider, before_.members.decider);
    }
    for (size_t i = 0; i < placed.members.ranges.size(); ++i) expect_kept(placed, i);
  }

  // Of the keepers that have the range and live, two at least stay, or all if there are fewer; and
  // one at most goes.
  void expect_kept(const PlacedMembers& placed, size_t range) {
    const std::vector<PeerId>& now = placed.members.ranges[range].keepers;
    int64_t had = 0, stay = 0, go = 0;
    for (const PeerId keeper : before_.members.ranges[range].keepers) {
      if (!lives(keeper)) continue;
      const bool stays = contains(now, keeper);
      had += filled_.count(keeper) > 0 ? 1 : 0;
      stay += stays && filled_.count(keeper) > 0 ? 1 : 0;
      go += stays ? 0 : 1;
    }
    EXPECT_GT(stay, 0) << "range " << range << " is with nobody who has it";
    EXPECT_GE(stay, std::min<int64_t>(had, 2)) << "range " << range << " has one copy less";
    EXPECT_LE(go, 1);
    happened_.handed_over += go;
  }

  // Everybody who can take part does: also when nothing has changed.
  void expect_complete() const {
    const Membership& members = before_.members;
    for (const KeptRange& kept : members.ranges) {
      const std::vector<WorkerId> able = living(kept.range.stage, false);
      std::set<WorkerId> places;
      for (const PeerId keeper : kept.keepers) {
        places.insert(before_.places.at(keeper));
        EXPECT_TRUE(contains(able, before_.places.at(keeper))) << "a part keeps another stage";
      }
      EXPECT_GE(std::ssize(places), std::min<int64_t>(2, std::ssize(able)));
      EXPECT_EQ(places.size(), kept.keepers.size()) << "two keepers in one process";
    }
    for (size_t i = 0; i < processes_.size(); ++i) {
      const size_t replica = i / static_cast<size_t>(stages_);
      if (processes_[i].value < 0) {
        EXPECT_TRUE(members.replicas[replica].empty());
      } else if (is_whole(processes_[i])) {
        ASSERT_EQ(std::ssize(members.replicas[replica]), stages_);
        const PeerId part = members.replicas[replica][i % static_cast<size_t>(stages_)];
        EXPECT_EQ(before_.places.at(part), processes_[i]);
      }
    }
  }

  void expect_finished(StageId stage) const {
    const std::vector<WorkerId> ring = living(stage, true);
    std::map<WorkerId, int64_t> kept_by;
    for (const KeptRange& kept : before_.members.ranges) {
      if (kept.range.stage != stage) continue;
      EXPECT_LE(kept.keepers.size(), 2u);
      for (size_t i = 0; i < kept.keepers.size(); ++i) {
        const WorkerId place = before_.places.at(kept.keepers[i]);
        ++kept_by[place];
        if (i == 0 || ring.size() > 1) {
          EXPECT_TRUE(contains(ring, place)) << "process " << place.value << " is not of the ring";
        }
      }
    }
    for (const WorkerId fewer : ring) {
      if (!is_whole(fewer)) continue;
      for (const WorkerId more : ring) {
        EXPECT_LE(kept_by[more] - kept_by[fewer], kMostAhead)
            << "processes " << more.value << " and " << fewer.value;
      }
    }
  }

  Roster roster_;
  int32_t stages_;
  std::vector<WorkerId> processes_;  // by replica, then by stage; none = lost
  std::vector<ReplicaId> ring_;
  int32_t next_process_ = 0;
  std::set<PeerId> filled_, used_;
  PlacedMembers before_;
  Happened& happened_;
};

RosterStart start_of(int32_t replicas, int32_t stages, int64_t ranges) {
  RosterStart start;
  for (int32_t stage = 0; stage < stages; ++stage) {
    for (int64_t i = 0; i < ranges; ++i) start.ranges.push_back({{stage}, 2 * i, 2 * i + 2});
  }
  start.replicas = replicas;
  start.kept_by_parts = true;
  return start;
}

std::vector<ReplicaId> random_ring(Random& random, int32_t replicas) {
  std::vector<ReplicaId> ring;
  for (int32_t i = 0; i < replicas; ++i) {
    if (random.below(2) == 0) ring.push_back({i});
  }
  return ring;
}

TEST(RosterOfParts, RandomDeathsJoinsAndRings) {
  constexpr uint64_t kRuns = kSanitized ? 10 : 60;
  Happened happened;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const auto replicas = static_cast<int32_t>(2 + random.below(4));
    const auto stages = static_cast<int32_t>(1 + random.below(2));
    const int64_t ranges = random.below(3) == 0 ? 1 : replicas;
    PartsRun run(start_of(replicas, stages, ranges), stages, happened);
    for (int i = 0; i < 100; ++i) {
      const int64_t choice = random.below(10);
      if (choice < 4) {
        run.toggle(static_cast<size_t>(random.below(replicas * stages)));
      } else if (choice < 6) {
        run.set_ring(random_ring(random, replicas));
      } else {
        run.fill();
      }
      run.advance();
      if (i % 10 == 9) run.finish_handovers();
      ASSERT_FALSE(testing::Test::HasFailure()) << "change " << i;
    }
  }
  if (kSanitized) return;
  EXPECT_GT(happened.deaths, 300);
  EXPECT_GT(happened.joins, 300);
  EXPECT_GT(happened.rings, 1000);
  EXPECT_GT(happened.epochs, 1000);
  EXPECT_GT(happened.handed_over, 300);
}

// A replica of one stage in each process, with as many ranges.
Roster begun(int32_t replicas) {
  Roster roster = Roster::make(start_of(replicas, 1, replicas)).value();
  for (int32_t i = 0; i < replicas; ++i) {
    EXPECT_TRUE(roster.join({{i}, ProcessKind::Part, {i}, {0}}).ok());
  }
  return roster;
}

// The members of the next epoch as text; empty = there are no other ones.
std::string next_text(Roster& roster) {
  const auto next = roster.next();
  if (!next.ok()) return next.error().message;
  return next.value() ? to_text(*next.value()) : std::string();
}

TEST(RosterOfParts, MembersAsText) {
  Roster roster = begun(3);
  const std::string replicas = " replica 8@0 replica 9@1 replica 10@2";
  // Each part is the first keeper of one range and the standby of another one.
  EXPECT_EQ(
      next_text(roster),
      "epoch 1 decider 7@0 range 0 0 2 0@0 3@1 range 0 2 4 1@1 6@2 range 0 4 6 2@2 5@0" + replicas);
  EXPECT_EQ(next_text(roster), "");
  // Replica 2 leaves the ring: the others get its ranges, one of which has a new first keeper.
  roster.set_ring({{0}, {1}});
  EXPECT_EQ(next_text(roster),
            "epoch 2 decider 7@0 range 0 0 2 0@0 3@1 range 0 2 4 1@1 6@2 11@0 range 0 4 6 2@2 5@0 "
            "12@1" +
                replicas);
  EXPECT_EQ(next_text(roster), "");
  // It goes when they have them.
  roster.note_filled(2);
  EXPECT_EQ(next_text(roster),
            "epoch 3 decider 7@0 range 0 0 2 0@0 3@1 range 0 2 4 1@1 11@0 range 0 4 6 5@0 12@1" +
                replicas);
  EXPECT_EQ(next_text(roster), "");
  // It comes back, and gets a range of one that keeps three.
  roster.set_ring({});
  EXPECT_EQ(next_text(roster),
            "epoch 4 decider 7@0 range 0 0 2 0@0 3@1 range 0 2 4 1@1 11@0 13@2 range 0 4 6 5@0 "
            "12@1" +
                replicas);
  roster.note_filled(4);
  EXPECT_EQ(next_text(roster),
            "epoch 5 decider 7@0 range 0 0 2 0@0 3@1 range 0 2 4 1@1 13@2 range 0 4 6 5@0 12@1" +
                replicas);
}

// Both keepers of a range leave the ring, one after the other. Each stays until the one that takes
// its place has the range, so two have it all the time.
TEST(RosterOfParts, ARangeIsHandedOverByOneKeeperAtATime) {
  Roster roster = begun(4);
  ASSERT_TRUE(roster.next().ok());
  const auto places = [&](size_t range) {
    std::vector<int32_t> found;
    for (const PeerId keeper : roster.newest().members.ranges[range].keepers) {
      found.push_back(roster.newest().places.at(keeper).value);
    }
    return found;
  };
  using Places = std::vector<int32_t>;
  ASSERT_EQ(places(3), (Places{3, 2}));
  roster.set_ring({{0}, {1}});
  ASSERT_NE(next_text(roster), "");
  ASSERT_EQ(places(3).size(), 3u);
  EXPECT_EQ(places(3)[0], 3);
  EXPECT_EQ(places(3)[1], 2);
  EXPECT_LT(places(3)[2], 2);
  EXPECT_EQ(next_text(roster), "") << "the new keeper has nothing yet";
  roster.note_filled(1);
  EXPECT_EQ(next_text(roster), "") << "that was known before";
  roster.note_filled(9);
  EXPECT_EQ(next_text(roster), "") << "there was no such epoch";
  roster.note_filled(2);
  ASSERT_NE(next_text(roster), "");
  ASSERT_EQ(places(3).size(), 3u);
  EXPECT_EQ(places(3)[0], 3);
  roster.note_filled(3);
  ASSERT_NE(next_text(roster), "");
  for (size_t range = 0; range < 4; ++range) {
    Places found = places(range);
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, (Places{0, 1}));
  }
  // The replica that is left of the ring keeps all, with a standby outside of it.
  roster.note_filled(4);
  ASSERT_TRUE(roster.next().ok());
  roster.lose({1});
  ASSERT_NE(next_text(roster), "");
  for (size_t range = 0; range < 4; ++range) {
    EXPECT_EQ(places(range).front(), 0);
    EXPECT_GT(places(range).back(), 1);
  }
}

// The keeper that was to leave stays if another one dies before the successor has the range.
TEST(RosterOfParts, ADeathInAHandoverLosesNothing) {
  for (const int32_t dies : {0, 1, 2}) {
    SCOPED_TRACE(cat("process ", dies, " dies"));
    Roster roster = begun(3);
    ASSERT_TRUE(roster.next().ok());
    roster.set_ring({{0}, {1}});
    ASSERT_NE(next_text(roster), "");
    const std::vector<KeptRange> before = roster.newest().members.ranges;
    roster.lose({dies});
    const std::string members = next_text(roster);
    ASSERT_EQ(members.rfind("epoch 3 ", 0), 0u) << members;
    for (const KeptRange& kept : roster.newest().members.ranges) {
      EXPECT_EQ(kept.keepers.size(), 2u) << "two processes are left";
    }
    for (size_t i = 0; i < before.size(); ++i) {
      const auto& now = roster.newest().members.ranges[i].keepers;
      EXPECT_TRUE(std::any_of(now.begin(), now.end(),
                              [&](PeerId keeper) {
                                const auto first = before[i].keepers.begin();
                                return std::find(first, first + 2, keeper) != first + 2;
                              }))
          << "range " << i << " is with nobody who had it";
    }
  }
}

TEST(RosterOfParts, AtTheEndRangesStayWhereTheyAre) {
  Roster roster = begun(3);
  ASSERT_TRUE(roster.next().ok());
  roster.end_handovers();
  roster.set_ring({{0}, {1}});
  EXPECT_EQ(next_text(roster), "");
  roster.lose({0});
  ASSERT_NE(next_text(roster), "");
  for (const KeptRange& kept : roster.newest().members.ranges) EXPECT_EQ(kept.keepers.size(), 2u);
}

// A part whose replica lacks another one still keeps its ranges, and decides.
TEST(RosterOfParts, APartOfABrokenReplicaKeepsItsRanges) {
  Roster roster = Roster::make(start_of(2, 2, 2)).value();
  EXPECT_EQ(next_text(roster),
            "no process can keep parameters yet: expected at least one part of stage 0");
  EXPECT_TRUE(roster.join({{0}, ProcessKind::Part, {0}, {0}}).ok());
  EXPECT_EQ(next_text(roster),
            "no process can keep parameters yet: expected at least one part of stage 1");
  EXPECT_TRUE(roster.join({{1}, ProcessKind::Part, {0}, {1}}).ok());
  EXPECT_TRUE(roster.join({{2}, ProcessKind::Part, {1}, {0}}).ok());
  EXPECT_TRUE(roster.join({{3}, ProcessKind::Part, {1}, {1}}).ok());
  ASSERT_NE(next_text(roster), "");
  EXPECT_EQ(roster.newest().places.at(roster.newest().members.decider), WorkerId{0});
  const std::vector<KeptRange> before = roster.newest().members.ranges;
  roster.lose({1});
  ASSERT_NE(next_text(roster), "");
  const Membership& members = roster.newest().members;
  EXPECT_TRUE(members.replicas[0].empty());
  EXPECT_EQ(members.replicas[1].size(), 2u);
  EXPECT_EQ(roster.newest().places.at(members.decider), WorkerId{0});
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(members.ranges[i], before[i]);
  for (size_t i = 2; i < 4; ++i) EXPECT_EQ(members.ranges[i].keepers.size(), 1u);
  roster.lose({3});
  EXPECT_EQ(next_text(roster),
            "all processes that had range 2 of the parameters are lost: resume from a checkpoint");
}

// A server or a process that only decides comes before all parts, but keeps nothing.
TEST(RosterOfParts, PartsDecideOnlyIfNobodyElseDoes) {
  Roster roster = begun(2);
  EXPECT_TRUE(roster.join({{2}, ProcessKind::Server, {}, {}}).ok());
  ASSERT_TRUE(roster.next().ok());
  const auto decides = [&] { return roster.newest().places.at(roster.newest().members.decider); };
  EXPECT_EQ(decides(), WorkerId{2});
  for (const KeptRange& kept : roster.newest().members.ranges) {
    for (const PeerId keeper : kept.keepers) {
      EXPECT_LT(roster.newest().places.at(keeper).value, 2);
    }
  }
  roster.set_ring({{1}});
  roster.lose({2});
  ASSERT_TRUE(roster.next().ok());
  EXPECT_EQ(decides(), WorkerId{1}) << "the ring comes first";
}

}  // namespace
}  // namespace tenuto::servers
