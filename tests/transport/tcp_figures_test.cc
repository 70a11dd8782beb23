// What a wire over TCP tells of its connections from the kernel's figures.
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "simulated_wires.h"
#include "transport/faulty.h"

namespace tenuto::tcp {
namespace {

using std::chrono::milliseconds;

// Sends a message from `from` to `to` and turns the loops until it has arrived.
void pass(SimulatedNetwork& network, SimulatedWire& from, SimulatedWire& to, uint64_t name) {
  std::vector<std::byte> bytes = pattern(name, 1000), got(1000);
  to.engine->recv(from.self, {0, 0, name}, got, {}, Ticket{2 * name});
  from.engine->send(to.self, {0, 0, name}, bytes, {}, Ticket{2 * name + 1});
  const Duration limit = network.now() + kPatience;
  while (from.mailbox.reports.empty() || to.mailbox.reports.empty()) {
    ASSERT_LT(network.now(), limit) << "the message did not arrive";
    turn_all(network, {&from, &to}, limit);
  }
  from.mailbox.reports.clear();
  to.mailbox.reports.clear();
  EXPECT_TRUE(same(bytes, got));
}

// The kernel is asked at most every 200 ms of a connection, and never of one that is quiet.
TEST(TcpFigures, AreOfBusyConnectionsAndNotTooMany) {
  SimulatedNetwork network(3, {});
  SimulatedWire left(network, hello_of(0), {}, 1), right(network, hello_of(1), {}, 2);
  left.connect(right, Ticket{1});
  const Duration limit = network.now() + kPatience;
  while (left.mailbox.reports.empty()) {
    ASSERT_LT(network.now(), limit);
    turn_all(network, {&left, &right}, limit);
  }
  left.mailbox.reports.clear();
  std::optional<Duration> last;
  int times = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    pass(network, i % 2 == 0 ? left : right, i % 2 == 0 ? right : left, 10 + i);
    if (!left.tally.figures.empty()) {
      const LinkFigures& figures = left.tally.figures.begin()->second;
      EXPECT_EQ(figures.peer, WorkerId{1});
      EXPECT_GT(figures.round_trip, Duration::zero());
      EXPECT_EQ(figures.bytes_per_second, 0) << "nobody knows it";
      EXPECT_TRUE(!last || network.now() - *last >= milliseconds(200));
      last = network.now();
      ++times;
      left.tally.figures.clear();
    }
    network.advance(network.now() + milliseconds(30));
  }
  EXPECT_GE(times, 5);
  right.tally.figures.clear();
  for (int i = 0; i < 100; ++i) {
    turn_all(network, {&left, &right}, network.now() + milliseconds(100));
  }
  EXPECT_TRUE(left.tally.figures.empty());
  EXPECT_TRUE(right.tally.figures.empty());
}

// The figures of real connections, also through an encrypted one; through a wire with injected
// faults there are none.
TEST(TcpFigures, OfTheKernel) {
  const auto faulty = [](Hello hello, Mailbox& mailbox) -> std::unique_ptr<Transport> {
    const WorkerId self = hello.self;
    auto made = make_faulty_transport({}, self, mailbox, monotonic_clock(), FaultDrive::Thread,
                                      [&](Mailbox& inner) -> Result<std::unique_ptr<Transport>> {
                                        return make_tcp({})(std::move(hello), inner);
                                      });
    CHECK(made.ok(), made.error().message);
    return std::move(made).value();
  };
  for (const auto& [make, told] : {std::pair<Party::Make, bool>(make_tcp(), true),
                                   {make_tcp(tls_settings()), true},
                                   {faulty, false}}) {
    Party left(make, hello_of(0)), right(make, hello_of(1));
    ASSERT_TRUE(left.connect(right).ok());
    std::vector<LinkFigures> figures;
    for (uint64_t name = 1; name <= 50 && figures.empty(); ++name) {
      std::vector<std::byte> bytes = pattern(name, 300000), got(bytes.size());
      const Ticket receiving = right.recv(0, name, got);
      const Ticket sending = left.send(1, name, bytes);
      EXPECT_TRUE(right.end_of(receiving).status.ok());
      EXPECT_TRUE(left.end_of(sending).status.ok());
      figures = left.wire->take_news().figures;
      if (figures.empty()) std::this_thread::sleep_for(milliseconds(told ? 50 : 6));
    }
    ASSERT_EQ(figures.size(), told ? 1u : 0u);
    if (!told) continue;
    EXPECT_EQ(figures[0].peer, WorkerId{1});
    EXPECT_GT(figures[0].round_trip, Duration::zero());
    EXPECT_LT(figures[0].round_trip, kPatience);
    EXPECT_GE(figures[0].bytes_per_second, 0);
    EXPECT_GE(figures[0].repeated, 0);
  }
}

}  // namespace
}  // namespace tenuto::tcp
