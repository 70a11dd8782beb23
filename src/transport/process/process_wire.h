// The wire between processes: plain TCP sockets, or UCX where the wire has to reach an
// accelerator's memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/address_range.h"
#include "transport/tcp/tcp.h"
#include "transport/transport.h"
#include "transport/ucx/ucx.h"

namespace tenuto {

// Which wire connects the processes. Automatic: UCX if buffers lie in an accelerator's memory, else
// TCP.
enum class WireChoice : uint8_t { Automatic, Tcp, Ucx };

// The settings of a worker's wire, whichever it is. All processes that connect to each other must
// have the same wire.
struct ProcessWireSettings {
  WireChoice choice = WireChoice::Automatic;
  std::string device;                     // network device ("lo", "eth0"); empty = listen_host's
  std::string listen_host = "127.0.0.1";  // an address of this machine; port 0 = any free one
  uint16_t listen_port = 0;
  std::string advertised_host;        // what peers connect to; empty = listen_host
  int32_t workers = 0;                // of the job, as far as known: how many may connect at once
  std::vector<AddressRange> allowed;  // over TCP: from where peers may connect; empty = anywhere
  std::shared_ptr<const Tls> tls;     // over TCP: the certificates; null = no encryption
  WireProgress progress = WireProgress::Event;               // over TCP
  std::shared_ptr<const std::atomic<int32_t>> workers_here;  // over TCP, see TcpSettings
  std::shared_ptr<const SendPace> pace;                      // over TCP, see TcpSettings
  Purpose (*purpose_of)(const Tag&) = nullptr;               // the same
  UcxProtocol protocol = UcxProtocol::Automatic;             // over UCX: how large messages travel
  // Buffers to send from and to receive into may lie in an accelerator's memory: only over UCX, and
  // only where ucx_device_memory() is true.
  bool device_memory = false;
  // True: a send ends only when the receiver has acknowledged the message (TcpSettings has more).
  bool sends_end_there = false;
  std::function<void()> on_thread;  // the wire's thread's first call; may be empty
  Duration connect_limit = std::chrono::seconds(10);  // of all attempts of one connect() together
  // How long repairing a broken connection may take, and how long a host may answer nothing while
  // something is awaited from it; after that the peer is lost.
  Duration mend_limit = kMendLimit;
};

// The choice of that name: "tcp", "ucx", or any other name for Automatic.
WireChoice wire_choice(const std::string& name);

// What a waiting worker does: "event", "auto" or "poll".
WireProgress wire_progress(const std::string& name);

// The wire that make_process_wire makes: Tcp or Ucx.
WireChoice chosen_wire(WireChoice choice, bool device_memory);

// Listens and starts the wire's thread, as make_tcp_transport or make_ucx_transport does.
//
// Errors: Invalid       as the wire says; device memory over TCP; UCX in a build without it
//         Disconnected  cannot listen there; with the system's error text
//         Exhausted     no more file descriptors
Result<std::unique_ptr<Transport>> make_process_wire(const ProcessWireSettings& settings,
                                                     Hello self, Mailbox& mailbox);

}  // namespace tenuto
