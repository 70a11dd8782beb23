// The part of the UCX wire that runs on its communication thread: links, hand-shake, grants.
// Private to transport/; every call comes from that one thread, and nothing here locks, except
// UcxTally, which any thread may read.
#pragma once

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mailbox.h"
#include "transport/hello.h"
#include "transport/ucx/address.h"
#include "transport/ucx/frame.h"
#include "transport/ucx/link_rate.h"
#include "transport/ucx/ucx.h"

namespace tenuto {

// The transports that UCX may use: TCP; with device memory, also those that copy from and to it.
inline constexpr const char* kHostTransports = "tcp";
inline constexpr const char* kDeviceTransports = "tcp,cuda_copy,cuda_ipc";

// Turns off UCX's log, unless the environment sets its level.
void quiet_ucx();

// UcxCounters that one thread counts and another may read, and the repaired connections.
struct UcxTally {
  std::atomic<int64_t> eager_sent{0}, rendezvous_sent{0}, refused{0}, malformed{0},
      unknown_grants{0}, wake_ups{0}, broken{0}, sent_again{0}, kept{0};
  std::mutex mutex;  // guards repairs; nothing else is locked while it is held
  std::vector<Repair> repairs;
};

// Owns the UCX context, worker, listener and endpoints.
class UcxEngine {
 public:
  UcxEngine(const UcxSettings& settings, Hello self, Mailbox& mailbox, UcxTally& tally);
  ~UcxEngine();
  UcxEngine(const UcxEngine&) = delete;
  UcxEngine& operator=(const UcxEngine&) = delete;

  // Opens the context and listens. All other calls require that this returned ok.
  Status open();
  // "host:port" that peers connect to, after open().
  const std::string& address() const { return address_; }
  // The descriptor that becomes readable when an armed engine has work.
  int descriptor() const { return descriptor_; }

  // Does one unit of UCX's work; false when there was none.
  bool progress() { return ucp_worker_progress(worker_) != 0; }
  // Asks for a wake-up; false: there is work right now.
  bool arm() { return ucp_worker_arm(worker_) != UCS_ERR_BUSY; }
  // Does what must not be done inside a callback of UCX: accepts, retries, time limits, closing.
  // Returns the moment of the next limit, or Duration::max().
  Duration tick();

  // The calls of Transport; each is answered through the mailbox.
  void connect(WorkerId peer, const std::string& name, const SocketAddress& to, Ticket ticket);
  void send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp, Ticket ticket);
  void recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Taker taker, Ticket ticket);
  void drop(WorkerId peer);
  void break_connection(WorkerId peer, int64_t after);
  // Starts to close; tick() carries it on until closed().
  void close(Duration limit);
  // True when no endpoint is left, after close().
  bool closed() const { return phase_ == Phase::Closed; }
  // How closing went, once closed().
  const Status& verdict() const { return verdict_; }

 private:
  // Messages up to this size are copied at once: that costs less than an acknowledgement of each.
  static constexpr size_t kKeptMessage = 16 << 10;

  enum class Phase : uint8_t { Running, Flushing, Parting, Ending, Closed };
  // Accepted: awaits the peer's hello. Waiting: has received a hello that replaces a broken link,
  // which is not closed yet. Greeting: has sent a hello and awaits the welcome. Parted: the peer
  // has sent bye. Ended: the endpoint is being closed.
  enum class LinkState : uint8_t { Accepted, Refused, Waiting, Greeting, Open, Parted, Ended };

  struct Granted {
    uint64_t grant = 0, size = 0;
  };
  struct Link {
    UcxEngine* engine = nullptr;
    uint64_t id = 0, remote_id = 0;
    LinkState state = LinkState::Accepted;
    WorkerId peer;
    ucp_ep_h endpoint = nullptr;
    Duration limit = Duration::max();    // while Accepted, Refused or reconnecting
    std::map<Tag, Granted> granted;      // the peer's receives that have no send here yet
    std::vector<uint64_t> arrived;       // grants whose arrival is still to be acknowledged
    bool slow_acknowledgements = false;  // acknowledgements take long: copy bytes at once
    LinkRate rate;
    uint64_t probe = 0;   // grant of the message that asked for a Got
    int64_t sending = 0;  // bytes in UCX's hands
    int requests = 0;     // UCX requests that have not completed
    bool said_bye = false, closing = false, closed = false;
    bool broken = false;         // was open; its unfinished messages go on over the next link
    Duration return_limit{};     // until then a broken link waits for UCX's requests to complete
    std::optional<Error> ended;  // the error that its calls end with
  };
  struct Sending {
    std::span<const std::byte> bytes;
    Stamp stamp;
    Ticket ticket = kNoTicket;
  };
  // A message that was handed to UCX and is not known to have arrived.
  struct Sent {
    Sending sending;         // its ticket is kNoTicket once it has been posted
    uint64_t link = 0;       // the link that it went over last
    bool in_flight = false;  // UCX still reads the bytes
    bool got = false;        // acknowledged while still in flight
    bool kept = false;       // `own` holds the bytes
    std::shared_ptr<std::byte[]> own;
    Duration due{};  // after it the acknowledgement is late; set when UCX is done
  };
  struct Receiving {
    std::span<std::byte> bytes;
    Taker taker;
    Ticket ticket;
    uint64_t grant = 0;
    bool fetching = false;  // UCX writes the bytes
  };
  // A broken connection that is being repaired.
  struct Mending {
    Duration since{}, limit{};
    std::string why;
    Duration probe_at{}, pause{};  // the next check whether the peer still listens
    int probe = -1;                // the check's socket while it is being connected
    int refused = 0;               // checks in a row that found nobody
  };
  // Checks whether a peer can still be reached while something is awaited from it.
  struct Watch {
    bool awaits = false, asked = false;
    Duration since{};         // nothing has come from it since then
    Duration probe_at{};      // the next attempt to connect to its host; zero = none so far
    Duration limit{};         // for an answer to any of these attempts
    std::vector<int> probes;  // their sockets
  };
  struct Peer {
    Link* link = nullptr;
    bool fresh = false;  // something has come from it since the last check
    Watch watch;
    std::optional<std::string> lost;
    std::map<Tag, Sending> sends;               // not yet granted
    std::unordered_map<uint64_t, Sent> sent;    // by grant
    std::map<Tag, Receiving> receives;          // not yet arrived
    std::unordered_map<uint64_t, Tag> granted;  // the tags of `receives`, by grant
    bool dialled = false;                       // this end called connect()
    uint64_t instance = 0;                      // number of the peer's wire; 0 = no connection
    std::string name;                           // where it listens
    std::optional<SocketAddress> where;         // the same, if known without a name look-up
    std::optional<Mending> mending;
    int64_t break_after = -1;  // messages until the connection is broken by force; -1 = never
  };
  // A message that waits for its acknowledgement.
  struct Late {
    WorkerId peer;
    uint64_t grant = 0;
  };
  struct Connecting {
    std::string name, last_error;
    SocketAddress to;
    Ticket ticket;
    Duration limit{}, retry{}, pause{};
    Link* attempt = nullptr;
    uint64_t resumes = 0;   // instance of the peer whose connection broke; 0 = a new connection
    bool farewell = false;  // only tells the peer that its connection was dropped
    bool mends() const { return resumes != 0 && !farewell; }
  };
  // One request that UCX has not completed. `bytes` keeps the bytes of a control frame alive.
  struct Flight {
    enum class Kind : uint8_t { Control, Send, Receive } kind = Kind::Control;
    Link* link = nullptr;
    std::string bytes;
    std::shared_ptr<std::byte[]> own;  // what UCX sends from, when the bytes are kept
    DataHeader header;
    int64_t size = 0;
    Tag tag;                      // of a receive
    std::span<std::byte> buffer;  // of a receive
    Taker taker;
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
  void transmit(Link& link, uint64_t grant, Sent& sent);
  ucs_status_t arrived(const DataHeader& header, void* data, size_t length, bool rendezvous);
  ucs_status_t fetch(Link& link, const DataHeader& header, void* data, const Tag& tag,
                     Receiving& posted, bool rendezvous);
  void landed(Flight* flight, ucs_status_t status);
  void landed_send(const Flight& flight, ucs_status_t status);
  void landed_receive(const Flight& flight, ucs_status_t status);
  Duration tick_ended(Duration moment);
  void abandon_flights();

  // ucx_link.cc: the protocol between the two ends.
  void handle(const Frame& frame, ucp_ep_h reply);
  void on_hello(const Frame& frame, ucp_ep_h reply);
  void on_welcome(Link& link, const Frame& frame);
  void on_refuse(Link& link, const Frame& frame);
  void on_grant(Link& link, const Frame& frame);
  void on_mismatch(Link& link, const Frame& frame);
  void on_got(Link& link, const std::vector<uint64_t>& arrived);
  void on_bye(Link& link);
  void answer_ask(Link& link);
  Status judge_hello(const Frame& frame);
  void welcome(Link& link);
  void become_open(Link& link);
  void grant(Link& link, const Tag& tag, const Receiving& posted);
  void pair(Link& link, const Tag& tag, const Sending& sending, const Granted& granted);
  void here(Link& link, const Tag& tag, const DataHeader& header);
  void say_got(Link& link);
  Error parted_error(const Link& link) const;
  void fail(Link& link, const std::string& why);
  void end(Link& link, const Error& error);
  void end_calls(Peer& peer, WorkerId id, const Error& error);
  void give_up(WorkerId peer, const Error& error);
  Duration tick_connecting(Duration now);
  Duration tick_links(Duration now);
  Duration tick_closing(Duration now);
  size_t unsent() const;

  // ucx_mend.cc: what outlives a connection, and its repair.
  void break_link(Link& link, const std::string& why);
  void lose(WorkerId id, const std::string& why);
  void part(WorkerId id, const Error& error);
  void stop_mending(WorkerId id, Peer& peer);
  void notify_dropped_peer(WorkerId id, const Peer& peer, uint64_t instance);
  void end_farewell(WorkerId id);
  Status on_farewell(WorkerId id);
  Status judge_resumption(const Frame& frame) const;
  void on_resumption(Link& link);
  void on_all_granted(Link& link);
  void send_again(Link& link, const Frame& frame, Sent& sent);
  void finish_sent(Peer& peer, WorkerId id, uint64_t grant);
  void sent_left(Peer& peer, Link& link, uint64_t grant, Sent& sent);
  void keep(Sent& sent);
  bool is_held_by_ucx(WorkerId peer) const;
  void mended(Link& link);
  Duration tick_mending(Duration now);
  static bool found_nobody(const SocketAddress& where, Mending& mending, Duration now);
  Duration tick_late(Duration now);

  // ucx_watch.cc: whether a silent peer can still be reached.
  static void stop_watching(Peer& peer);
  static bool host_answers(Watch& watch);
  bool watch_peer(Peer& peer, Duration moment, Duration& next);
  Duration tick_watching(Duration moment);
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
  uint16_t port_ = 0;  // at which it listens
  int descriptor_ = -1;

  std::unordered_map<uint64_t, std::unique_ptr<Link>> links_;
  std::map<WorkerId, Peer> peers_;
  std::map<WorkerId, Connecting> connecting_;
  std::vector<ucp_conn_request_h> requests_;
  std::set<Flight*> flights_;
  int sends_in_flight_ = 0;
  uint64_t next_id_ = 1, next_grant_ = 1, instance_ = 1;
  int mending_ = 0;                     // peers whose connection is broken
  std::multimap<Duration, Late> late_;  // by the moment when their bytes are copied
  Phase phase_ = Phase::Running;
  Duration close_limit_{}, last_close_{};
  Status verdict_ = ok();
};

}  // namespace tenuto
