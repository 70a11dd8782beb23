// The wire between processes: UCX over TCP, event-driven, with its own communication thread.
//
// A receive sends its sender a small grant (tag, grant id, size); the sender pairs it with the send
// of that tag and answers with the bytes, which go straight into the posted buffer (rendezvous) or
// through one staging copy of UCX (eager). Rendezvous costs a hand-shake for each message, which
// on a slow link waits behind the bulk of the other direction; eager costs the copy, which only a
// fast link feels. LinkRate (transport/link_rate.h) holds the rule by which Automatic chooses.
//
// A send ends when the receiver has said that the message is there, or when its bytes are kept here
// for sending again: small messages are kept from the start, others when the word of their arrival
// takes long. So a connection may break at any moment (docs/decisions/013-broken-connections.md).
//
// Sources: M. Shamis et al., "UCX: an open source framework for HPC network APIs and beyond",
// HOTI 2015; the API reference of UCX 1.13.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace tenuto {

// How the bytes of a message travel.
enum class UcxProtocol : uint8_t {
  Automatic,   // by link and message
  Eager,       // pushed at once, copied once by the receiver
  Rendezvous,  // announced, then pulled into the posted buffer (0 bytes: eager)
};

// How long a peer may be out of reach, while something is awaited from it, before it is lost.
inline constexpr Duration kMendLimit = std::chrono::seconds(5);

// What a worker may choose about its wire.
struct UcxSettings {
  std::string device;                     // network device ("lo", "eth0"); empty = listen_host's
  std::string listen_host = "127.0.0.1";  // an address of this machine; port 0 = any free one
  uint16_t listen_port = 0;
  std::string advertised_host;  // what peers connect to; empty = listen_host
  UcxProtocol protocol = UcxProtocol::Automatic;
  // Bytes to send and to receive into may lie in an accelerator's memory (see ucx_device_memory):
  // messages go between it and the wire without the processor.
  bool device_memory = false;
  // A send ends when its message is at the receiver, however long that takes, instead of when its
  // bytes are kept here: for who counts the sends that are under way. Small messages end at once.
  bool sends_end_there = false;
  std::function<void()> on_thread;  // the communication thread's first call; may be empty
  Duration connect_limit = std::chrono::seconds(10);  // of all attempts of one connect() together
  Duration hello_limit = std::chrono::seconds(5);     // for a stranger to say who it is
  // For a broken connection to stand again; then the peer is lost. A network device that is reset
  // or a switch that learns its ports anew is back within about 3 s; a dead process is told from it
  // at once, because nobody listens there any more. Below the silence that ends a step. A peer
  // whose host answers nothing for so long, while something is awaited from it, is lost too.
  Duration mend_limit = kMendLimit;
  // Connections at a time of which it is not known who is there; more are refused.
  size_t most_strangers = 1024;
  // Messages that a peer may wait for while nobody here sends them; a peer with more is lost, since
  // what it asks for would take this end's memory without bound.
  size_t most_awaited = 1 << 20;
};

// What went over a wire and what was refused, since the start.
struct UcxCounters {
  int64_t eager_sent = 0, rendezvous_sent = 0;
  int64_t refused = 0;         // connections with a wrong hello, or with none in time
  int64_t malformed = 0;       // control messages that cannot be read or come out of turn
  int64_t unknown_grants = 0;  // messages and answers for a grant that is not open
  int64_t wake_ups = 0;        // of the communication thread: a quiet wire has none
  int64_t broken = 0;          // connections that broke and were worth mending
  int64_t sent_again = 0;      // messages, after such a break
  int64_t kept = 0;            // messages whose bytes were copied to end their send early
};

// A Transport that can be looked into.
class UcxTransport : public Transport {
 public:
  // Any thread.
  virtual UcxCounters counters() const = 0;
};

// Listens and starts the communication thread. A call that cannot be made (peer lost, name already
// in use) is answered through its ticket; only a call on a closed wire is refused at once
// (Cancelled/Call). connect() tries again with a growing pause while nobody listens there. The
// mailbox must outlive the transport.
//
// Errors: Invalid       no such device or host, a job or token of more than 1024 bytes
//         Disconnected  cannot listen there; UCX's own words
Result<std::unique_ptr<UcxTransport>> make_ucx_transport(const UcxSettings& settings, Hello self,
                                                         Mailbox& mailbox);

// The address of this machine by which it reaches `address` ("host:port", names too): what a wire
// whose peers are there listens at. Nothing is sent.
//
// Errors: Invalid  no such host, or no way to it
Result<std::string> host_towards(const std::string& address);

// Whether the host of `address` ("host:port" in numbers) answers a connection within the limit,
// with yes or no. True for what is no such address: there is nothing to be asked.
bool is_reachable(const std::string& address, Duration limit);

// Whether UCX can read and write CUDA memory here: it was built for it and there is a device.
// Opens and closes a context, some milliseconds.
bool ucx_device_memory();

// Version of the UCX library that is linked, for `tenuto doctor` and `--version`.
std::string ucx_version();

}  // namespace tenuto
