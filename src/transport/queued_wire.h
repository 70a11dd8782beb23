// The front of a wire whose engine another thread may hold: the calls of Transport become entries
// of a queue, which the holder of the engine takes and makes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "transport/address.h"
#include "transport/transport.h"

namespace tenuto {

// A call of Transport on its way to an engine. Which members count depends on its kind.
struct WireCall {
  // Which function of Transport it calls; Break is break_connection().
  enum class Kind : uint8_t { Connect, Send, Recv, Drop, Break, Close } kind = Kind::Close;
  WorkerId peer;
  Tag tag;
  Stamp stamp;
  Ticket ticket = kNoTicket;
  std::span<const std::byte> sent;
  std::span<std::byte> received;
  Taker taker;
  std::string name;  // of where to connect to
  SocketAddress to;  // the same
  Duration limit{};
  int64_t after = 0;
};

// Makes the call at an engine, which has one function for each kind.
template <class Engine>
void make_call(const WireCall& call, Engine& engine) {
  switch (call.kind) {
    case WireCall::Kind::Connect:
      return engine.connect(call.peer, call.name, call.to, call.ticket);
    case WireCall::Kind::Send:
      return engine.send(call.peer, call.tag, call.sent, call.stamp, call.ticket);
    case WireCall::Kind::Recv:
      return engine.recv(call.peer, call.tag, call.received, call.taker, call.ticket);
    case WireCall::Kind::Drop:
      return engine.drop(call.peer);
    case WireCall::Kind::Break:
      return engine.break_connection(call.peer, call.after);
    case WireCall::Kind::Close:
      return engine.close(call.limit);
  }
}

// A wire that submits its calls; `Base` is the kind of Transport that it is. All but close() are
// here.
template <class Base>
class QueuedWire : public Base {
 public:
  Status connect(WorkerId peer, const Address& address, Ticket ticket) override {
    const auto to = resolve(address.text);
    if (!to.ok()) return to.error();
    WireCall call{.kind = WireCall::Kind::Connect, .peer = peer, .ticket = ticket};
    call.name = address.text;
    call.to = to.value();
    return submit(std::move(call));
  }
  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    WireCall call{.kind = WireCall::Kind::Send, .peer = to, .tag = tag, .stamp = stamp};
    call.ticket = ticket;
    call.sent = bytes;
    return submit(std::move(call));
  }
  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    return take(from, tag, bytes, {}, ticket);
  }
  Status take(WorkerId from, Tag tag, std::span<std::byte> buffer, Taker taker,
              Ticket ticket) override {
    if (taker.take != nullptr && !this->has_takers()) {
      return Transport::take(from, tag, buffer, taker, ticket);
    }
    WireCall call{.kind = WireCall::Kind::Recv, .peer = from, .tag = tag, .ticket = ticket};
    call.received = buffer;
    call.taker = taker;
    return submit(std::move(call));
  }
  Status drop(WorkerId peer) override {
    return submit({.kind = WireCall::Kind::Drop, .peer = peer});
  }
  Status break_connection(WorkerId peer, int64_t after) override {
    return submit({.kind = WireCall::Kind::Break, .peer = peer, .after = after});
  }

 protected:
  // Adds a call to the queue and sees to it that somebody makes it.
  //
  // Errors: Cancelled/Call  the wire is closed
  virtual Status submit(WireCall call) = 0;
};

}  // namespace tenuto
