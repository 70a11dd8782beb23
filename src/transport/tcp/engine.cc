#include "transport/tcp/engine.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/text.h"
#include "transport/hello.h"

namespace tenuto::tcp {

namespace {

// How often one connection is read, and how many strangers are accepted, in a turn.
constexpr int kReadsInATurn = 8;
constexpr int kAcceptsInATurn = 8;
// The most that is read behind a message (Link::most_behind).
constexpr size_t kScratch = 16 << 10;

}  // namespace

Engine::Peer::Peer(const Engine& engine, WorkerId id)
    : link(engine.self_.self, id, engine.link_settings_, engine.parts_.tally,
           engine.parts_.mailbox) {}

Engine::Engine(const TcpSettings& settings, Hello self, EngineParts parts)
    : settings_(settings),
      link_settings_{settings.sends_end_there, settings.most_awaited, settings.pace,
                     settings.purpose_of},
      self_(std::move(self)),
      parts_(std::move(parts)),
      sockets_(parts_.sockets),
      pauses_(static_cast<uint64_t>(self_.self.value)),
      scratch_(kScratch) {
  while (instance_ == 0) parts_.entropy(std::as_writable_bytes(std::span(&instance_, 1)));
}

Engine::~Engine() {
  while (!connections_.empty()) remove(connections_.begin()->second->socket, true);
}

Status Engine::open() {
  const auto address = sockets_.listen(settings_.listen_host, settings_.listen_port);
  if (!address.ok()) return address.error();
  address_ = address.value();
  if (settings_.advertised_host.empty()) return ok();
  const bool bare_v6 = settings_.advertised_host.find(':') != std::string::npos &&
                       settings_.advertised_host.front() != '[';
  const std::string host =
      bare_v6 ? cat("[", settings_.advertised_host, "]") : settings_.advertised_host;
  address_ = cat(host, address_.substr(address_.rfind(':')));
  return ok();
}

void Engine::turn(Duration limit) {
  const Duration until = work();
  const Duration moment = sockets_.now();
  gather_events(limit < until - moment ? moment + limit : until, events_);
  handle_events(events_);
}

Duration Engine::work(size_t most_bytes) {
  turn_.swap(to_write_);
  for (const SocketId each : turn_) {
    Connection* connection = find(each);
    if (connection == nullptr) continue;
    connection->to_write = false;
    write(*connection, most_bytes);
  }
  turn_.clear();
  // Behind the writing and the looks, which may find a connection broken.
  const Duration now = sockets_.now();
  Duration next = tick_watched(now);
  next = std::min({next, tick_strangers(now), tick_peers(now), tick_links(now)});
  next = std::min(next, tick_closing(now));
  const bool busy = !to_write_.empty() || !to_read_.empty() || accepting_;
  return busy || closed() ? Duration{} : next;
}

void Engine::gather_events(Duration until, std::vector<SocketEvent>& events) const {
  Duration limit = Duration::max();
  if (until != limit) limit = std::max(until - sockets_.now(), Duration::zero());
  sockets_.wait(limit, events);
}

void Engine::handle_events(std::vector<SocketEvent>& events) {
  ++rounds_;
  for (const SocketEvent& event : events) {
    if (event.socket == kNoSocket) {
      accepting_ = true;
      continue;
    }
    Connection* connection = find(event.socket);
    if (connection == nullptr) continue;
    connection->over |= event.over;
    if (connection->role == Role::Probe && event.writable && !event.over) {
      probe_ended(connection->peer, event.socket, {Io::Kind::Moved, 0, false, {}});
      continue;  // it was accepted
    }
    connection->reached |= event.writable && !event.over;
    if (event.readable) mark_readable(*connection);
    if (event.writable) {
      connection->writable = true;
      mark_writable(*connection);
    }
  }
  events.clear();
  turn_.swap(to_read_);
  for (const SocketId each : turn_) {
    Connection* connection = find(each);
    if (connection == nullptr) continue;
    connection->to_read = false;
    read(*connection);
    // What has not been read to its end goes on in the next turn.
    connection = find(each);
    if (connection != nullptr && connection->readable) mark_readable(*connection);
  }
  turn_.clear();
  if (accepting_) accept_some();
}

void Engine::report(Ticket ticket, WorkerId peer, Status status) {
  Done done;
  done.ticket = ticket;
  done.peer = peer;
  done.status = std::move(status);
  parts_.mailbox.post(std::move(done));
}

Engine::Peer& Engine::peer_of(WorkerId id) {
  return peers_.try_emplace(id, *this, id).first->second;
}

Engine::Connection* Engine::find(SocketId socket) {
  const auto found = connections_.find(static_cast<int32_t>(socket));
  return found == connections_.end() ? nullptr : found->second.get();
}

Engine::Connection& Engine::add(SocketId socket, Role role, WorkerId peer) {
  auto& place = connections_[static_cast<int32_t>(socket)];
  place = std::make_unique<Connection>();
  place->socket = socket;
  place->role = role;
  place->peer = peer;
  mark_readable(*place);
  return *place;
}

void Engine::remove(SocketId socket, bool reset) {
  const auto found = connections_.find(static_cast<int32_t>(socket));
  if (found == connections_.end()) return;
  if (found->second->role == Role::Stranger || found->second->role == Role::Refused) {
    strangers_.remove(socket);
  }
  connections_.erase(found);
  sockets_.close(socket, reset);
}

void Engine::mark_readable(Connection& connection) {
  connection.readable = true;
  if (!std::exchange(connection.to_read, true)) to_read_.push_back(connection.socket);
}

void Engine::mark_writable(Connection& connection) {
  if (!std::exchange(connection.to_write, true)) to_write_.push_back(connection.socket);
}

// The peer's link may have something to write.
void Engine::mark_output(const Peer& peer) {
  Connection* connection = find(peer.connection);
  if (connection != nullptr && connection->writable) mark_writable(*connection);
}

void Engine::write(Connection& connection, size_t most_bytes) {
  if (connection.greeting != nullptr && !write_greeting(connection)) return;
  if (connection.role == Role::Open) write_messages(connection, most_bytes);
}

// Writes what the greeting has to say. True when the connection is there and all has been written.
bool Engine::write_greeting(Connection& connection) {
  while (!connection.greeting->output().empty()) {
    if (!connection.writable) return false;
    const std::span<const std::byte> from = connection.greeting->output();
    const Io io = sockets_.write(connection.socket, std::span(&from, 1));
    if (io.kind == Io::Kind::Moved) {
      connection.greeting->written(io.count);
      connection.writable = io.more;
    } else if (io.kind == Io::Kind::Blocked) {
      connection.writable = false;
    } else {
      // Reading tells why, perhaps behind an answer that has come.
      connection.writable = false;
      mark_readable(connection);
    }
  }
  if (connection.role == Role::Refused) {
    remove(connection.socket, false);
    return false;
  }
  if (connection.role == Role::Open) connection.greeting.reset();
  return true;
}

void Engine::write_messages(Connection& connection, size_t most_bytes) {
  const WorkerId id = connection.peer;
  Peer& peer = peer_of(id);
  size_t total = 0;
  while (connection.writable) {
    const auto from = peer.link.gather(settings_.pace ? sockets_.now() : Duration{});
    if (from.empty()) {
      if (peer.link.held_until() != Duration::max()) late_.insert(id);
      return;
    }
    if (total >= most_bytes) return mark_writable(connection);
    const Io io = sockets_.write(connection.socket, from);
    if (io.kind == Io::Kind::Blocked) connection.writable = false;
    if (io.kind == Io::Kind::Blocked) continue;
    if (io.kind != Io::Kind::Moved) return broken(id, io.why, silence_of(io));
    const Duration now = sockets_.now();
    if (!peer.watch) watch(id, peer, now);
    const int64_t before = peer.link.messages_written();
    peer.link.written(io.count, now);
    if (peer.link.waits_for_acknowledgements()) late_.insert(id);
    connection.writable = io.more;
    total += io.count;
    if (peer.break_after <= 0) continue;
    peer.break_after -= std::min(peer.break_after, peer.link.messages_written() - before);
    if (peer.break_after == 0) return broken(id, "an injected fault broke it");
  }
}

void Engine::read(Connection& connection) {
  if (connection.role == Role::Open) return read_messages(connection);
  if (connection.role == Role::Probe) {
    std::byte ignored{};
    const std::span<std::byte> to(&ignored, 1);
    const Io io = sockets_.read(connection.socket, std::span(&to, 1));
    if (io.kind == Io::Kind::Blocked) {
      connection.readable = false;
      return;
    }
    return probe_ended(connection.peer, connection.socket, io);
  }
  if (connection.role == Role::Refused) {
    connection.readable = false;
    return;
  }
  read_greeting(connection);
}

void Engine::read_messages(Connection& connection) {
  const WorkerId id = connection.peer;
  Peer& peer = peer_of(id);
  for (int i = 0; i < kReadsInATurn; ++i) {
    const std::span<std::byte> landing = peer.link.landing();
    const std::span<std::byte> behind = std::span(scratch_).first(peer.link.most_behind());
    const std::array<std::span<std::byte>, 2> both{landing, behind};
    const Io io =
        sockets_.read(connection.socket, std::span(both).subspan(landing.empty() ? 1 : 0));
    if (io.kind == Io::Kind::Blocked) {
      connection.readable = false;
      return;
    }
    // Behind Bye, which it has read then.
    if (io.kind == Io::Kind::Ended && peer.link.has_said_bye()) return parted(connection);
    if (io.kind == Io::Kind::Ended) return broken(id, "it closed the connection");
    if (io.kind != Io::Kind::Moved) return broken(id, io.why, silence_of(io));
    connection.heard = sockets_.now();
    const size_t landed = std::min(io.count, landing.size());
    const Status status = peer.link.take(landed, behind.first(io.count - landed), connection.heard);
    if (!status.ok()) {
      ++parts_.tally.malformed;
      return expel(id, status.error().message);
    }
    mark_output(peer);
    if (peer.link.parted()) return parted(connection);
    note_figures(connection);
    if (!io.more && !connection.over) {
      connection.readable = false;
      return;
    }
  }
}

void Engine::read_greeting(Connection& connection) {
  for (int i = 0; i < kReadsInATurn; ++i) {
    const std::span<std::byte> landing = connection.greeting->landing();
    const Io io = sockets_.read(connection.socket, std::span(&landing, 1));
    if (io.kind == Io::Kind::Blocked) {
      connection.readable = false;
      return;
    }
    if (io.kind != Io::Kind::Moved) {
      return on_no_greeting(connection, io);
    }
    connection.greeting->bind(sockets_.binding(connection.socket));
    const Greeting::Step step = connection.greeting->take(io.count);
    if (step != Greeting::Step::More) return on_step(connection, step);
    mark_writable(connection);
  }
}

bool Engine::is_allowed(const SocketAddress& from) const {
  const auto& allowed = settings_.allowed;
  return allowed.empty() ||
         std::any_of(allowed.begin(), allowed.end(),
                     [&](const AddressRange& range) { return range.contains(from.storage); });
}

void Engine::accept_some() {
  for (int i = 0; i < kAcceptsInATurn; ++i) {
    SocketAddress from;
    const SocketId socket = sockets_.accept(from);
    if (socket == kNoSocket) {
      accepting_ = false;
      return;
    }
    const bool open = accepts();
    if (!open || !is_allowed(from)) {
      if (open) ++parts_.tally.turned_away;
      sockets_.close(socket, true);
      continue;
    }
    Connection& connection = add(socket, Role::Stranger, {});
    strangers_.add(socket, address_bytes(from.storage).value_or(Strangers::Host{}));
    if (strangers_.size() > std::max<size_t>(settings_.most_strangers, 1)) {
      ++parts_.tally.turned_away;
      remove(strangers_.next_to_go(), true);
    }
    connection.limit = sockets_.now() + settings_.hello_limit;
    connection.greeting = std::make_unique<Greeting>(self_.token, parts_.entropy);
    mark_writable(connection);
  }
}

// Closes the connections of strangers that have not proved anything in time, or do not take their
// refusal.
Duration Engine::tick_strangers(Duration now) {
  while (!strangers_.empty()) {
    const Connection* oldest = find(strangers_.oldest());
    if (oldest->limit > now) return oldest->limit;
    if (oldest->role == Role::Stranger) ++parts_.tally.refused;
    remove(oldest->socket, true);
  }
  return Duration::max();
}

Duration Engine::tick_links(Duration now) {
  Duration next = Duration::max();
  for (auto each = late_.begin(); each != late_.end();) {
    Peer& peer = peer_of(*each);
    Duration due = peer.link.tick(now);
    if (peer.link.held_until() <= now) {
      mark_output(peer);
    } else {
      due = std::min(due, peer.link.held_until());
    }
    next = std::min(next, due);
    each = due == Duration::max() ? late_.erase(each) : std::next(each);
  }
  return next;
}

void Engine::connect(WorkerId id, const std::string& name, const SocketAddress& to, Ticket ticket) {
  if (phase_ != Phase::Running) return report(ticket, id, closed_error(self_.self));
  if (id == self_.self) return report(ticket, id, invalid("a worker connects to itself"));
  Peer& peer = peer_of(id);
  const bool leaves = peer.dial != nullptr && peer.dial->intent == Intent::Drop;
  if (peer.has_session() || (peer.dial != nullptr && !leaves)) {
    return report(ticket, id,
                  invalid(cat("worker ", self_.self, " and worker ", id,
                              " are already connected: of a pair exactly one end connects")));
  }
  end_dial(peer, id, std::nullopt);
  peer.name = name;
  peer.where = to;
  peer.dialled = true;
  peer.instance = 0;
  parts_.entropy(std::as_writable_bytes(std::span(&peer.session, 1)));
  peer.dial = std::make_unique<Dial>();
  peer.dial->ticket = ticket;
  peer.dial->since = peer.dial->retry = sockets_.now();
  peer.dial->limit = peer.dial->since + settings_.connect_limit;
  opening_.insert(id);
}

void Engine::send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
                  Ticket ticket) {
  if (phase_ != Phase::Running) return report(ticket, to, closed_error(self_.self));
  Peer& peer = peer_of(to);
  if (peer.lost) return report(ticket, to, lost_error(to, *peer.lost));
  peer.link.send(tag, bytes, stamp, ticket);
  mark_output(peer);
}

void Engine::recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Taker taker, Ticket ticket) {
  if (phase_ != Phase::Running) return report(ticket, from, closed_error(self_.self));
  Peer& peer = peer_of(from);
  if (peer.lost) return report(ticket, from, lost_error(from, *peer.lost));
  peer.link.recv(tag, bytes, taker, ticket);
  mark_output(peer);
}

void Engine::break_connection(WorkerId id, int64_t after) {
  if (phase_ != Phase::Running) return;
  Peer& peer = peer_of(id);
  if (after > 0) {
    peer.break_after = after;
  } else if (peer.connection != kNoSocket) {
    broken(id, "an injected fault broke it");
  }
}

size_t Engine::unsent() const {
  size_t count = 0;
  for (const auto& [id, peer] : peers_) count += peer.link.unsent();
  return count;
}

void Engine::close(Duration limit) {
  if (phase_ != Phase::Running) return;
  close_limit_ = sockets_.now() + limit;
  phase_ = Phase::Flushing;
  for (auto& [id, peer] : peers_) {
    if (peer.mending && repairs(peer)) continue;
    if (peer.mending) {
      peer.lost = peer.mending->why;
      part(id, lost_error(id, *peer.lost));
    }
    end_dial(peer, id, closed_error(self_.self));
  }
}

// Closing: first all sends leave, then this end says Bye and reads until the peer has closed: by
// then the peer has received everything. If a connection breaks before, it is repaired, all leaves
// again that has not arrived, and Bye is said again.
Duration Engine::tick_closing(Duration now) {
  if (phase_ == Phase::Flushing && (unsent() == 0 || now >= close_limit_)) {
    const size_t left = unsent();
    if (left > 0) {
      verdict_ = Error{Code::Timeout, Reach::Call,
                       cat("worker ", self_.self, " closed its wire with ", left,
                           " messages that had not left within the limit")};
    }
    phase_ = Phase::Parting;
    while (!strangers_.empty()) remove(strangers_.oldest(), true);
    for (auto& [id, peer] : peers_) {
      if (left == 0) {
        peer.link.end_receives(closed_error(self_.self));
      } else {
        peer.link.fail(closed_error(self_.self));
      }
      peer.link.say_bye();
      if (Connection* each = find(peer.connection)) write(*each, kBytesInATurn);
    }
    // This has found a connection broken: its repair begins in the next turn.
    if (phase_ == Phase::Flushing) return Duration{};
  }
  if (phase_ == Phase::Parting) {
    const bool waits = std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
      return entry.second.connection != kNoSocket;
    });
    if (!waits || now >= close_limit_) {
      while (!connections_.empty()) remove(connections_.begin()->second->socket, false);
      phase_ = Phase::Closed;
    }
  }
  return phase_ == Phase::Running || phase_ == Phase::Closed ? Duration::max() : close_limit_;
}

}  // namespace tenuto::tcp
