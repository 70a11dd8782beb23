// Connections that have not said who they are, if there are many, on a simulated network.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "simulated_wires.h"
#include "transport/tcp/strangers.h"

namespace tenuto::tcp {
namespace {

// Against a plain list, at drawn additions and removals.
TEST(TcpStrangers, TheOldestOfTheHostWithTheMostIsNextToGo) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    Strangers strangers;
    std::vector<std::pair<SocketId, Strangers::Host>> plain;
    for (int32_t next = 0; next < 300; ++next) {
      const bool adds = plain.empty() || random.below(5) < 3;
      if (adds) {
        Strangers::Host host{};
        host[15] = static_cast<uint8_t>(random.below(6));
        strangers.add(SocketId{next}, host);
        plain.emplace_back(SocketId{next}, host);
      } else {
        const auto which = random.below(static_cast<int64_t>(plain.size()));
        strangers.remove(plain[static_cast<size_t>(which)].first);
        plain.erase(plain.begin() + which);
      }
      strangers.remove(SocketId{1000});  // none of them
      ASSERT_EQ(strangers.size(), plain.size());
      ASSERT_EQ(strangers.empty(), plain.empty());
      if (plain.empty()) continue;
      std::map<Strangers::Host, int> counts;
      for (const auto& [socket, host] : plain) ++counts[host];
      int most = 0;
      for (const auto& [host, count] : counts) most = std::max(most, count);
      const auto expected = std::find_if(plain.begin(), plain.end(),
                                         [&](const auto& of) { return counts[of.second] == most; });
      ASSERT_EQ(strangers.oldest(), plain.front().first);
      ASSERT_EQ(strangers.next_to_go(), expected->first) << "seed " << seed;
      ASSERT_TRUE(plain.size() == 1 || strangers.next_to_go() != plain.back().first);
    }
  }
}

TEST(TcpStrangers, TheLimitGrowsWithTheJob) {
  EXPECT_EQ(most_strangers_of(-1), 64u);
  EXPECT_EQ(most_strangers_of(0), 64u);
  EXPECT_EQ(most_strangers_of(32), 64u);
  EXPECT_EQ(most_strangers_of(33), 66u);
  EXPECT_EQ(most_strangers_of(512), 1024u);
}

// One host opens as many connections in each microsecond as there are places, and says nothing. A
// worker with another address connects all the same.
TEST(TcpStrangers, AHostWithManyConnectionsHarmsOnlyItself) {
  constexpr int kPlaces = 8, kMostTurns = 20'000;
  constexpr size_t kKept = 40;  // by the attacker
  NetworkFaults faults;
  faults.most_latency = std::chrono::microseconds(10);
  SimulatedNetwork network(11, faults);
  TcpSettings settings;
  settings.most_strangers = kPlaces;
  SimulatedWire listener(network, hello_of(0), settings, 1), worker(network, hello_of(1), {}, 2);
  const std::unique_ptr<Sockets> attacker = network.host();
  const auto to = resolve(listener.engine->address());
  ASSERT_TRUE(to.ok());
  std::deque<SocketId> open;
  std::vector<SocketEvent> ignored;
  Duration next_attack = network.now();
  const auto turn = [&] {
    if (network.now() >= next_attack) {
      next_attack += std::chrono::microseconds(1);
      for (int i = 0; i < kPlaces; ++i) open.push_back(attacker->connect(to.value()));
      for (; open.size() > kKept; open.pop_front()) attacker->close(open.front(), false);
    }
    attacker->wait({}, ignored);
    ignored.clear();
    turn_all(network, {&listener, &worker}, next_attack);
    listener.mailbox.reports.clear();
  };
  for (int i = 0; i < 100; ++i) turn();
  EXPECT_GT(listener.tally.turned_away, kPlaces) << "the places are not all taken";
  worker.connect(listener, Ticket{1});
  for (int i = 0; i < kMostTurns && worker.mailbox.reports.empty(); ++i) turn();
  ASSERT_EQ(worker.mailbox.reports.size(), 1u);
  EXPECT_TRUE(worker.mailbox.reports.front().status.ok());
}

// All other workers of a job connect to one at the same time. Returns how many connections that one
// has closed because there were too many.
int64_t turned_away(int32_t workers, size_t most_strangers) {
  SimulatedNetwork network(12, {});
  TcpSettings settings;
  settings.most_strangers = most_strangers;
  SimulatedWire listener(network, hello_of(0), settings, 1);
  std::vector<std::unique_ptr<SimulatedWire>> dialers;
  std::vector<SimulatedWire*> all{&listener};
  for (int32_t w = 1; w < workers; ++w) {
    const auto seed = static_cast<uint64_t>(w) + 1;
    dialers.push_back(std::make_unique<SimulatedWire>(network, hello_of(w), TcpSettings{}, seed));
    all.push_back(dialers.back().get());
    dialers.back()->connect(listener, Ticket{1});
  }
  const Duration end = network.now() + 2 * settings.connect_limit;
  size_t connected = 0, ended = 0;
  while (ended < dialers.size() && network.now() < end) {
    turn_all(network, all, end);
    for (SimulatedWire* wire : all) {
      for (const Done& done : wire->mailbox.reports) {
        if (done.ticket != Ticket{1}) continue;
        ++ended;
        connected += done.status.ok() ? 1 : 0;
      }
      wire->mailbox.reports.clear();
    }
  }
  EXPECT_EQ(connected, dialers.size());
  return listener.tally.turned_away;
}

TEST(TcpStrangers, AllWorkersOfAJobMayConnectAtOnce) {
  constexpr int32_t kWorkers = 150;
  EXPECT_EQ(turned_away(kWorkers, most_strangers_of(kWorkers)), 0);
  EXPECT_GT(turned_away(kWorkers, kFewestStrangers), 0) << "the case is too small";
}

// When a worker comes back to a listener that accepts and closes each of its connections.
std::vector<Duration> moments_of(int32_t id) {
  SimulatedNetwork network(13, {});
  TcpSettings settings;
  settings.connect_limit = std::chrono::seconds(1);
  SimulatedWire worker(network, hello_of(id), settings, 1);
  const std::unique_ptr<Sockets> full = network.host();
  const auto address = full->listen("127.0.0.1", 0);
  worker.engine->connect(WorkerId{0}, address.value(), resolve(address.value()).value(), Ticket{1});
  const Duration end = network.now() + 2 * settings.connect_limit;
  std::vector<Duration> moments;
  std::vector<SocketEvent> ignored;
  while (worker.mailbox.reports.empty() && network.now() < end) {
    turn_all(network, {&worker}, end);
    full->wait({}, ignored);
    ignored.clear();
    SocketAddress from;
    for (SocketId each; (each = full->accept(from)) != kNoSocket;) {
      moments.push_back(network.now());
      full->close(each, true);
    }
  }
  return moments;
}

TEST(TcpStrangers, WorkersThatAreClosedTogetherDoNotComeBackTogether) {
  const std::vector<Duration> first = moments_of(1);
  EXPECT_GT(first.size(), 10u);
  EXPECT_EQ(moments_of(1), first);  // the same draws each time
  EXPECT_NE(moments_of(2), first);
}

}  // namespace
}  // namespace tenuto::tcp
