// Two wires over a simulated network on one thread, and traffic between them whose every message
// and every report is checked.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "simulated_network.h"
#include "tcp_party.h"
#include "transport/tcp/engine.h"
#include "transport/tcp/tls_sockets.h"

namespace tenuto::tcp {

// A mailbox that nobody waits at.
class ListMailbox : public Mailbox {
 public:
  void post(Done done) override { reports.push_back(std::move(done)); }
  Result<Done> wait(Duration) override { return Error{Code::Timeout, Reach::Call, "none"}; }
  std::deque<Done> reports;
};

// The context of encrypted connections in tests.
inline TlsContext test_context() {
  static const TlsContext made = make_tls_context(*test_tls()).value();
  return made;
}

// One wire; with a context its connections are encrypted, with a new key after a few records.
struct SimulatedWire {
  SimulatedWire(SimulatedNetwork& network, Hello hello, const TcpSettings& settings, uint64_t seed,
                TlsContext context = nullptr)
      : self(hello.self), random(seed), sockets(network.host()), host(sockets.get()) {
    if (context != nullptr) sockets = make_tls_sockets(std::move(sockets), std::move(context), 50);
    const Entropy entropy = [this](std::span<std::byte> bytes) {
      for (std::byte& each : bytes) each = static_cast<std::byte>(random.next());
    };
    engine = std::make_unique<Engine>(settings, std::move(hello),
                                      EngineParts{mailbox, *sockets, tally, entropy});
    const Status status = engine->open();
    EXPECT_TRUE(status.ok());
  }
  void connect(SimulatedWire& peer, Ticket ticket) {
    const auto to = resolve(peer.engine->address());
    ASSERT_TRUE(to.ok());
    engine->connect(peer.self, peer.engine->address(), to.value(), ticket);
  }

  WorkerId self;
  Random random;
  ListMailbox mailbox;
  Tally tally;
  std::unique_ptr<Sockets> sockets;
  Sockets* host;  // those of the network, below the encryption
  std::unique_ptr<Engine> engine;
};

// Turns the loops of all wires once. If nothing is to do now and no report is to be read, moves the
// clock to the next moment at which something is, `limit` at most.
inline void turn_all(SimulatedNetwork& network, const std::vector<SimulatedWire*>& wires,
                     Duration limit) {
  Duration next = limit;
  std::vector<SocketEvent> events;
  for (SimulatedWire* wire : wires) {
    wire->engine->gather_events(Duration{}, events);
    wire->engine->handle_events(events);
    next = std::min(next, wire->engine->work());
    if (!wire->mailbox.reports.empty()) next = Duration{};
  }
  network.advance(std::max(next, network.now() + std::chrono::microseconds(1)));
}

// The messages of one wire: sent and received in random order, and checked.
class Traffic {
 public:
  // `count` messages each way, whose sizes and bytes follow from the seed at both ends.
  Traffic(SimulatedWire& wire, WorkerId peer, int count, uint64_t seed)
      : wire_(wire), peer_(peer), random_(mix(seed, 9, static_cast<uint64_t>(wire.self.value))) {
    for (const bool out : {true, false}) {
      const WorkerId from = out ? wire.self : peer;
      Random sizes(mix(seed, static_cast<uint64_t>(from.value)));
      auto& messages = out ? out_ : in_;
      for (int i = 0; i < count; ++i) {
        Message message;
        message.seed = sizes.next();
        const size_t size = random_size(sizes);
        message.bytes = out ? pattern(message.seed, size) : std::vector<std::byte>(size);
        messages.push_back(std::move(message));
      }
    }
  }
  // Whether everything has been sent and received.
  bool done() const { return open_ == 0 && next_out_ == out_.size() && next_in_ == in_.size(); }
  // Whether step() may make a call now.
  bool may_begin() const {
    return open_ < kMostOpen && (next_out_ < out_.size() || next_in_ < in_.size());
  }
  // Makes a few calls and checks the reports that have come.
  void step() {
    for (int64_t i = random_.below(4); i > 0 && open_ < kMostOpen; --i) {
      if (random_.below(2) == 0) {
        begin(out_, next_out_, true);
      } else {
        begin(in_, next_in_, false);
      }
    }
    for (; !wire_.mailbox.reports.empty(); wire_.mailbox.reports.pop_front()) {
      check(wire_.mailbox.reports.front());
    }
  }
  int64_t ended() const { return ended_; }

 private:
  static constexpr int kMostOpen = 24;

  struct Message {
    std::vector<std::byte> bytes;
    uint64_t seed = 0;
    bool ended = false;
    Taken taken;
  };

  static size_t random_size(Random& random) {
    const int64_t most[] = {1, 100, 20000, 200000, 1500000, 1, 100, 20000};
    if (random.below(100) == 0) return static_cast<size_t>(random.below(6000000));
    return static_cast<size_t>(random.below(most[random.below(8)]));
  }
  // Tickets: 1 + 2 x index for sends, one more for receives.
  void begin(std::vector<Message>& messages, size_t& next, bool out) {
    if (next == messages.size()) return;
    Message& message = messages[next];
    const Ticket ticket{2 + 2 * next + (out ? 0 : 1)};
    const Tag tag{0, 0, next};
    if (out) {
      wire_.engine->send(peer_, tag, message.bytes, {Duration(7), {}, message.seed}, ticket);
    } else {
      const bool takes = message.seed % 2 == 0;
      wire_.engine->recv(peer_, tag, message.bytes, takes ? message.taken.taker() : Taker{},
                         ticket);
    }
    ++next;
    ++open_;
  }
  void check(const Done& done) {
    if (done.ticket == kNoTicket || !done.status.ok()) {
      ADD_FAILURE() << (done.status.ok() ? "a loss" : done.status.error().message);
      return;
    }
    const uint64_t number = static_cast<uint64_t>(done.ticket) - 2;
    const bool out = number % 2 == 0;
    Message& message = (out ? out_ : in_)[number / 2];
    EXPECT_FALSE(message.ended) << "a call ended twice";
    EXPECT_EQ(done.peer, peer_);
    message.ended = true;
    --open_;
    ++ended_;
    if (!out) {
      EXPECT_TRUE(same(message.bytes, pattern(message.seed, message.bytes.size())))
          << "message " << number / 2 << " of " << message.bytes.size() << " bytes";
      const bool takes = message.seed % 2 == 0;
      EXPECT_EQ(message.taken.times, takes ? 1 : 0);
      EXPECT_TRUE(!takes || same(message.bytes, message.taken.bytes));
      EXPECT_EQ(done.sent, Duration(7));
      EXPECT_EQ(done.tally, message.seed);
    }
    // The memory belongs to the caller again: whoever still reads or writes it is found out.
    paint(message.bytes, 0x5a);
    painted_.push_back(&message);
    if (painted_.size() > 8) {
      Message* old = painted_.front();
      painted_.pop_front();
      EXPECT_TRUE(painted(old->bytes, 0x5a)) << "memory was written to after the end of its call";
      old->bytes = {};
      old->taken.bytes = {};
    }
  }

  SimulatedWire& wire_;
  WorkerId peer_;
  Random random_;
  std::vector<Message> out_, in_;
  std::deque<Message*> painted_;
  size_t next_out_ = 0, next_in_ = 0;
  int open_ = 0;
  int64_t ended_ = 0;
};

}  // namespace tenuto::tcp
