// Workers on a wire, for the tests of every wire.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "transport/memory.h"
#include "transport/transport.h"
#include "transport/ucx/ucx.h"

namespace tenuto {

inline constexpr Duration kPatience = std::chrono::seconds(60);

inline Hello hello_of(int worker) { return {"tale", "secret", kWireVersion, WorkerId{worker}, 0}; }

// A worker's mailbox, the wire that posts into it, and the reports that were read so far, by
// ticket.
class Party {
 public:
  using Make = std::function<std::unique_ptr<Transport>(Hello, Mailbox&)>;
  Party(const Make& make, Hello hello) : self(hello.self), wire(make(hello, mailbox)) {}

  Ticket fresh() { return Ticket{++last_}; }

  // Reads reports until `ticket` has ended; reports of other tickets are kept.
  Done end_of(Ticket ticket) {
    while (!ended_.contains(ticket)) {
      const auto done = mailbox.wait(kPatience);
      if (!done.ok()) {
        ADD_FAILURE() << "worker " << self.value << ": ticket " << static_cast<uint64_t>(ticket)
                      << " never ended";
        return {ticket, done.error()};
      }
      keep(done.value());
    }
    Done done = ended_[ticket];
    ended_.erase(ticket);
    return done;
  }

  // Whether the report of `ticket` has been read already.
  bool has_ended(Ticket ticket) const { return ended_.contains(ticket); }

  // Reads reports until one tells of a lost peer.
  Done next_loss() {
    while (losses.empty()) {
      const auto done = mailbox.wait(kPatience);
      if (!done.ok()) {
        ADD_FAILURE() << "worker " << self.value << ": no loss was reported";
        return {};
      }
      keep(done.value());
    }
    Done done = losses.front();
    losses.erase(losses.begin());
    return done;
  }

  // Reads the mailbox until no report has come for `quiet`.
  void drain(Duration quiet) {
    while (true) {
      const auto done = mailbox.wait(quiet);
      if (!done.ok()) return;
      keep(done.value());
    }
  }

  Ticket send(int to, uint64_t name, std::span<const std::byte> bytes, Stamp stamp = {}) {
    const Ticket ticket = fresh();
    EXPECT_TRUE(wire->send(WorkerId{to}, {0, 0, name}, bytes, stamp, ticket).ok());
    return ticket;
  }

  Ticket recv(int from, uint64_t name, std::span<std::byte> bytes) {
    const Ticket ticket = fresh();
    EXPECT_TRUE(wire->recv(WorkerId{from}, {0, 0, name}, bytes, ticket).ok());
    return ticket;
  }

  Ticket take(int from, uint64_t name, std::span<std::byte> buffer, Taker taker) {
    const Ticket ticket = fresh();
    EXPECT_TRUE(wire->take(WorkerId{from}, {0, 0, name}, buffer, taker, ticket).ok());
    return ticket;
  }

  Status connect(Party& peer) { return connect(peer.self, peer.wire->address()); }
  Status connect(WorkerId peer, const Address& address) {
    const Ticket ticket = fresh();
    EXPECT_TRUE(wire->connect(peer, address, ticket).ok());
    return end_of(ticket).status;
  }

  WorkerId self;
  QueueMailbox mailbox;
  std::unique_ptr<Transport> wire;
  std::vector<Done> losses;

 private:
  void keep(const Done& done) {
    if (done.ticket == kNoTicket) {
      losses.push_back(done);
      return;
    }
    EXPECT_FALSE(ended_.contains(done.ticket)) << "a ticket ended twice";
    ended_[done.ticket] = done;
  }

  uint64_t last_ = 0;
  std::map<Ticket, Done> ended_;
};

// What a taker was given.
struct Taken {
  int times = 0;
  std::vector<std::byte> bytes;
  Taker taker() { return {&Taken::take, this}; }
  static void take(void* self, std::span<const std::byte> message) {
    auto& taken = *static_cast<Taken*>(self);
    ++taken.times;
    taken.bytes.assign(message.begin(), message.end());
  }
};

// Bytes that differ from message to message and from place to place. Whole words, and comparison
// and filling by the library below, keep the large messages quick under the sanitizers.
inline std::vector<std::byte> pattern(uint64_t seed, size_t size) {
  std::vector<std::byte> bytes(size);
  uint64_t word = mix(seed, size);
  for (size_t i = 0; i < size; i += 8) {
    word = word * 0x9e3779b97f4a7c15 + 0x632be59bd9b4e019;
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
  }
  return bytes;
}

inline bool same(std::span<const std::byte> left, std::span<const std::byte> right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

// Fills a buffer, and tells whether it still holds only that.
inline void paint(std::span<std::byte> bytes, int value) {
  if (!bytes.empty()) std::memset(bytes.data(), value, bytes.size());
}
inline bool painted(std::span<const std::byte> bytes, int value) {
  return bytes.empty() ||
         (bytes[0] == std::byte(value) && same(bytes.subspan(1), bytes.first(bytes.size() - 1)));
}

inline UcxSettings ucx_settings(UcxProtocol protocol = UcxProtocol::Automatic) {
  UcxSettings settings;
  settings.protocol = protocol;
  return settings;
}

// The settings for device memory, whose messages only UCX unpacks; here into host memory.
inline UcxSettings ucx_device_settings() {
  UcxSettings settings;
  settings.device_memory = true;
  return settings;
}

inline Party::Make make_ucx(UcxSettings settings) {
  return [settings](Hello hello, Mailbox& mailbox) -> std::unique_ptr<Transport> {
    auto made = make_ucx_transport(settings, std::move(hello), mailbox);
    CHECK(made.ok(), made.error().message);
    return std::move(made).value();
  };
}

}  // namespace tenuto
