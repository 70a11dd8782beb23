// Trees that sum gradients on their way to a shard: by hand, small ones against all there are, and
// what must hold for every tree.
#include "sync/aggregation_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kMega = 1'000'000;

// A port of so many MB/s in each direction, and so many thousandths of a core; 0 = not limited.
PlacementHost host_of(const std::string& name, int64_t port, int64_t cores = 0) {
  return {name, {cores, port * kMega, port * kMega}, {}};
}

// Gradients of 10 MB, and 1 s from update to update.
TreeInput input_of(const std::vector<int64_t>& ports, int64_t port_of_shard) {
  TreeInput input;
  for (size_t i = 0; i < ports.size(); ++i) {
    input.replicas.push_back(host_of(cat("h", i), ports[i]));
  }
  input.shard = host_of("shard", port_of_shard);
  input.gradient = {10 * kMega};
  input.interval = milliseconds(1000);
  return input;
}

Duration flat_time(const TreeInput& input) {
  return price_tree(input, std::vector<int32_t>(input.replicas.size(), kToShard));
}

TEST(AggregationTree, PricesByHand) {
  // Each message takes 100 ms of each port on its way.
  TreeInput input = input_of({100, 100, 100, 100}, 100);
  EXPECT_EQ(flat_time(input), milliseconds(400));
  EXPECT_EQ(price_tree(input, {kToShard, kToShard, 0, 1}), milliseconds(300));
  EXPECT_EQ(price_tree(input, {kToShard, 0, 0, 0}), milliseconds(400));
  // A slow link: its gradient comes while the others are taken.
  input.replicas[3] = host_of("h3", 20);
  EXPECT_EQ(flat_time(input), milliseconds(500));
  EXPECT_EQ(price_tree(input, {kToShard, kToShard, 0, 0}), milliseconds(600));
  // Each message is a millisecond later, and each gradient is added in 10 ms by one core.
  input = input_of({100, 100}, 100);
  input.latency = milliseconds(1);
  input.shard.capacity[0] = 1000;
  EXPECT_EQ(flat_time(input), milliseconds(1 + 200 + 10));
  input.shard.capacity[0] = 500;
  input.add_per_core = 100 * kMega;
  EXPECT_EQ(flat_time(input), milliseconds(1 + 100 + 400));
}

TEST(AggregationTree, ATreeIsTakenWhenItIsFaster) {
  const TreeInput narrow = input_of({100, 100, 100, 100}, 100);
  const auto tree = make_tree(narrow);
  ASSERT_TRUE(tree.ok()) << tree.error().message;
  EXPECT_FALSE(tree.value().is_flat());
  EXPECT_EQ(tree.value().time, milliseconds(300));
  // The shard's port takes all of them at once.
  const auto star = make_tree(input_of({100, 100, 100, 100}, 1000));
  ASSERT_TRUE(star.ok()) << star.error().message;
  EXPECT_TRUE(star.value().is_flat());
}

TEST(AggregationTree, WhoIsOverloadedHasNoChildren) {
  TreeInput input = input_of({100, 100, 100, 100}, 100);
  for (const size_t busy : {0, 2}) input.replicas[busy].used[2] = 95 * kMega;
  input.replicas[1].capacity[0] = 1000;
  input.replicas[1].used[0] = 1000;
  EXPECT_EQ(most_gradients(input.replicas[0], input), 0);
  EXPECT_EQ(most_gradients(input.replicas[1], input), 0);
  EXPECT_EQ(most_gradients(input.replicas[3], input), 8);
  const auto tree = make_tree(input);
  ASSERT_TRUE(tree.ok()) << tree.error().message;
  for (const int32_t parent : tree.value().parents) EXPECT_TRUE(parent == kToShard || parent == 3);
}

TEST(AggregationTree, WhatDoesNotFitIsRefused) {
  const auto message = [](const TreeInput& input) {
    const auto tree = make_tree(input);
    return tree.ok() ? std::string("made") : tree.error().message;
  };
  TreeInput input = input_of({100, 10, 100}, 100);
  EXPECT_EQ(message(input),
            "host h1 would be overloaded by the gradient of its replica: it needs 12.5 MB/s of "
            "sending, and 10 MB/s of sending are left, 2.5 MB/s of sending too few: free its port, "
            "or let replicas compute longer for each update");
  // The shard takes one gradient, and the host of a replica one more.
  input = input_of({15, 15, 15}, 15);
  EXPECT_EQ(message(input),
            "no tree of two levels takes the gradients of 3 replicas in an update: the shard's "
            "host shard takes 1, and the hosts of as many replicas take 1 more: free their ports "
            "and processors, let replicas compute longer for each update, or use more shards");
  input.replicas.pop_back();
  EXPECT_EQ(message(input), "made");
  EXPECT_EQ(message(TreeInput()), "an aggregation tree: expected 1 to 1024 replicas, found 0");
  input.gradient = {};
  EXPECT_NE(message(input).find("expected a gradient, a rate of adding and an interval above 0"),
            std::string::npos);
}

// Ports are from 15 MB/s on; a port of 12.5 MB/s would just send one gradient in an update.
TreeInput drawn(Random& random, int64_t most_replicas, int64_t ports_up_to, int64_t shard_up_to) {
  std::vector<int64_t> ports;
  const int64_t replicas = 1 + random.below(most_replicas);
  for (int64_t i = 0; i < replicas; ++i) ports.push_back(15 + random.below(ports_up_to));
  TreeInput input = input_of(ports, 15 + random.below(shard_up_to));
  for (PlacementHost& host : input.replicas) {
    if (random.below(3) == 0) host.capacity[0] = 1 + random.below(100);
    if (random.below(3) == 0) host.used[2] = random.below(host.capacity[2]);
  }
  input.latency = milliseconds(random.below(20));
  return input;
}

// Two levels at most, and no host takes more than it can.
bool is_allowed(const TreeInput& input, const std::vector<int32_t>& parents) {
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] == static_cast<int32_t>(i)) return false;
    if (parents[i] == kToShard) continue;
    if (parents[static_cast<size_t>(parents[i])] != kToShard) return false;
  }
  const auto children = [&](int32_t of) { return std::count(parents.begin(), parents.end(), of); };
  if (children(kToShard) > most_gradients(input.shard, input)) return false;
  for (size_t i = 0; i < parents.size(); ++i) {
    const auto most = most_gradients(input.replicas[i], input);
    if (children(static_cast<int32_t>(i)) > most) return false;
  }
  return true;
}

// The least of all trees; Duration::max() = there is none.
Duration by_brute_force(const TreeInput& input) {
  const auto count = static_cast<int32_t>(input.replicas.size());
  std::vector<int32_t> parents(input.replicas.size(), kToShard);
  Duration least = Duration::max();
  while (true) {
    if (is_allowed(input, parents)) least = std::min(least, price_tree(input, parents));
    size_t i = 0;
    while (i < parents.size() && ++parents[i] == count) parents[i++] = kToShard;
    if (i == parents.size()) return least;
  }
}

TEST(AggregationTree, SmallTreesAgainstAllOfThem) {
  Random random(11);
  int made = 0, refused = 0, shorter = 0;
  for (int round = 0; round < 500; ++round) {
    SCOPED_TRACE(cat("round ", round));
    const bool is_wide = round % 2 == 1;
    const TreeInput input = drawn(random, 5, is_wide ? 90 : 25, is_wide ? 60 : 40);
    const Duration least = by_brute_force(input);
    const auto tree = make_tree(input);
    // It is refused exactly when there is none.
    ASSERT_EQ(tree.ok(), least < Duration::max()) << (tree.ok() ? "" : tree.error().message);
    (tree.ok() ? made : refused) += 1;
    if (!tree.ok()) continue;
    EXPECT_TRUE(is_allowed(input, tree.value().parents));
    EXPECT_EQ(tree.value().time, price_tree(input, tree.value().parents));
    EXPECT_GE(tree.value().time, least);
    const std::vector<int32_t> flat(input.replicas.size(), kToShard);
    if (!is_allowed(input, flat)) continue;
    EXPECT_LE(tree.value().time, price_tree(input, flat));
    shorter += tree.value().time < price_tree(input, flat) ? 1 : 0;
  }
  EXPECT_GT(made, 50);
  EXPECT_GT(refused, 3);
  EXPECT_GT(shorter, 3);
}

TEST(AggregationTree, NoSingleMoveMakesItFaster) {
  Random random(12);
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(cat("round ", round));
    const TreeInput input = drawn(random, 12, 90, 100);
    const auto tree = make_tree(input);
    if (!tree.ok()) continue;
    const std::vector<int32_t>& parents = tree.value().parents;
    EXPECT_TRUE(is_allowed(input, parents));
    for (size_t i = 0; i < parents.size(); ++i) {
      for (int32_t to = kToShard; to < static_cast<int32_t>(parents.size()); ++to) {
        std::vector<int32_t> moved = parents;
        moved[i] = to;
        if (!is_allowed(input, moved)) continue;
        EXPECT_GE(price_tree(input, moved) + Duration(10), tree.value().time);
      }
    }
  }
}

TEST(AggregationTree, TheOrderOfTheReplicasMakesNoDifference) {
  Random random(13);
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(cat("round ", round));
    TreeInput input = drawn(random, 10, 90, 60);
    const auto before = make_tree(input);
    EXPECT_EQ(make_tree(input).ok(), before.ok());
    std::rotate(input.replicas.begin(), input.replicas.begin() + std::ssize(input.replicas) / 2,
                input.replicas.end());
    const auto after = make_tree(input);
    ASSERT_EQ(after.ok(), before.ok());
    if (before.ok()) {
      EXPECT_EQ(after.value().time, before.value().time);
    } else {
      EXPECT_EQ(after.error().message, before.error().message);
    }
  }
}

// Ports that are as wide as the shard's: two levels take the time of about two square roots.
TEST(AggregationTree, ManyReplicas) {
  TreeInput input = input_of(std::vector<int64_t>(400, 1000), 1000);
  const auto tree = make_tree(input);
  ASSERT_TRUE(tree.ok()) << tree.error().message;
  EXPECT_TRUE(is_allowed(input, tree.value().parents));
  EXPECT_FALSE(most_gradients(input.shard, input) >= 400) << "a flat one is not possible";
  EXPECT_LE(tree.value().time, milliseconds(10 * (20 + 20 + 2)));
}

}  // namespace
}  // namespace tenuto
