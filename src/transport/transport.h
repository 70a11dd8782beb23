// The wire (the transport between workers): one interface of a few calls, the same for threads of
// one process (memory.h) and for processes (ucx.h).
//
// All calls but close return at once; the end of a call is posted to the mailbox with its ticket. A
// receive is posted ahead of the message and grants the sender the right to send that one message
// (a credit by name). So no message ever blocks another that is needed sooner, and nothing is
// buffered without bound. Memory handed in must stay untouched until the ticket is posted.
//
// The wire itself repairs a connection that breaks while both ends live: nothing is reported, calls
// take longer, and every message arrives exactly once. Only when that fails is the peer lost: the
// loss is posted once as a report without a ticket, and every call that was under way with the peer
// ends with Disconnected/Worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/mailbox.h"
#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// Names a message between two workers. `name` is opaque here (a packed ir Value or a collective's
// move); both ends give the same.
struct Tag {
  int64_t epoch = 0, step = 0;
  uint64_t name = 0;
  auto operator<=>(const Tag&) const = default;
};

// The size with which an emulated link computes how long a message of `real` bytes takes. It is
// larger where a rehearsal sends a small message instead of a large one. Empty = the real size.
using MessageSizes = std::function<Bytes(const Tag& tag, Bytes real)>;

// Where a worker listens: "host:port", or the name of a peer in the same process.
struct Address {
  std::string text;
};

// What the two ends tell each other first. An end with another job, token, version or epoch is
// refused, and is told why.
struct Hello {
  std::string job, token;
  int32_t version = 0;
  WorkerId self;
  int64_t epoch = 0;
};
// Version of the wire format, hello included; raised with every change of the format.
inline constexpr int32_t kWireVersion = 6;

// What is sent along with a message: its times (rehearsal/paced.h has the virtual clock) and, if it
// is part of a sum, a tally of what is in that part (runtime/tally.h).
struct Stamp {
  Duration sent{};     // when it was sent, on the sender's clock
  Duration arrival{};  // virtual arrival; zero = when it really arrives
  uint64_t tally = 0;
};

// A callback that uses a message in the wire's own memory, instead of having it copied to a buffer
// and read there. `take` is called on a thread of the wire; the bytes may have any alignment and
// are valid only during the call.
struct Taker {
  void (*take)(void* self, std::span<const std::byte> message) = nullptr;
  void* self = nullptr;
};

// How long a peer may be out of reach, while something is awaited from it, before it is lost.
inline constexpr Duration kMendLimit = std::chrono::seconds(5);

// A connection that broke and has been repaired.
struct Repair {
  WorkerId peer;
  Duration took{};  // from when this end saw the break to the new hello
};

// What the kernel knows of the network between this end and a peer, from the packets of their
// connection. A process takes part in these times only where it reads late: then acknowledgements
// may wait for it for up to 40 ms, and the round trip varies.
struct LinkFigures {
  WorkerId peer;
  // Of a packet and its acknowledgement, smoothed, and its mean deviation: at that of the looks at
  // which their difference was least.
  Duration round_trip{}, variation{};
  // At which bytes have reached the peer, at the newest look; 0 = not known, because this end did
  // not send enough, or the peer did not read fast enough, for the network to set the pace.
  double bytes_per_second = 0;
  // Packets that had to be sent again since the last figures, about: those that turn out to have
  // arrived are taken off.
  int64_t repeated = 0;
  auto operator<=>(const LinkFigures&) const = default;
};

// What a wire has noticed since it was last asked.
struct WireNews {
  std::vector<Repair> repairs;       // listed only at the end that called connect()
  std::vector<LinkFigures> figures;  // by peer; none of links that have been quiet
};

// Bytes between workers. Calls come from one thread, the worker's.
class Transport {
 public:
  virtual ~Transport() = default;
  // Where peers reach this worker.
  virtual Address address() const = 0;
  // Connects to `peer`, which must be listening there; the ticket is posted when both ends have
  // agreed on the hello, or with the refusal. Exactly one end of a pair calls it.
  virtual Status connect(WorkerId peer, const Address& address, Ticket ticket) = 0;
  // Sends `bytes` once the peer has posted the matching receive. Messages to a peer that has not
  // connected yet wait for it.
  virtual Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
                      Ticket ticket) = 0;
  // Receives into `bytes`, whose size must be the message's; the report carries the stamp.
  virtual Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) = 0;
  // Whether this wire gives messages to takers.
  virtual bool has_takers() const { return false; }
  // Like recv, but the message is given to `taker`: once, before the report of its arrival, and not
  // at all when the report is an error. The wire may receive the message into `buffer` first.
  //
  // Requires: has_takers()
  virtual Status take(WorkerId from, Tag tag, std::span<std::byte> buffer, Taker taker,
                      Ticket ticket) {
    (void)from, (void)tag, (void)buffer, (void)taker, (void)ticket;
    return Error{Code::Invalid, Reach::Call, "this wire gives no messages to takers"};
  }
  // Cancels all calls with `peer` (each ticket ends Cancelled) and closes the connection by force.
  virtual Status drop(WorkerId peer) = 0;
  // Waits until all that was sent has left this process, `limit` at most, then closes every end.
  virtual Status close(Duration limit) = 0;
  // What has happened to the connections since the last call. A wire without connections has no
  // news, one whose connections the kernel does not keep has no figures.
  virtual WireNews take_news() { return {}; }
  // For injected faults: breaks the connection with `peer` by force, right after the next `after`
  // messages to it have been handed over (0: at once). A wire without connections does nothing.
  virtual Status break_connection(WorkerId peer, int64_t after) {
    (void)peer, (void)after;
    return ok();
  }
};

}  // namespace tenuto
