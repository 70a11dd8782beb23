// The part of the UCX wire that lives on its communication thread: links, hand-shake, grants.
// Private to transport/; every call comes from that one thread, and nothing here locks, except the
// counters, which any thread may read.
#pragma once

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mailbox.h"
#include "transport/hello.h"
#include "transport/link_rate.h"
#include "transport/ucx.h"
#include "transport/ucx_frame.h"

namespace tenuto {

// What UCX may use: TCP between processes, and with device memory what reaches that.
inline constexpr const char* kHostTransports = "tcp";
inline constexpr const char* kDeviceTransports = "tcp,cuda_copy,cuda_ipc";

// Keeps UCX from talking, unless the environment has set how much it says.
void quiet_ucx();

// UcxCounters, countable on one thread and readable on another.
struct UcxTally {
  std::atomic<int64_t> eager_sent{0}, rendezvous_sent{0}, refused{0}, malformed{0},
      unknown_grants{0}, wake_ups{0};
};

// An address that the kernel understands.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// "host:port" or "[host]:port" resolved. Errors: Invalid.
Result<SocketAddress> resolve(const std::string& address);

// The network device that owns `host`. Errors: Invalid when none does.
Result<std::string> device_of(const std::string& host);

// Owns the UCX context, worker, listener and endpoints.
class UcxEngine {
 public:
  UcxEngine(const UcxSettings& settings, Hello self, Mailbox& mailbox, UcxTally& tally);
  ~UcxEngine();
  UcxEngine(const UcxEngine&) = delete;
  UcxEngine& operator=(const UcxEngine&) = delete;

  // Opens the context and listens. The engine is of use only when this is ok.
  Status open();
  // "host:port" that peers connect to, after open().
  const std::string& address() const { return address_; }
  // The descriptor that becomes readable when an armed engine has work.
  int descriptor() const { return descriptor_; }

  // One unit of UCX's work; false when there was none.
  bool progress() { return ucp_worker_progress(worker_) != 0; }
  // Asks for a wake-up; false: there is work right now.
  bool arm() { return ucp_worker_arm(worker_) != UCS_ERR_BUSY; }
  // What must not happen inside a callback: accepts, retries, time limits, closing. Returns the
  // moment of the next limit, or Duration::max().
  Duration tick();

  // The calls of Transport; each is answered through the mailbox.
  void connect(WorkerId peer, const std::string& name, const SocketAddress& to, Ticket ticket);
  void send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp, Ticket ticket);
  void recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket);
  void drop(WorkerId peer);
  // Starts to close; tick() carries it on until closed().
  void close(Duration limit);
  // True when no endpoint is left, after close().
  bool closed() const { return phase_ == Phase::Closed; }
  // How closing went, once closed().
  const Status& verdict() const { return verdict_; }

 private:
  enum class Phase : uint8_t { Running, Flushing, Parting, Ending, Closed };
  // Accepted: awaits a hello. Greeting: awaits a welcome. Parted: the peer said bye. Ended: the
  // endpoint is being closed.
  enum class LinkState : uint8_t { Accepted, Refused, Greeting, Open, Parted, Ended };

  struct Granted {
    uint64_t grant = 0, size = 0;
  };
  struct Link {
    UcxEngine* engine = nullptr;
    uint64_t id = 0, remote_id = 0;
    LinkState state = LinkState::Accepted;
    WorkerId peer;
    ucp_ep_h endpoint = nullptr;
    Duration limit = Duration::max();          // of Accepted and Refused
    std::map<Tag, Granted> granted;            // what the peer wants and has not got
    std::unordered_map<uint64_t, Tag> posted;  // what we granted
    LinkRate rate;
    uint64_t probe = 0;   // grant of the message that asked for a Got
    int64_t sending = 0;  // bytes in UCX's hands
    int requests = 0;     // UCX requests that have not completed
    bool said_bye = false, closing = false, closed = false;
    std::optional<Error> ended;  // what its calls end with
  };
  struct Sending {
    std::span<const std::byte> bytes;
    Stamp stamp;
    Ticket ticket;
  };
  struct Receiving {
    std::span<std::byte> bytes;
    Ticket ticket;
  };
  struct Peer {
    Link* link = nullptr;
    std::optional<std::string> lost;
    std::map<Tag, Sending> sends;       // not yet granted
    std::map<Tag, Receiving> receives;  // not yet arrived
  };
  struct Connecting {
    std::string name, last_error;
    SocketAddress to;
    Ticket ticket;
    Duration limit{}, retry{}, pause{};
    Link* attempt = nullptr;
  };
  // One request in UCX's hands. `bytes` is what a control frame keeps alive.
  struct Flight {
    enum class Kind : uint8_t { Control, Send, Receive } kind = Kind::Control;
    Link* link = nullptr;
    std::string bytes;
    DataHeader header;
    int64_t size = 0;
    Ticket ticket = kNoTicket;
  };

  // ucx_engine.cc: UCX itself.
  Status open_context();
  Status open_worker();
  Status listen();
  void set_handler(unsigned id, ucp_am_recv_callback_t callback, uint32_t flags);
  Link& add_link(LinkState state, WorkerId peer);
  void accept(ucp_conn_request_h request);
  void attempt(WorkerId peer, Connecting& connecting, Duration now);
  void control(Link& link, const Frame& frame);
  void transmit(Link& link, const Sending& sending, const Granted& granted);
  ucs_status_t arrived(const DataHeader& header, void* data, size_t length, bool rendezvous);
  ucs_status_t fetch(Link& link, const DataHeader& header, void* data, const Receiving& posted,
                     bool rendezvous);
  void landed(Flight* flight, ucs_status_t status);
  Duration tick_ended(Duration moment);
  void abandon_flights();

  // ucx_link.cc: what the two ends have agreed.
  void handle(const Frame& frame, ucp_ep_h reply);
  void on_hello(const Frame& frame, ucp_ep_h reply);
  void on_welcome(Link& link, const Frame& frame);
  void on_refuse(Link& link, const Frame& frame);
  void on_grant(Link& link, const Frame& frame);
  void on_mismatch(Link& link, const Frame& frame);
  void on_bye(Link& link);
  void become_open(Link& link);
  void grant(Link& link, const Tag& tag, const Receiving& posted);
  void pair(Link& link, const Tag& tag, const Sending& sending, const Granted& granted);
  void fail(Link& link, const std::string& why);
  void end(Link& link, const Error& error);
  void end_calls(Peer& peer, WorkerId id, const Error& error);
  void give_up(WorkerId peer, const Error& error);
  Duration tick_connecting(Duration now);
  Duration tick_links(Duration now);
  Duration tick_closing(Duration now);
  size_t unsent() const;
  void report(Ticket ticket, WorkerId peer, Status status);

  static void on_connection(ucp_conn_request_h request, void* self);
  static void on_error(void* link, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_control(void* self, const void* header, size_t header_length, void* data,
                                 size_t length, const ucp_am_recv_param_t* param);
  static ucs_status_t on_data(void* self, const void* header, size_t header_length, void* data,
                              size_t length, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* flight);
  static void on_received(void* request, ucs_status_t status, size_t length, void* flight);
  static void on_closed(void* request, ucs_status_t status, void* link);

  UcxSettings settings_;
  Hello self_;
  Mailbox& mailbox_;
  UcxTally& tally_;
  std::string address_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  int descriptor_ = -1;

  std::unordered_map<uint64_t, std::unique_ptr<Link>> links_;
  std::map<WorkerId, Peer> peers_;
  std::map<WorkerId, Connecting> connecting_;
  std::vector<ucp_conn_request_h> requests_;
  std::set<Flight*> flights_;
  int sends_in_flight_ = 0;
  uint64_t next_id_ = 1, next_grant_ = 1;
  Phase phase_ = Phase::Running;
  Duration close_limit_{}, last_close_{};
  Status verdict_ = ok();
};

}  // namespace tenuto
