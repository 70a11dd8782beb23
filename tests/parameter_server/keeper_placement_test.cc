// On which hosts servers keep ranges: by hand, and in the host's members over deaths and joins.
#include "parameter_server/keeper_placement.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "parameter_server/roster.h"

namespace tenuto::servers {
namespace {

using Hosts = std::vector<std::vector<std::string>>;

std::vector<RangeHosts> ranges_of(int64_t count) {
  std::vector<RangeHosts> ranges;
  for (int64_t i = 0; i < count; ++i) ranges.push_back({{{0}, 100 * i, 100 * (i + 1)}, {}});
  return ranges;
}

TEST(KeeperPlacement, ByWhatPortsCarry) {
  // Each host has one shard and one standby.
  const KeeperPlacement even = place_keepers(ranges_of(2), {"a", "b"}, {}, 4);
  EXPECT_EQ(even.hosts, (Hosts{{"a", "b"}, {"b", "a"}}));
  EXPECT_EQ(even.reason,
            "no host has both copies of a range, and host a carries the most: 50 % of what all "
            "hosts send or receive");
  // All replicas live on host a, which has the most to send, so the others answer the reads.
  const std::vector<PartHost> replicas(8, PartHost{"a", {0}});
  const KeeperPlacement busy = place_keepers(ranges_of(3), {"a", "b", "c"}, replicas, 8);
  ASSERT_EQ(busy.hosts.size(), 3u);
  for (const std::vector<std::string>& of : busy.hosts) {
    ASSERT_EQ(of.size(), 2u);
    EXPECT_NE(of[0], of[1]);
    EXPECT_NE(of[0], "a");
  }
}

// What a narrow port carries in ten seconds others carry in one.
TEST(KeeperPlacement, NarrowPortsCarryLess) {
  const std::map<std::string, int64_t> ports = {{"a", 100}, {"b", 1000}, {"c", 1000}};
  const KeeperPlacement placed = place_keepers(ranges_of(3), {"a", "b", "c"}, {}, 2, ports);
  for (const std::vector<std::string>& of : placed.hosts) {
    EXPECT_NE(of[0], "a");
    EXPECT_NE(of[1], "a");
    EXPECT_NE(of[0], of[1]);
  }
}

TEST(KeeperPlacement, WhoIsThereStays) {
  std::vector<RangeHosts> ranges = ranges_of(2);
  ranges[0].hosts = {"b"};
  ranges[1].hosts = {"b", "a"};
  EXPECT_EQ(place_keepers(ranges, {"a", "b"}, {}, 1).hosts, (Hosts{{"b", "a"}, {"b", "a"}}));
}

TEST(KeeperPlacement, OneHostAndOneServer) {
  const KeeperPlacement together = place_keepers(ranges_of(2), {"a", "a"}, {}, 1);
  EXPECT_EQ(together.hosts, (Hosts{{"a", "a"}, {"a", "a"}}));
  EXPECT_EQ(together.reason,
            "both copies of 2 of 2 ranges are on one host, because no other one had a server, and "
            "host a carries the most: 100 % of what all hosts send or receive");
  const KeeperPlacement one = place_keepers(ranges_of(1), {"a"}, {}, 1);
  EXPECT_EQ(one.hosts, (Hosts{{"a"}}));
  EXPECT_EQ(one.reason, "there is one server, so no range has a standby");
}

TEST(KeeperPlacement, AsText) {
  Membership members;
  const auto where = [](PeerId peer) { return cat("worker ", peer); };
  members.ranges = {{{{0}, 0, 4}, {{7}, {8}}}, {{{0}, 4, 8}, {{9}}}};
  EXPECT_EQ(keepers_text(members, where), "range 0: worker 7, standby worker 8; range 1: worker 9");
  members.ranges.assign(11, {{{0}, 0, 4}, {{7}}});
  const std::string text = keepers_text(members, where);
  EXPECT_NE(text.find("; range 7: worker 7; and 3 more ranges"), std::string::npos) << text;
}

// What the roster makes of it: four servers on two hosts, and processes that come and go.
class HostedRoster {
 public:
  explicit HostedRoster(const RosterStart& start) : roster(Roster::make(start).value()) {}

  void join(int32_t process, ProcessKind kind, const std::string& host, int32_t replica = -1) {
    const StageId stage{kind == ProcessKind::Part ? 0 : -1};
    EXPECT_TRUE(roster.join({{process}, kind, {replica}, stage, host}).ok());
    hosts_[{process}] = host;
  }

  // The hosts of each range's keepers in the newest members.
  Hosts keepers() const {
    Hosts all;
    for (const KeptRange& kept : roster.newest().members.ranges) {
      all.emplace_back();
      for (const PeerId keeper : kept.keepers) {
        all.back().push_back(hosts_.at(roster.newest().places.at(keeper)));
      }
    }
    return all;
  }

  // Ranges with both keepers on one host.
  int64_t together() const {
    int64_t count = 0;
    for (const std::vector<std::string>& of : keepers()) {
      count += of.size() == 2 && of[0] == of[1] ? 1 : 0;
    }
    return count;
  }

  Roster roster;

 private:
  std::map<WorkerId, std::string> hosts_;
};

RosterStart four_ranges(bool by_parts) {
  RosterStart start;
  for (int64_t i = 0; i < 4; ++i) start.ranges.push_back({{0}, 16 * i, 16 * (i + 1)});
  start.replicas = 4;
  start.kept_by_parts = by_parts;
  return start;
}

TEST(KeeperPlacement, NoRangeIsLostWithAHost) {
  HostedRoster run(four_ranges(false));
  // By number alone range 0 would be with the processes 0 and 1, which share a host.
  for (int32_t i = 0; i < 4; ++i) run.join(i, ProcessKind::Server, i < 2 ? "a" : "b");
  for (int32_t i = 0; i < 4; ++i) run.join(4 + i, ProcessKind::Part, "c", i);
  ASSERT_TRUE(run.roster.next().ok());
  EXPECT_EQ(run.together(), 0);
  EXPECT_EQ(run.roster.placement().substr(0, 35), "no host has both copies of a range,");
  // Each process is the first keeper of one range, and the standby of another one.
  std::map<WorkerId, int> kept;
  for (const KeptRange& one : run.roster.newest().members.ranges) {
    for (const PeerId keeper : one.keepers) ++kept[run.roster.newest().places.at(keeper)];
  }
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(kept[{i}], 2);
  // The host is lost, and with it no range.
  run.roster.lose({2});
  run.roster.lose({3});
  ASSERT_TRUE(run.roster.next().ok());
  EXPECT_EQ(run.together(), 4) << "there is no other host";
  // Whoever is there stays. A range that misses a keeper gets it on the other host.
  run.join(8, ProcessKind::Server, "b");
  run.roster.lose({1});
  ASSERT_TRUE(run.roster.next().ok());
  for (const std::vector<std::string>& of : run.keepers()) EXPECT_EQ(of.size(), 2u);
  EXPECT_EQ(run.together(), 0);
}

TEST(KeeperPlacement, AloneThereIsNoStandby) {
  HostedRoster run(four_ranges(false));
  run.join(0, ProcessKind::Server, "a");
  run.join(1, ProcessKind::Server, "b");
  ASSERT_TRUE(run.roster.next().ok());
  run.roster.lose({0});
  ASSERT_TRUE(run.roster.next().ok());
  EXPECT_EQ(run.roster.placement(), "there is one server, so no range has a standby");
}

// Two replicas on each of two hosts: both copies of a range are on different ones.
TEST(KeeperPlacement, PartsKeepRangesOnTwoHosts) {
  HostedRoster run(four_ranges(true));
  for (int32_t i = 0; i < 4; ++i) run.join(i, ProcessKind::Part, i < 2 ? "a" : "b", i);
  ASSERT_TRUE(run.roster.next().ok());
  EXPECT_EQ(run.together(), 0);
  EXPECT_TRUE(run.roster.placement().empty());
  run.roster.note_filled(1);
  run.roster.lose({1});
  ASSERT_TRUE(run.roster.next().ok());
  for (const std::vector<std::string>& of : run.keepers()) EXPECT_EQ(of.size(), 2u);
  EXPECT_EQ(run.together(), 0);
}

TEST(KeeperPlacement, RandomDeathsOfServers) {
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(cat("round ", round));
    HostedRoster run(four_ranges(false));
    const auto host = [&] { return cat("h", random.below(3)); };
    int32_t next = 0;
    std::set<int32_t> living;
    for (; next < 5; ++next) {
      run.join(next, ProcessKind::Server, host());
      living.insert(next);
    }
    ASSERT_TRUE(run.roster.next().ok());
    for (int change = 0; change < 30; ++change) {
      // Of the servers that live, one dies; another one comes, here or there.
      auto lost = living.begin();
      std::advance(lost, random.below(std::ssize(living)));
      run.roster.lose({*lost});
      living.erase(lost);
      run.join(next, ProcessKind::Server, host());
      living.insert(next++);
      const auto made = run.roster.next();
      ASSERT_TRUE(made.ok()) << made.error().message;
      for (const std::vector<std::string>& of : run.keepers()) ASSERT_EQ(of.size(), 2u);
    }
  }
}

}  // namespace
}  // namespace tenuto::servers
