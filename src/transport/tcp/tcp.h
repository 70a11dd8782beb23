// The wire between processes over plain TCP sockets: one connection for each peer, one thread.
//
// engine.h has the loop, link.h the messages with one peer, greeting.h who may speak, sockets.h
// what is asked of the kernel.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/address_range.h"
#include "base/tls.h"
#include "transport/pace.h"
#include "transport/transport.h"

namespace tenuto {

// Who turns the loop of a wire while the worker waits in its mailbox. In all forms but the first it
// is the worker's own thread, so that messages are not handed from thread to thread; the wire's
// thread stands in while the worker does something else (handover.h). They need a QueueMailbox:
// with another one, such as that between a wrapper and its wire, each of them is the first.
enum class WireProgress : uint8_t {
  Thread,  // the wire's thread, always
  Event,   // the worker, which sleeps until something happens
  Auto,    // the worker, which looks again and again for about as long as waking it would take, and
           // then sleeps; never where workers outnumber cores, nor while others need its core
  Poll,    // the worker, which never sleeps: it takes a core as a whole
};

// Each wire takes at least so many connections at a time that have not said who they are.
inline constexpr size_t kFewestStrangers = 64;
// How many it takes in a job with so many workers. When a job begins, or a network comes back, all
// of them may connect to one at the same time, and an old connection of each may not be known to
// have ended yet.
constexpr size_t most_strangers_of(int32_t workers) {
  return std::max(kFewestStrangers, 2 * static_cast<size_t>(std::max(workers, 0)));
}

// The settings of a worker's wire over TCP.
struct TcpSettings {
  std::string listen_host = "127.0.0.1";  // an address of this machine; port 0 = any free one
  uint16_t listen_port = 0;
  std::string advertised_host;  // what peers connect to; empty = listen_host
  // True: a send ends only when the receiver has acknowledged the message, and not earlier by a
  // copy of its bytes. For callers that limit the number of sends under way. Small messages are
  // still copied, so their sends end at once.
  bool sends_end_there = false;
  std::function<void()> on_thread;  // the wire's thread's first call; may be empty
  Duration connect_limit = std::chrono::seconds(10);  // of all attempts of one connect() together
  Duration hello_limit = std::chrono::seconds(1);     // for a new connection to say who it is
  // How long repairing a broken connection may take, and how long a host may answer nothing while
  // something is on its way to it; after that the peer is lost. Keep it below
  // `network.silence_seconds`, after which a step without progress ends the run.
  Duration mend_limit = kMendLimit;
  // From where peers may connect; empty = from anywhere. Others are closed before they are heard.
  std::vector<AddressRange> allowed;
  // The most connections at a time that have not said who they are. One more takes the place of the
  // oldest of the host that has the most, so that those who do not speak cannot keep others out.
  // See most_strangers_of().
  size_t most_strangers = kFewestStrangers;
  // The most grants of a peer that may wait here for their send. A peer with more is lost, because
  // its grants would take this end's memory without bound.
  size_t most_awaited = 1 << 20;
  // The certificates by which both ends of a connection identify each other; its bytes are then
  // encrypted. Null: they are not. All workers of a job have them, or none has.
  std::shared_ptr<const Tls> tls;
  WireProgress progress = WireProgress::Thread;
  // How fast large messages may leave; null = as fast as they can.
  std::shared_ptr<const SendPace> pace;
  // What a message is for, from its tag; null: all are for the step.
  Purpose (*purpose_of)(const Tag&) = nullptr;
  // How many workers of the job run on this host, for WireProgress::Auto. The caller may change the
  // number while the wire runs. Null: this worker is the only one.
  std::shared_ptr<const std::atomic<int32_t>> workers_here;
};

// How long a connection may be silent until it counts as broken: while nothing is on its way over
// it, and while what is on its way is sent again in vain although the host answers elsewhere. This
// is three quarters of mend_limit; the last quarter is for a new connection.
inline Duration silence_before_break(const TcpSettings& settings) {
  return settings.mend_limit / 4 * 3;
}

// Counts of what a wire has refused and repaired since the start.
struct TcpCounters {
  int64_t refused = 0;      // connections with a wrong hello, or with none in time
  int64_t turned_away = 0;  // connections that were closed unheard: too many, or not allowed
  int64_t malformed = 0;    // peers and strangers that did not keep to the format
  int64_t wake_ups = 0;     // of the wire's thread: a quiet wire has none
  int64_t broken = 0;       // open connections that broke, which the wire tries to repair
  int64_t sent_again = 0;   // messages, after such a break
  int64_t kept = 0;         // large messages that were copied to end their send early
};

// A Transport with counters.
class TcpTransport : public Transport {
 public:
  // Any thread.
  virtual TcpCounters counters() const = 0;
};

// Listens and starts the wire's thread. A call that cannot be made (peer lost, tag already in use)
// is answered through its ticket. Refused at once are only calls on a closed wire (Cancelled/Call)
// and connect() to an address that cannot be resolved (Invalid). connect() tries again with a
// growing pause while nobody listens there. The mailbox must outlive the transport.
//
// Errors: Invalid       no such host, a job of more than 512 bytes, a token of more than 1024, an
//                       advertised address of more than 300, a worker number below 0,
//                       certificates that other workers would not accept
//         Disconnected  cannot listen there; with the system's error text
//         Exhausted     no more file descriptors
Result<std::unique_ptr<TcpTransport>> make_tcp_transport(const TcpSettings& settings, Hello self,
                                                         Mailbox& mailbox);

}  // namespace tenuto
