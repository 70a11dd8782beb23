// The loop of a wire over TCP: connections, who may speak over them, and how they are repaired.
//
// The engine belongs to no thread: whoever calls it owns it until the call returns, and only the
// waiting is done without (gather_events). The messages with a peer are the work of its Link; the
// engine moves bytes between links and sockets, opens connections, and knows when a peer is lost.
//
// The end that called connect() connects again after a break: at once, then after pauses that grow
// from 1 to 50 ms while nobody answers, and start again at 1 ms whenever the peer's host has; a
// first connection that is accepted and then closed is tried again after a pause that is partly
// drawn. The other end accepts this connection in place of the old one, when both name the same
// session, and meanwhile checks whether anybody listens at the peer's address. Where nobody does,
// the peer is dead (docs/decisions/076-a-wire-over-tcp.md).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mailbox.h"
#include "base/random.h"
#include "transport/address.h"
#include "transport/tcp/greeting.h"
#include "transport/tcp/link.h"
#include "transport/tcp/sockets.h"
#include "transport/tcp/strangers.h"
#include "transport/tcp/tally.h"
#include "transport/tcp/tcp.h"

namespace tenuto::tcp {

// What an engine works with; all of it outlives the engine.
struct EngineParts {
  Mailbox& mailbox;
  Sockets& sockets;
  Tally& tally;
  Entropy entropy = fill_random;
};

// One worker's end of all its connections. One call at a time; from which thread does not matter.
class Engine {
 public:
  // What is written to one connection before the others have their turn.
  static constexpr size_t kBytesInATurn = 1 << 20;

  Engine(const TcpSettings& settings, Hello self, EngineParts parts);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Listens. All other calls require that this returned ok.
  Status open();
  // "host:port" that peers connect to, after open().
  const std::string& address() const { return address_; }

  // Does one turn of the loop: writes, acts on limits, waits for something to happen, `limit` at
  // most, and reads.
  void turn(Duration limit);

  // The parts of a turn, for callers that give the engine away while they wait. work() writes and
  // acts on limits; it returns the moment until which the caller may wait. It writes about
  // `most_bytes` to a connection at most; if more is to be written, the moment is zero.
  Duration work(size_t most_bytes = kBytesInATurn);
  // Waits until that moment and appends what has happened. Touches nothing that the calls below or
  // work() touch.
  void gather_events(Duration until, std::vector<SocketEvent>& events) const;
  // Reads where something has happened, and empties the list.
  void handle_events(std::vector<SocketEvent>& events);

  // The calls of Transport; each is answered through the mailbox.
  void connect(WorkerId peer, const std::string& name, const SocketAddress& to, Ticket ticket);
  void send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp, Ticket ticket);
  void recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Taker taker, Ticket ticket);
  void drop(WorkerId peer);
  void break_connection(WorkerId peer, int64_t after);
  // Starts to close; work() carries it on until closed().
  void close(Duration limit);
  // True when no connection is left, after close().
  bool closed() const { return phase_ == Phase::Closed; }
  // How closing went, once closed().
  const Status& verdict() const { return verdict_; }

 private:
  enum class Phase : uint8_t { Running, Flushing, Parting, Closed };
  // Stranger: has been accepted and has proved nothing. Refused: gets its answer and is closed.
  // Attempt: this end connects. Probe: only looks whether anybody listens.
  enum class Role : uint8_t { Stranger, Refused, Attempt, Probe, Open };

  struct Connection {
    SocketId socket = kNoSocket;
    Role role = Role::Stranger;
    WorkerId peer;                       // of a stranger: none
    std::unique_ptr<Greeting> greeting;  // until it is over
    Duration limit{};                    // of a stranger
    bool readable = true, writable = true;
    Duration heard{};                        // when bytes last came
    bool reached = false;                    // of an attempt: the peer's host has accepted it
    Duration looked{};                       // when the kernel was last asked of it
    uint64_t repeated = 0;                   // packets, by then
    int64_t owed = 0;                        // repeated packets that no figures have told yet
    Duration busy{}, unread{};               // see Delivery; the same
    bool over = false;                       // no event comes any more: read to the end
    bool to_read = false, to_write = false;  // is in the list of that name
  };
  // A connection that this end is to open.
  struct Dial {
    Intent intent = Intent::Open;
    Ticket ticket = kNoTicket;
    std::string last_error;
    Duration since{}, limit{};          // of all attempts
    Duration retry{}, attempt_limit{};  // the next attempt, the end of this one
    SocketId attempt = kNoSocket;
    int tries = 0, refusals = 0;  // attempts in a row that reached no host, that found nobody
  };
  // A broken connection that is being repaired, and at the end that accepts the next one the checks
  // whether the peer still listens.
  struct Mending {
    Duration since{}, limit{};
    std::string why;
    Duration probe_at{}, probe_limit{};
    SocketId probe = kNoSocket;
    int tries = 0, refusals = 0;
  };
  // What is known of a peer's host while it has not acknowledged all that was written.
  struct Watch {
    uint64_t acknowledged = 0;      // bytes, at the last look
    Duration answered{};            // the last sign of life
    std::optional<uint64_t> asked;  // the round in which the host was asked for one
    SocketId probe = kNoSocket;     // by this
    // The first look since the connection's last answer that found packets sent again in vain.
    std::optional<Duration> in_vain;
  };
  struct Peer {
    Peer(const Engine& engine, WorkerId id);
    Link link;
    SocketId connection = kNoSocket;  // the open one
    bool dialled = false;             // this end called connect()
    uint64_t instance = 0;            // of the peer's wire; 0 = no session
    uint64_t session = 0;
    std::string name;                    // where it listens
    std::optional<SocketAddress> where;  // the same, if known without a name look-up
    std::unique_ptr<Dial> dial;
    std::optional<Mending> mending;
    std::optional<Watch> watch;
    std::optional<std::string> lost;
    int64_t break_after = -1;  // messages until the connection is broken by force; -1 = never
    bool has_session() const { return connection != kNoSocket || mending.has_value(); }
  };

  // engine.cc: connections and their bytes.
  Peer& peer_of(WorkerId id);
  Connection* find(SocketId socket);
  Connection& add(SocketId socket, Role role, WorkerId peer);
  void remove(SocketId socket, bool reset);
  void mark_readable(Connection& connection);
  void mark_writable(Connection& connection);
  void mark_output(const Peer& peer);
  void write(Connection& connection, size_t most_bytes);
  bool write_greeting(Connection& connection);
  void write_messages(Connection& connection, size_t most_bytes);
  void read(Connection& connection);
  void read_messages(Connection& connection);
  void read_greeting(Connection& connection);
  bool is_allowed(const SocketAddress& from) const;
  void accept_some();
  Duration tick_strangers(Duration now);
  Duration tick_links(Duration now);
  Duration tick_closing(Duration now);
  size_t unsent() const;
  void report(Ticket ticket, WorkerId peer, Status status);

  // engine_peers.cc: who is connected, who is lost.
  void on_step(Connection& connection, Greeting::Step step);
  void on_no_greeting(Connection& connection, const Io& io);
  void on_proven(Connection& connection);
  void on_welcomed(Connection& connection);
  bool repairs(const Peer& peer) const;
  bool accepts() const;
  Status judge(const Introduction& theirs);
  Status judge_open(const Introduction& theirs);
  Introduction introduction() const;
  void accept_session(Connection& connection, const Introduction& theirs);
  void attempt(WorkerId id, Peer& peer, Duration now);
  void attempt_failed(WorkerId id, const std::string& why, bool refused);
  void attempt_answered(WorkerId id, const Error& error);
  void end_dial(Peer& peer, WorkerId id, const std::optional<Error>& error);
  void become_open(Connection& connection, Peer& peer);
  Duration silence_of(const Io& io) const;
  void broken(WorkerId id, const std::string& why, Duration silent = {});
  void probe(WorkerId id, Peer& peer, Duration now);
  void probed(WorkerId id, bool refused);
  void host_lives(Peer& peer) const;
  void stop_mending(Peer& peer);
  void part(WorkerId id, const Error& error);
  void lose(WorkerId id, const std::string& why);
  void expel(WorkerId id, const std::string& why);
  void say_farewell(WorkerId id, Peer& peer);
  void parted(Connection& connection);
  Duration tick_peers(Duration now);
  Duration tick_dial(WorkerId id, Peer& peer, Duration now);
  Duration tick_mending(WorkerId id, Peer& peer, Duration now);

  // engine_watch.cc: what the kernel knows of a connection, and whose host is silent.
  void note_figures(Connection& connection);
  Duration look_pause() const;
  void watch(WorkerId id, Peer& peer, Duration now);
  void stop_watching(WorkerId id, Peer& peer);
  void host_answered(Peer& peer, Duration now);
  bool carries_nothing(Watch& watch, const Delivery& delivery, Duration now) const;
  Duration tick_watched(Duration now);
  void look(WorkerId id, Peer& peer, Duration now);
  void probe_ended(WorkerId id, SocketId socket, const Io& io);

  TcpSettings settings_;
  LinkSettings link_settings_;
  Hello self_;
  EngineParts parts_;
  Sockets& sockets_;
  uint64_t instance_ = 0;
  std::string address_;

  std::map<WorkerId, Peer> peers_;
  std::unordered_map<int32_t, std::unique_ptr<Connection>> connections_;
  Strangers strangers_;
  Random pauses_;               // draws parts of pauses; each worker draws others
  std::set<WorkerId> opening_;  // peers with a dial, or whose connection is being repaired
  std::set<WorkerId> late_;     // peers with sends that wait: for a late acknowledgement, a rate
  std::set<WorkerId> watched_;  // peers with a watch
  Duration next_look_{};        // at all of them
  uint64_t rounds_ = 0;         // how often events were handled
  std::vector<SocketId> to_read_, to_write_;
  std::vector<SocketId> turn_;  // those whose turn it is
  std::vector<SocketEvent> events_;
  std::vector<std::byte> scratch_;
  bool accepting_ = true;
  Phase phase_ = Phase::Running;
  Duration close_limit_{};
  Status verdict_ = ok();
};

}  // namespace tenuto::tcp
