// Places are found from rates, whatever the workers' numbers and with noise.
#include "monitor/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace tenuto {
namespace {

// The kinds of links of a cluster of racks of nodes, in bytes per second.
struct Shape {
  int32_t racks = 1, nodes = 2, workers = 4;  // nodes of a rack, workers of a node
  double inside = 25e9, rack = 6e9, between = 1e9;
  double noise = 0;  // a rate is drawn between 1 - noise and 1 + noise times its own
};

struct Drawn {
  LinkTable table;
  std::vector<int32_t> node;  // of each worker
};

// The links as they would be measured, and the node of each worker; shuffled.
Drawn draw(const Shape& shape, uint64_t seed) {
  Random random(seed);
  const int32_t count = shape.racks * shape.nodes * shape.workers;
  std::vector<int32_t> seat(static_cast<size_t>(count));
  std::iota(seat.begin(), seat.end(), 0);
  for (size_t i = seat.size(); i > 1; --i) {
    std::swap(seat[i - 1], seat[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  Drawn drawn{LinkTable(count), {}};
  for (int32_t from = 0; from < count; ++from) {
    const int32_t node = seat[static_cast<size_t>(from)] / shape.workers;
    drawn.node.push_back(node);
    for (int32_t to = 0; to < count; ++to) {
      const int32_t other = seat[static_cast<size_t>(to)] / shape.workers;
      const bool same_rack = node / shape.nodes == other / shape.nodes;
      const double rate = node == other ? shape.inside : same_rack ? shape.rack : shape.between;
      const double factor = 1 + shape.noise * (2 * random.uniform() - 1);
      drawn.table.at({from}, {to}).link = {std::chrono::microseconds(20), rate * factor};
    }
  }
  return drawn;
}

// The same groups, numbered by their first worker.
std::vector<int32_t> numbered(const std::vector<int32_t>& groups) {
  std::vector<int32_t> seen, all;
  for (const int32_t group : groups) {
    const auto found = std::find(seen.begin(), seen.end(), group);
    all.push_back(static_cast<int32_t>(found - seen.begin()));
    if (found == seen.end()) seen.push_back(group);
  }
  return all;
}

TEST(Topology, FindsShuffledNodesExactly) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Shape shape;
    shape.nodes = 2 + static_cast<int32_t>(seed % 4);
    shape.workers = 1 + static_cast<int32_t>(seed % 5);
    shape.noise = 0.05;
    const Drawn drawn = draw(shape, seed);
    const std::vector<int32_t> wanted =
        shape.workers == 1 ? std::vector<int32_t>(drawn.node.size(), 0) : numbered(drawn.node);
    EXPECT_EQ(find_places(drawn.table), wanted) << "seed " << seed;
  }
}

TEST(Topology, FindsNodesWithinRacks) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Drawn drawn = draw({3, 2, 3, 100e9, 10e9, 2e9, 0.05}, seed);
    EXPECT_EQ(find_places(drawn.table), numbered(drawn.node)) << "seed " << seed;
  }
  // The gap between racks is the smaller one.
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const Drawn drawn = draw({3, 2, 3, 100e9, 4e9, 2e9, 0.05}, seed);
    EXPECT_EQ(find_places(drawn.table), numbered(drawn.node)) << "seed " << seed;
  }
}

TEST(Topology, NodesMayHaveLinksOfTheirOwn) {
  LinkTable table(6);  // 0, 1, 2 at 25 GB/s, 3, 4, 5 at 12 GB/s, 3 GB/s between
  for (int32_t from = 0; from < 6; ++from) {
    for (int32_t to = 0; to < 6; ++to) {
      const bool same = from / 3 == to / 3;
      table.at({from}, {to}).link.bytes_per_second = !same ? 3e9 : from < 3 ? 25e9 : 12e9;
    }
  }
  EXPECT_EQ(find_places(table), (std::vector<int32_t>{0, 0, 0, 1, 1, 1}));
}

TEST(Topology, EqualLinksAreOnePlace) {
  for (const int32_t count : {1, 2, 3, 8}) {
    const Drawn drawn = draw({1, 1, count, 1e9, 1e9, 1e9, 0.1}, 3);
    EXPECT_EQ(find_places(drawn.table), std::vector<int32_t>(static_cast<size_t>(count), 0));
  }
  // Without any limit, too.
  EXPECT_EQ(find_places(LinkTable(4)), std::vector<int32_t>(4, 0));
}

TEST(Topology, TheClusterHasTheRatesOfTheLinks) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const Shape shape{2, 2, 3, 50e9, 10e9, 2e9, 0.04};
    const Drawn drawn = draw(shape, seed);
    const Cluster cluster = cluster_of_links(drawn.table);
    EXPECT_TRUE(cluster.exceptions.empty());
    const auto count = static_cast<int32_t>(drawn.node.size());
    for (int32_t from = 0; from < count; ++from) {
      for (int32_t to = 0; to < count; ++to) {
        if (from == to) continue;
        const int32_t a = drawn.node[static_cast<size_t>(from)];
        const int32_t b = drawn.node[static_cast<size_t>(to)];
        const double wanted = a == b ? 50e9 : a / 2 == b / 2 ? 10e9 : 2e9;
        const Link found = cluster.link({from}, {to});
        EXPECT_NEAR(found.bytes_per_second / wanted, 1, 0.05);
        EXPECT_EQ(found.latency, std::chrono::microseconds(20));
      }
    }
  }
}

TEST(Topology, DirectionsAndOddLinksKeepTheirRates) {
  Drawn drawn = draw({1, 2, 4, 20e9, 4e9, 1e9, 0}, 7);
  for (int32_t w = 1; w < 8; ++w) {  // what worker 0 receives is slower
    drawn.table.at({w}, {0}).link.bytes_per_second /= 2;
  }
  const Cluster cluster = cluster_of_links(drawn.table);
  EXPECT_EQ(cluster.place, numbered(drawn.node));
  for (int32_t from = 0; from < 8; ++from) {
    for (int32_t to = 0; to < 8; ++to) {
      if (from == to) continue;
      EXPECT_EQ(cluster.link({from}, {to}), drawn.table.at({from}, {to}).link);
    }
  }
}

}  // namespace
}  // namespace tenuto
