// Where shards, standbys and replicas go: small cases against brute force, random ones with what
// must hold for every placement, and cases by hand.
#include "sync/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

struct Case {
  std::vector<PlacementHost> hosts;
  std::vector<PlacementItem> items;
};

// `known`: whether capacities are known.
Case drawn(Random& random, int64_t most_hosts, int64_t most_pairs, int64_t most_single,
           bool known = true) {
  Case one;
  const int64_t hosts = 1 + random.below(most_hosts);
  for (int64_t i = 0; i < hosts; ++i) {
    PlacementHost host{cat("h", i), {}, {}};
    for (size_t r = 0; r < kHostResources; ++r) {
      if (known) host.capacity[r] = 500 + random.below(1000);
      host.used[r] = random.below(200);
    }
    one.hosts.push_back(std::move(host));
  }
  const auto add = [&](const std::string& name) {
    PlacementItem item;
    item.name = name;
    for (int64_t& amount : item.demand) amount = random.below(400);
    if (random.below(4) == 0) {
      item.hosts.push_back(static_cast<size_t>(random.below(hosts)));
      if (random.below(2) == 0) item.hosts.push_back(static_cast<size_t>(random.below(hosts)));
    }
    one.items.push_back(std::move(item));
  };
  const int64_t pairs = random.below(most_pairs + 1);
  for (int64_t i = 0; i < pairs; ++i) {
    add(cat("the shard of range ", i));
    add(cat("the standby of range ", i));
    one.items.back().twin = one.items.size() - 2;
  }
  const int64_t single = 1 + random.below(most_single);
  for (int64_t i = 0; i < single; ++i) add(cat("replica ", i));
  return one;
}

std::vector<size_t> choices_of(const Case& one, size_t item) {
  std::vector<size_t> found;
  for (size_t host = 0; host < one.hosts.size(); ++host) {
    const std::vector<size_t>& named = one.items[item].hosts;
    const bool is_named = std::find(named.begin(), named.end(), host) != named.end();
    if (named.empty() || is_named) found.push_back(host);
  }
  return found;
}

// Each item is where it can be, and twins are apart if they can be.
bool is_allowed(const Case& one, const std::vector<size_t>& at) {
  for (size_t i = 0; i < at.size(); ++i) {
    const std::vector<size_t> mine = choices_of(one, i);
    if (std::find(mine.begin(), mine.end(), at[i]) == mine.end()) return false;
    if (!one.items[i].twin || at[i] != at[*one.items[i].twin]) continue;
    if (mine.size() > 1 || choices_of(one, *one.items[i].twin).size() > 1) return false;
  }
  return true;
}

std::vector<HostAmounts> loads_of(const Case& one, const std::vector<size_t>& at) {
  std::vector<HostAmounts> loads;
  for (const PlacementHost& host : one.hosts) loads.push_back(host.used);
  for (size_t i = 0; i < at.size(); ++i) {
    for (size_t r = 0; r < kHostResources; ++r) loads[at[i]][r] += one.items[i].demand[r];
  }
  return loads;
}

// The largest load, where all capacities are known.
double most_of(const Case& one, const std::vector<size_t>& at) {
  const std::vector<HostAmounts> loads = loads_of(one, at);
  double most = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    for (size_t r = 0; r < kHostResources; ++r) {
      most = std::max(
          most, static_cast<double>(loads[i][r]) / static_cast<double>(one.hosts[i].capacity[r]));
    }
  }
  return most;
}

// The least of all placements.
double by_brute_force(const Case& one) {
  double least = std::numeric_limits<double>::infinity();
  std::vector<size_t> at(one.items.size(), 0);
  while (true) {
    if (is_allowed(one, at)) least = std::min(least, most_of(one, at));
    size_t i = 0;
    while (i < at.size() && ++at[i] == one.hosts.size()) at[i++] = 0;
    if (i == at.size()) return least;
  }
}

TEST(Placement, SmallCasesAreOptimal) {
  Random random(1);
  int refused = 0, placed = 0;
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(cat("round ", round));
    const Case one = drawn(random, 3, 2, 2);
    const double least = by_brute_force(one);
    const auto free = place(one.hosts, one.items, false);
    ASSERT_TRUE(free.ok()) << free.error().message;
    EXPECT_TRUE(is_allowed(one, free.value().hosts));
    EXPECT_EQ(free.value().most, least);
    // It is refused exactly when there is no placement without an overloaded host.
    const auto limited = place(one.hosts, one.items);
    EXPECT_EQ(limited.ok(), least <= 1);
    (limited.ok() ? placed : refused) += 1;
    if (limited.ok()) continue;
    EXPECT_EQ(limited.error().code, Code::Infeasible);
    EXPECT_NE(limited.error().message.find("would be overloaded"), std::string::npos);
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(placed, 20);
}

TEST(Placement, LargerCases) {
  Random random(2);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(cat("round ", round));
    const Case one = drawn(random, 9, 8, 6);
    const auto made = place(one.hosts, one.items, false);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const Placement& placement = made.value();
    EXPECT_TRUE(is_allowed(one, placement.hosts));
    EXPECT_EQ(placement.loads, loads_of(one, placement.hosts));
    EXPECT_EQ(placement.most, most_of(one, placement.hosts));
    // Never overloaded, unless it says so.
    EXPECT_EQ(place(one.hosts, one.items).ok(), placement.most <= 1);
    EXPECT_EQ(place(one.hosts, one.items, false).value().hosts, placement.hosts) << "again";
    // No item that goes elsewhere, and no two that change places, make the largest load lower.
    for (size_t i = 0; i < one.items.size(); ++i) {
      for (size_t host = 0; host < one.hosts.size(); ++host) {
        std::vector<size_t> moved = placement.hosts;
        moved[i] = host;
        if (!is_allowed(one, moved)) continue;
        EXPECT_GE(most_of(one, moved), placement.most);
      }
      for (size_t j = 0; j < i; ++j) {
        std::vector<size_t> swapped = placement.hosts;
        std::swap(swapped[i], swapped[j]);
        if (!is_allowed(one, swapped)) continue;
        EXPECT_GE(most_of(one, swapped), placement.most);
      }
    }
  }
}

TEST(Placement, TheOrderOfTheHostsMakesNoDifference) {
  Random random(3);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(cat("round ", round));
    const Case one = drawn(random, 6, 4, 4, round % 2 == 0);
    const auto before = place(one.hosts, one.items, false);
    ASSERT_TRUE(before.ok()) << before.error().message;
    // Host i is in place `to[i]` of the other order.
    std::vector<size_t> to(one.hosts.size());
    for (size_t i = 0; i < to.size(); ++i) to[i] = (i + 1 + to.size() / 2) % to.size();
    Case other = one;
    for (size_t i = 0; i < to.size(); ++i) other.hosts[to[i]] = one.hosts[i];
    for (PlacementItem& item : other.items) {
      for (size_t& host : item.hosts) host = to[host];
    }
    const auto after = place(other.hosts, other.items, false);
    ASSERT_TRUE(after.ok()) << after.error().message;
    EXPECT_EQ(after.value().most, before.value().most);
    for (size_t i = 0; i < one.items.size(); ++i) {
      EXPECT_EQ(after.value().hosts[i], to[before.value().hosts[i]]);
    }
  }
}

// Two servers with a range each: a host has the shard of one and the standby of the other.
TEST(Placement, AShardAndAStandbyOnEachHost) {
  const UpdateRates rates = rates_of({}, 4, std::chrono::milliseconds(100));
  EXPECT_DOUBLE_EQ(rates.gradients, 40);
  EXPECT_DOUBLE_EQ(rates.updates, 10);
  std::vector<PlacementItem> items;
  for (size_t range = 0; range < 2; ++range) {
    for (const bool is_first : {true, false}) {
      const HostAmounts demand =
          demand_of_keeper({1000}, rates, std::chrono::milliseconds(20), is_first);
      EXPECT_EQ(demand, (HostAmounts{200, is_first ? 40000 : 0, 40000}));
      items.push_back(
          {cat(is_first ? "the shard" : "the standby", " of range ", range), demand, {}, {}});
      if (!is_first) items.back().twin = items.size() - 2;
    }
  }
  const std::vector<PlacementHost> hosts = {{"a", {1000, 100000, 100000}, {}},
                                            {"b", {1000, 100000, 100000}, {}}};
  const auto made = place(hosts, items);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const std::vector<size_t>& at = made.value().hosts;
  EXPECT_NE(at[0], at[2]) << "both shards on one host";
  EXPECT_NE(at[0], at[1]);
  EXPECT_NE(at[2], at[3]);
  EXPECT_DOUBLE_EQ(made.value().most, 0.8);
}

TEST(Placement, AnOverloadedHostIsNamed) {
  const std::vector<PlacementItem> items = {{"the shard of range 0", {1500, 0, 0}, {}, {}},
                                            {"the standby of range 0", {1000, 0, 0}, {}, {0}}};
  const auto message = [&](const std::vector<PlacementHost>& hosts) {
    const auto made = place(hosts, items);
    return made.ok() ? std::string("placed") : made.error().message;
  };
  const PlacementHost large{"large", {4000, 0, 0}, {2000, 0, 0}};
  EXPECT_EQ(message({large, {"small", {1000, 0, 0}, {}}}), "placed");
  EXPECT_EQ(message({large, {"small", {1000, 0, 0}, {500, 0, 0}}}),
            "host small would be overloaded: it has 1 core, other jobs use 0.5 cores, and this job "
            "needs 1 core, 0.5 cores too much: it fits if the standby of range 0, which takes 1 "
            "core, goes to a host that is not named yet");
  EXPECT_EQ(message({large}),
            "host large would be overloaded: it has 4 cores, other jobs use 2 cores, and this job "
            "needs 2.5 cores, 0.5 cores too much: it fits if the standby of range 0, which takes 1 "
            "core, goes to a host that is not named yet");
  EXPECT_EQ(message({{"full", {1000, 0, 0}, {1200, 0, 0}}}),
            "host full would be overloaded: it has 1 core, other jobs use 1.2 cores, and this job "
            "needs 2.5 cores, 2.7 cores too much: give it as much more, name another host, or let "
            "other jobs use less of it");
  // Nobody knows what it has.
  EXPECT_EQ(message({{"full", {}, {1200, 0, 0}}}), "placed");
}

TEST(Placement, WhatDoesNotFitTogetherIsRefused) {
  const auto message = [](const Result<Placement>& made) {
    return made.ok() ? std::string("placed") : made.error().message;
  };
  const std::vector<PlacementHost> hosts = {{"a", {}, {}}, {"b", {}, {}}};
  EXPECT_EQ(message(place({}, {})), "a placement needs at least one host, found none");
  EXPECT_EQ(message(place({{"a", {}, {}}, {"a", {}, {}}}, {})),
            "a placement has two hosts of the name a: expected one, with all that it has");
  EXPECT_NE(message(place({{"a", {-1, 0, 0}, {}}}, {})).find("host a: expected amounts from 0"),
            std::string::npos);
  EXPECT_EQ(message(place(hosts, {{"x", {}, {2}, {}}})),
            "x can be on host number 2, and there are 2");
  EXPECT_NE(message(place(hosts, {{"x", {0, -1, 0}, {}, {}}})).find("x: expected demands from 0"),
            std::string::npos);
  EXPECT_EQ(message(place(hosts, {{"x", {}, {}, {0}}})),
            "x: expected another item as its twin, found number 0 of 1");
  EXPECT_EQ(message(place(hosts, {{"x", {}, {}, {}}, {"y", {}, {}, {0}}, {"z", {}, {}, {0}}})),
            "x: expected one twin, found several");
  EXPECT_EQ(message(place(hosts, {})), "placed");
}

TEST(Placement, RatesOfModes) {
  const auto updates = [](const char* mode) {
    return rates_of(sync_mode_from_text(mode).value(), 4, std::chrono::milliseconds(500)).updates;
  };
  EXPECT_DOUBLE_EQ(updates("synchronous"), 2);
  EXPECT_DOUBLE_EQ(updates("asynchronous"), 8);
  EXPECT_DOUBLE_EQ(updates("x:2"), 4);
  EXPECT_DOUBLE_EQ(updates("groups:0,1/2,3"), 4);
  EXPECT_DOUBLE_EQ(updates("synchronous+local:4"), 0.5);
  EXPECT_EQ(demand_of_replica({1000}, 2, 750), (HostAmounts{750, 4000, 2000}));
}

}  // namespace
}  // namespace tenuto
