// The ports of a cluster: which of them a message passes, and from when on they are free.
#include "world/port_sides.h"

#include <gtest/gtest.h>

#include <vector>

namespace tenuto {
namespace {

using Sides = std::vector<int32_t>;

// Four devices: 0 to 2 on a host with a port, 0 with a card of its own, 1 and 2 on a bus, 3 alone.
Cluster four() {
  Cluster cluster = uniform_cluster(4, {Duration(7), 10e9});
  cluster.ports = {{"host", {{0}, {1}, {2}}, 5e9, false, false},
                   {"card", {{0}}, 2e9, false, false},
                   {"bus", {{1}, {2}}, 4e9, true, true}};
  return cluster;
}

// Sides: host 0 out, 1 in; card 2 out, 3 in; bus 4.
TEST(PortSides, AMessagePassesWhatSeparatesItsEnds) {
  const PortSides ports(four());
  EXPECT_EQ(ports.between({0}, {1}), (Sides{2, 4}));  // both are on the host
  EXPECT_EQ(ports.between({1}, {0}), (Sides{3, 4}));
  EXPECT_EQ(ports.between({0}, {3}), (Sides{0, 2}));
  EXPECT_EQ(ports.between({3}, {0}), (Sides{1, 3}));
  EXPECT_EQ(ports.between({1}, {2}), Sides{4});
  EXPECT_EQ(ports.between({3}, {2}), (Sides{1, 4}));
  EXPECT_EQ(ports.rate({0}, {3}), 2e9);
  EXPECT_EQ(ports.rate({3}, {2}), 4e9);
  EXPECT_TRUE(PortSides(uniform_cluster(4, {})).empty());
  EXPECT_EQ(PortSides(uniform_cluster(4, {})).between({0}, {1}), Sides{});
  EXPECT_EQ(PortSides(uniform_cluster(4, {})).rate({0}, {1}), 0);
}

// With full duplex, a message between two devices of a port with all links is sent and received
// through it.
TEST(PortSides, InsideAFullDuplexPort) {
  Cluster cluster = uniform_cluster(3, {});
  cluster.ports = {{"switch", {{0}, {1}}, 1e9, false, true}};
  const PortSides ports(cluster);
  EXPECT_EQ(ports.between({0}, {1}), (Sides{0, 1}));
  EXPECT_EQ(ports.between({0}, {2}), Sides{0});
  EXPECT_EQ(ports.between({2}, {1}), Sides{1});
  EXPECT_EQ(cluster.link({0}, {1}).bytes_per_second, 1e9);  // the link itself is unlimited
}

TEST(PortSides, EachSideIsOccupiedAtItsOwnRate) {
  PortSides ports(four());
  const Sides way = ports.between({0}, {3});
  EXPECT_EQ(ports.free_at(way, Duration(3)), Duration(3));
  ports.occupy(way, {1000}, Duration(3));
  EXPECT_EQ(ports.free_at(ports.between({1}, {3}), {}), Duration(203));  // the host: 1000 / 5e9
  EXPECT_EQ(ports.free_at(way, {}), Duration(503));                      // the card: 1000 / 2e9
  EXPECT_EQ(ports.free_at(ports.between({3}, {0}), {}), Duration(0));    // the other direction
  EXPECT_EQ(ports.free_at(way, Duration(900)), Duration(900));
  ports.occupy(ports.between({1}, {3}), {4000}, Duration(203));
  EXPECT_EQ(ports.busiest(), Duration(1000));  // the host, 5000 / 5e9, and the bus, 4000 / 4e9
}

TEST(PortSides, KeepFirst) {
  Cluster cluster = four();
  cluster.exceptions[{{3}, {0}}] = {};
  cluster.exceptions[{{1}, {0}}] = {};
  keep_first(cluster, 1);
  EXPECT_EQ(cluster.workers.size(), 1U);
  EXPECT_TRUE(cluster.exceptions.empty());
  ASSERT_EQ(cluster.ports.size(), 2U);
  EXPECT_EQ(cluster.ports[0].devices, std::vector<WorkerId>{{0}});
  EXPECT_EQ(cluster.ports[1].name, "card");
}

}  // namespace
}  // namespace tenuto
