// The host's members: all short histories of a few processes, random deaths and joins of more, and
// what it refuses.
#include "parameter_server/roster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/random.h"
#include "base/text.h"
#include "sanitized.h"

namespace tenuto::servers {
namespace {

// A place of the run that a process can have: at most one at a time.
struct Slot {
  ProcessKind kind = ProcessKind::Server;
  ReplicaId replica;
  StageId stage;
  WorkerId process;  // none = nobody has it
};

// A roster whose members are compared with the rules after each change.
class PlayedRun {
 public:
  PlayedRun(const RosterStart& start, std::vector<Slot> slots)
      : start_(start),
        roster_(Roster::make(start).value()),
        slots_(std::move(slots)),
        stages_(start.ranges.back().stage.value + 1) {}

  // A new process takes the slot, or the one that has it is lost.
  void toggle(size_t index) {
    Slot& slot = slots_[index];
    if (slot.process.value >= 0) {
      roster_.lose(slot.process);
      slot.process = {};
      return;
    }
    slot.process = {next_process_++};
    const Status joined = roster_.join({slot.process, slot.kind, slot.replica, slot.stage});
    EXPECT_TRUE(joined.ok()) << (joined.ok() ? "" : joined.error().message);
  }

  // False when the run is over.
  bool advance() {
    const auto next = roster_.next();
    if (!next.ok()) {
      expect_refusal(next.error());
      return next.error().reach == Reach::Call;
    }
    if (next.value()) {
      expect_members(*next.value());
      before_ = *next.value();
      ++epochs_;
    }
    EXPECT_EQ(roster_.newest(), before_);
    expect_complete();
    return true;
  }

  int64_t epochs() const { return epochs_; }

 private:
  bool lives(WorkerId process) const {
    return std::any_of(slots_.begin(), slots_.end(),
                       [&](const Slot& slot) { return slot.process == process; });
  }
  bool lives(PeerId peer) const { return lives(before_.places.at(peer)); }
  int64_t servers() const {
    return std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
      return slot.kind == ProcessKind::Server && slot.process.value >= 0;
    });
  }

  // Before the first epoch a server is missing; later a range has lost all its keepers.
  void expect_refusal(const Error& error) const {
    EXPECT_EQ(error.code, Code::Infeasible);
    if (before_.members.epoch == 0) {
      EXPECT_EQ(error.reach, Reach::Call);
      EXPECT_EQ(servers(), 0);
      return;
    }
    EXPECT_EQ(error.reach, Reach::Job);
    bool is_lost = false;
    for (const KeptRange& kept : before_.members.ranges) {
      is_lost = is_lost || std::none_of(kept.keepers.begin(), kept.keepers.end(),
                                        [&](PeerId keeper) { return lives(keeper); });
    }
    EXPECT_TRUE(is_lost) << error.message;
  }

  void expect_members(const PlacedMembers& placed) {
    EXPECT_TRUE(check(placed.members).ok());
    EXPECT_EQ(placed.members.epoch, before_.members.epoch + 1);
    std::set<PeerId> peers = {placed.members.decider};
    for (const PeerId peer : peers_of(placed.members)) peers.insert(peer);
    EXPECT_EQ(peers.size(), placed.places.size());
    for (const PeerId peer : peers) {
      ASSERT_EQ(placed.places.count(peer), 1u);
      EXPECT_TRUE(lives(placed.places.at(peer)));
      const auto was = before_.places.find(peer);
      if (was != before_.places.end()) {
        EXPECT_EQ(was->second, placed.places.at(peer)) << "peer " << peer.value << " has moved";
      } else {
        EXPECT_TRUE(used_.insert(peer).second) << "peer " << peer.value << " was used before";
      }
    }
    expect_those_who_live(placed.members);
    const auto read = placed_members_from_text(to_text(placed));
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read.value(), placed);
  }

  // Who lives stays what it was: a decider, and the keepers, in order.
  void expect_those_who_live(const Membership& members) const {
    if (before_.members.epoch == 0) return;
    if (lives(before_.members.decider)) {
      EXPECT_EQ(members.decider, before_.members.decider);
    }
    for (size_t i = 0; i < members.ranges.size(); ++i) {
      std::vector<PeerId> left = before_.members.ranges[i].keepers;
      std::erase_if(left, [&](PeerId keeper) { return !lives(keeper); });
      ASSERT_LE(left.size(), members.ranges[i].keepers.size());
      EXPECT_TRUE(std::equal(left.begin(), left.end(), members.ranges[i].keepers.begin()));
    }
    for (size_t i = 0; i < members.replicas.size(); ++i) {
      const std::vector<PeerId>& was = before_.members.replicas[i];
      const bool is_whole = !was.empty() && std::all_of(was.begin(), was.end(),
                                                        [&](PeerId part) { return lives(part); });
      if (is_whole) {
        EXPECT_EQ(members.replicas[i], was);
      }
    }
  }

  // Everybody who can take part does: also when nothing has changed.
  void expect_complete() const {
    const Membership& members = before_.members;
    for (const KeptRange& kept : members.ranges) {
      std::set<WorkerId> processes;
      for (const PeerId keeper : kept.keepers) processes.insert(before_.places.at(keeper));
      EXPECT_EQ(std::ssize(processes), std::min<int64_t>(2, servers()));
      EXPECT_EQ(processes.size(), kept.keepers.size()) << "both keepers in one process";
    }
    for (const Slot& slot : slots_) {
      if (slot.kind != ProcessKind::Part) continue;
      int64_t parts = 0;
      for (const Slot& other : slots_) {
        const bool is_its = other.kind == ProcessKind::Part && other.replica == slot.replica;
        parts += is_its && other.process.value >= 0 ? 1 : 0;
      }
      const auto& found = members.replicas[static_cast<size_t>(slot.replica.value)];
      EXPECT_EQ(std::ssize(found), parts == stages_ ? stages_ : 0);
      if (found.empty()) continue;
      EXPECT_EQ(before_.places.at(found[static_cast<size_t>(slot.stage.value)]), slot.process);
    }
  }

  RosterStart start_;
  Roster roster_;
  std::vector<Slot> slots_;
  int64_t stages_;
  int32_t next_process_ = 0;
  std::set<PeerId> used_;
  PlacedMembers before_;
  int64_t epochs_ = 0;
};

RosterStart two_ranges(int32_t replicas) { return {{{{0}, 0, 3}, {{0}, 3, 5}}, replicas}; }

// Two servers, a decider, and a replica: all histories of seven changes.
TEST(Roster, AllShortHistories) {
  const std::vector<Slot> slots = {{ProcessKind::Server, {}, {}, {}},
                                   {ProcessKind::Server, {}, {}, {}},
                                   {ProcessKind::Decider, {}, {}, {}},
                                   {ProcessKind::Part, {0}, {0}, {}}};
  constexpr int kChanges = kSanitized ? 5 : 7;
  int64_t epochs = 0, over = 0;
  for (int history = 0; history < 1 << (2 * kChanges); ++history) {
    SCOPED_TRACE(cat("history ", history));
    PlayedRun run(two_ranges(1), slots);
    for (int i = 0; i < kChanges; ++i) {
      run.toggle(static_cast<size_t>((history >> (2 * i)) % 4));
      if (run.advance()) continue;
      ++over;
      break;
    }
    epochs += run.epochs();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GT(epochs, 1000);
  EXPECT_GT(over, 100);
}

// Several changes may come before the members are asked for.
TEST(Roster, RandomDeathsAndJoins) {
  std::vector<Slot> slots = {{ProcessKind::Decider, {}, {}, {}},
                             {ProcessKind::Decider, {}, {}, {}}};
  for (int32_t i = 0; i < 4; ++i) slots.push_back({ProcessKind::Server, {}, {}, {}});
  for (int32_t replica = 0; replica < 3; ++replica) {
    for (int32_t stage = 0; stage < 2; ++stage) {
      slots.push_back({ProcessKind::Part, {replica}, {stage}, {}});
    }
  }
  const RosterStart start{{{{0}, 0, 4}, {{0}, 4, 6}, {{1}, 0, 2}}, 3};
  constexpr uint64_t kRuns = kSanitized ? 20 : 200;
  int64_t longest = 0;
  for (uint64_t seed = 0; seed < kRuns; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    PlayedRun run(start, slots);
    for (size_t i = 0; i < slots.size(); ++i) run.toggle(i);
    bool goes_on = run.advance();
    for (int i = 0; i < 200 && goes_on; ++i) {
      const int64_t changes = 1 + random.below(3);
      for (int64_t change = 0; change < changes; ++change) {
        run.toggle(static_cast<size_t>(random.below(std::ssize(slots))));
      }
      goes_on = run.advance();
    }
    longest = std::max(longest, run.epochs());
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_GT(longest, 30);
}

Roster begun() {
  Roster roster = Roster::make(two_ranges(2)).value();
  EXPECT_TRUE(roster.join({{0}, ProcessKind::Server, {}, {}}).ok());
  EXPECT_TRUE(roster.join({{1}, ProcessKind::Server, {}, {}}).ok());
  EXPECT_TRUE(roster.join({{2}, ProcessKind::Decider, {}, {}}).ok());
  EXPECT_TRUE(roster.join({{3}, ProcessKind::Part, {0}, {0}}).ok());
  return roster;
}

TEST(Roster, MembersAsText) {
  Roster roster = begun();
  ASSERT_TRUE(roster.next().ok());
  // Each server is the shard of one range and the standby of the other one.
  EXPECT_EQ(to_text(roster.newest()),
            "epoch 1 decider 4@2 range 0 0 3 0@0 2@1 range 0 3 5 1@1 3@0 replica 5@3 replica");
  EXPECT_FALSE(roster.next().value().has_value());
  // The standbys take over; the decider's successor is a server; the process that comes back has
  // new peers.
  roster.lose({0});
  roster.lose({2});
  ASSERT_TRUE(roster.next().ok());
  EXPECT_EQ(to_text(roster.newest()),
            "epoch 2 decider 6@1 range 0 0 3 2@1 range 0 3 5 1@1 replica 5@3 replica");
  ASSERT_TRUE(roster.join({{4}, ProcessKind::Server, {}, {}}).ok());
  ASSERT_TRUE(roster.next().ok());
  EXPECT_EQ(to_text(roster.newest()),
            "epoch 3 decider 6@1 range 0 0 3 2@1 7@4 range 0 3 5 1@1 8@4 replica 5@3 replica");
}

// Of two that start at the same time the second one may be connected first.
TEST(Roster, ProcessesJoinInAnyOrder) {
  Roster roster = begun();
  ASSERT_TRUE(roster.next().ok());
  EXPECT_TRUE(roster.join({{5}, ProcessKind::Part, {1}, {0}}).ok());
  EXPECT_TRUE(roster.join({{4}, ProcessKind::Decider, {}, {}}).ok());
  ASSERT_TRUE(roster.next().ok());
  EXPECT_EQ(roster.newest().places.at(roster.newest().members.replicas[1].front()), WorkerId{5});
  EXPECT_FALSE(roster.join({{4}, ProcessKind::Decider, {}, {}}).ok());
}

TEST(Roster, TextsThatAreNoMembersAreRefused) {
  const std::string text = "epoch 1 decider 4@2 range 0 0 3 0@0 2@1 replica 5@3 replica";
  ASSERT_TRUE(placed_members_from_text(text).ok());
  const auto message = [](const std::string& of) {
    const auto read = placed_members_from_text(of);
    return read.ok() ? std::string("read") : read.error().message;
  };
  EXPECT_EQ(message(""), "members as text: expected epoch, found the end of the line");
  EXPECT_EQ(message("epoch x"), "members as text: expected a number, found 'x'");
  EXPECT_EQ(message("epoch 1 decider 4"), "members as text: expected PEER@PROCESS, found '4'");
  EXPECT_EQ(message("epoch 1 decider 4@-2"),
            "members as text: expected PEER@PROCESS, found '4@-2'");
  EXPECT_EQ(message("epoch 1 decider 4@2 replicas"),
            "members as text: expected replica, found 'replicas'");
  EXPECT_NE(message("epoch 0 decider 4@2 range 0 0 3 0@0").find("expected an epoch from 1"),
            std::string::npos);
  // Cut anywhere it is another line of members, or refused.
  for (size_t length = 0; length < text.size(); ++length) {
    const auto read = placed_members_from_text(std::string_view(text).substr(0, length));
    if (read.ok()) {
      EXPECT_TRUE(check(read.value().members).ok());
    }
  }
}

TEST(Roster, WhatDoesNotFitIsRefused) {
  const auto message = [](const Status& status) {
    return status.ok() ? std::string("ok") : status.error().message;
  };
  EXPECT_FALSE(Roster::make(two_ranges(0)).ok());
  EXPECT_FALSE(Roster::make({{{{0}, 0, 3}, {{0}, 4, 5}}, 1}).ok());
  EXPECT_FALSE(Roster::make({{}, 1}).ok());
  Roster roster = begun();
  EXPECT_EQ(message(roster.join({{3}, ProcessKind::Server, {}, {}})),
            "process 3 joins a run: expected a number that no process has had before");
  EXPECT_EQ(message(roster.join({{}, ProcessKind::Server, {}, {}})),
            "process none joins a run: expected a number that no process has had before");
  EXPECT_EQ(message(roster.join({{4}, ProcessKind::Part, {2}, {0}})),
            "process 4 is stage 0 of replica 2 in a run of 2 replicas of 1 stages");
  EXPECT_EQ(message(roster.join({{4}, ProcessKind::Part, {0}, {0}})),
            "process 4 is stage 0 of replica 0, and so is process 3: expected a part whose process "
            "is lost");
  ASSERT_TRUE(roster.next().ok());
  roster.lose({9});
  EXPECT_FALSE(roster.next().value().has_value());
  roster.lose({0});
  roster.lose({1});
  const auto lost = roster.next();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().message,
            "all processes that had range 0 of the parameters are lost: resume from a checkpoint");
}

}  // namespace
}  // namespace tenuto::servers
