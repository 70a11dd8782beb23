// Prices over ports: devices whose messages share a rate.
#include "sim/cases.h"
#include "sim/reduction_price.h"
#include "world/port_sides.h"

namespace tenuto {
namespace {

constexpr double kGigabyte = 1e9;

Duration us(int64_t time) { return std::chrono::microseconds(time); }

// Two pipelines of two stages; worker = 2 x pipeline + stage. Each message has a megabyte, which
// takes 100 us on a link.
struct Square {
  Plan plan = plan_of(shape_of(2, 2, 4, "gpipe"));
  Model model = equal_model(2, 1, 1, 1, {1'000'000});
  Cluster cluster = uniform_cluster(4, {{}, 10 * kGigabyte});
  PriceOptions options;

  Square() { options.update = false; }
  Duration step() const { return price_of(plan, model, cluster, options).makespan; }
};

// Both first stages send through one port. It takes as long for a message as a link, so the
// messages of the second pipeline come 100 us later; and so does its end, as all ops last alike.
TEST(Ports, MessagesOfTwoPipelinesShareAHost) {
  Square it;
  const Duration before = it.step();
  it.cluster.ports = {{"host", {{0}, {2}}, 10 * kGigabyte, false, false}};
  const Duration after = it.step();
  // The gradients of both pipelines come into the host 100 us one after the other anyway.
  EXPECT_EQ(after, before + us(100));
  it.cluster.ports[0].bytes_per_second *= 2;
  EXPECT_EQ(it.step(), before + us(50));
}

TEST(Ports, DevicesOfOnePortDoNotPassIt) {
  Square it;
  const Duration before = it.step();
  it.cluster.ports = {{"host", {{0}, {1}, {2}, {3}}, kGigabyte / 100, false, false}};
  EXPECT_EQ(it.step(), before);
  it.cluster.ports[0].inside = true;
  EXPECT_GT(it.step(), before);
}

// All messages of a step pass one port: its load is a bound.
TEST(Ports, TheLoadOfAPortIsABound) {
  Square it;
  it.cluster.ports = {{"uplink", {{0}, {2}}, kGigabyte / 10, true, false}};
  const Timeline timeline = price_of(it.plan, it.model, it.cluster, it.options);
  EXPECT_EQ(timeline.lower_bound, us(2 * 4 * 2 * 10'000));
  EXPECT_GE(timeline.makespan, timeline.lower_bound);
  EXPECT_LT(to_milliseconds(timeline.makespan), 1.2 * to_milliseconds(timeline.lower_bound));
}

// A ring of four over two hosts: each port carries one edge of the ring in each direction, so the
// ring is as fast as one whose edges between the hosts have the rate of the ports.
TEST(Ports, ARingPassesAHostOnce) {
  const Plan plan = plan_of(shape_of(1, 4, 4, "gpipe"));
  const Collective& ring = plan.schedule.collectives.front();
  Cluster cluster = uniform_cluster(4, {us(3), 10 * kGigabyte});
  Cluster slow = cluster;
  for (const auto& [one, other] : {std::pair(1, 2), std::pair(3, 0)}) {
    slow.exceptions[{{one}, {other}}] = slow.exceptions[{{other}, {one}}] = {us(3), 2 * kGigabyte};
  }
  cluster.ports = {{"host 0", {{0}, {1}}, 2 * kGigabyte, false, false},
                   {"host 1", {{2}, {3}}, 2 * kGigabyte, false, false}};
  const std::vector<Duration> starts(4);
  const auto ends = reduction_finish(ring, starts, {4'000'000}, cluster);
  EXPECT_EQ(ends, reduction_finish(ring, starts, {4'000'000}, slow));
  // Another ring at the same time has to wait for the ports.
  PortSides ports(cluster);
  EXPECT_EQ(reduction_finish(ring, starts, {4'000'000}, cluster, ports), ends);
  const auto later = reduction_finish(ring, starts, {4'000'000}, cluster, ports);
  EXPECT_GE(*std::max_element(later.begin(), later.end()),
            us(2 * 6 * 500));  // six rounds of a megabyte, twice, at 2 GB/s
}

// Both stages sum over the same two hosts: one after the other.
TEST(Ports, ReductionsShareAHost) {
  Square it;
  it.options.update = true;
  for (Layer& layer : it.model.layers) layer.parameters = {100'000'000};
  const Duration before = it.step();
  it.cluster.ports = {{"host 0", {{0}, {1}}, 10 * kGigabyte, false, false},
                      {"host 1", {{2}, {3}}, 10 * kGigabyte, false, false}};
  // The last stage begins to sum while the first one still works, so not the whole sum is added.
  EXPECT_GT(it.step(), before + us(5'000));
  EXPECT_LE(it.step(), before + us(10'000));
}

TEST(Ports, BlockingMessagesAreRefused) {
  Square it;
  it.cluster.ports = {{"host", {{0}}, kGigabyte, false, false}};
  it.options.sending = Sending::Blocking;
  const auto priced = price(it.plan, it.model, it.cluster, it.options);
  ASSERT_FALSE(priced.ok());
  EXPECT_EQ(priced.error().message,
            "blocking messages cannot be priced over ports, and the cluster has 1: take offloaded "
            "messages, or leave the ports out");
}

}  // namespace
}  // namespace tenuto
