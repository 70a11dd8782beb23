// The wire between processes: UCX over TCP, event-driven, with its own communication thread.
//
// For each posted receive the receiver sends a small grant (tag, grant id, size). The sender pairs
// it with the send of that tag and sends the bytes, straight into the posted buffer (rendezvous) or
// through one staging copy of UCX (eager). Rendezvous costs a hand-shake for each message, which
// on a slow link waits behind the bulk data of the other direction; eager costs the copy, which
// matters only on a fast link. LinkRate (transport/ucx/link_rate.h) has the rule for Automatic.
//
// A send ends when the receiver has acknowledged the message, or when its bytes have been copied
// here to be sent again if needed: small messages are copied at once, others when the
// acknowledgement takes long. So a connection may break at any moment and nothing is lost
// (docs/decisions/013-broken-connections.md).
//
// Sources: M. Shamis et al., "UCX: an open source framework for HPC network APIs and beyond",
// HOTI 2015; the API reference of UCX 1.13.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "transport/transport.h"

namespace tenuto {

// How the bytes of a message travel.
enum class UcxProtocol : uint8_t {
  Automatic,   // by link and message
  Eager,       // pushed at once, copied once by the receiver
  Rendezvous,  // announced, then pulled into the posted buffer (0 bytes: eager)
};

// The settings of a worker's wire.
struct UcxSettings {
  std::string device;                     // network device ("lo", "eth0"); empty = listen_host's
  std::string listen_host = "127.0.0.1";  // an address of this machine; port 0 = any free one
  uint16_t listen_port = 0;
  std::string advertised_host;  // what peers connect to; empty = listen_host
  UcxProtocol protocol = UcxProtocol::Automatic;
  // Buffers to send from and to receive into may lie in an accelerator's memory (see
  // ucx_device_memory): messages go between it and the wire without the processor.
  bool device_memory = false;
  // True: a send ends only when the receiver has acknowledged the message, and not earlier by a
  // copy of its bytes. For callers that limit the number of sends under way. Small messages are
  // still copied, so their sends end at once.
  bool sends_end_there = false;
  std::function<void()> on_thread;  // the communication thread's first call; may be empty
  Duration connect_limit = std::chrono::seconds(10);  // of all attempts of one connect() together
  Duration hello_limit = std::chrono::seconds(5);     // for a new connection to send its hello
  // How long repairing a broken connection may take; after that the peer is lost. A network device
  // that is reset or a switch that learns its ports anew is back within about 3 s; a dead process
  // is recognized at once, because nobody listens there any more. Keep it below
  // `network.silence_seconds`, after which a step without progress ends the run. A peer is also
  // lost when something is awaited from it and its host answers nothing for this long.
  Duration mend_limit = kMendLimit;
  // The most connections at a time whose hello has not come yet; more are refused.
  size_t most_strangers = 1024;
  // The most grants of a peer that may wait here for their send. A peer with more is lost, because
  // its grants would take this end's memory without bound.
  size_t most_awaited = 1 << 20;
};

// Counts of what a wire has sent, refused and repaired since the start.
struct UcxCounters {
  int64_t eager_sent = 0, rendezvous_sent = 0;
  int64_t refused = 0;         // connections with a wrong hello, or with none in time
  int64_t malformed = 0;       // control messages that cannot be read or are not expected
  int64_t unknown_grants = 0;  // messages and answers for a grant that is not open
  int64_t wake_ups = 0;        // of the communication thread: a quiet wire has none
  int64_t broken = 0;          // open connections that broke, which the wire tries to repair
  int64_t sent_again = 0;      // messages, after such a break
  int64_t kept = 0;            // large messages that were copied to end their send early
};

// A Transport with counters.
class UcxTransport : public Transport {
 public:
  // Any thread.
  virtual UcxCounters counters() const = 0;
};

// Listens and starts the communication thread. A call that cannot be made (peer lost, tag already
// in use) is answered through its ticket. Refused at once are only calls on a closed wire
// (Cancelled/Call) and connect() to an address that cannot be resolved (Invalid). connect() tries
// again with a growing pause while nobody listens there. The mailbox must outlive the transport.
//
// Errors: Invalid       no such device or host, a job or token of more than 1024 bytes, a worker
//                       number below 0
//         Disconnected  cannot listen there; with UCX's error text
//         Exhausted     no more file descriptors
Result<std::unique_ptr<UcxTransport>> make_ucx_transport(const UcxSettings& settings, Hello self,
                                                         Mailbox& mailbox);

// Whether UCX can read and write CUDA memory here: it was built with CUDA and finds a device.
// Opens and closes a context, which takes some milliseconds.
bool ucx_device_memory();

// Version of the UCX library that is linked, for `tenuto doctor` and `--version`; empty in a build
// without UCX.
std::string ucx_version();

// The transports that UCX opens here ("tcp", "rc_verbs"); none in a build without UCX. Opens and
// closes a context, which takes some milliseconds.
std::set<std::string> ucx_transports();

}  // namespace tenuto
