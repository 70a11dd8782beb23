// The part of Engine that knows who is connected: greetings, sessions, repairs, deaths.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "transport/hello.h"
#include "transport/tcp/engine.h"

namespace tenuto::tcp {

namespace {

// The pause before an attempt to connect, by how many attempts in a row reached no host; the last
// one repeats.
constexpr std::array<int, 7> kPauses{0, 1, 2, 5, 10, 20, 50};  // ms
// An attempt that the peer's host has accepted and that broke afterwards does not count as such:
// the connection broke again, which the next attempt repairs as soon. So that an end whose
// connections are all accepted and closed, as by a proxy without a worker behind it, does not
// connect a thousand times a second for long, no pause is shorter than this part of the time since
// the first attempt, until that is as long as the longest pause.
constexpr int kPartOfTime = 16;
// When a process dies the kernel closes its connections and its listener almost at once, in any
// order. So nobody listens any more when three attempts in a row, over 3 ms, have been refused.
constexpr int kRefusals = 3;
// How long an attempt may take: twice the time since the first, between the least and the most. So
// on a link with a high latency a later attempt succeeds, and when a network that was down is back,
// the attempt under way does not keep a repair waiting for long.
constexpr Duration kLeastRepair = std::chrono::milliseconds(50);
constexpr Duration kMostAttempt = std::chrono::seconds(3);
// A probe that has not been answered for so long is repeated.
constexpr Duration kProbeLimit = std::chrono::seconds(1);
// How long this end tries to tell a peer that it has dropped the connection. A peer that could not
// be told waits until its own mend_limit.
constexpr Duration kFarewellLimit = std::chrono::seconds(1);

Duration pause_after(int tries) {
  const auto last = static_cast<int>(kPauses.size()) - 1;
  return std::chrono::milliseconds(kPauses[static_cast<size_t>(std::min(tries, last))]);
}
constexpr Duration kLongestPause = std::chrono::milliseconds(kPauses.back());

}  // namespace

Introduction Engine::introduction() const {
  Introduction mine;
  mine.hello = self_;
  mine.instance = instance_;
  return mine;
}

void Engine::on_step(Connection& connection, Greeting::Step step) {
  const WorkerId id = connection.peer;
  const bool listens = connection.role == Role::Stranger;
  switch (step) {
    case Greeting::Step::Proven:
      return on_proven(connection);
    case Greeting::Step::Welcomed:
      return on_welcomed(connection);
    case Greeting::Step::Refused:
      return attempt_answered(id, {Code::Invalid, Reach::Link,
                                   cat("worker ", id, " at ", peer_of(id).name,
                                       " refused: ", connection.greeting->text())});
    case Greeting::Step::Stranger:
      return attempt_answered(
          id, {Code::Invalid, Reach::Link,
               cat("worker ", id, " at ", peer_of(id).name,
                   " refused: ", token_error(cat("worker ", self_.self), self_.job).message)});
    case Greeting::Step::Unproven:
      if (listens) {
        ++parts_.tally.refused;
        connection.role = Role::Refused;
        connection.greeting->refuse_stranger();
        return mark_writable(connection);
      }
      return attempt_answered(id,
                              token_error(cat("what listens at ", peer_of(id).name), self_.job));
    default:
      ++parts_.tally.malformed;
      if (listens) return remove(connection.socket, true);
      return attempt_failed(id,
                            step == Greeting::Step::Encrypted
                                ? "it speaks TLS, and this worker does not: use TLS at both ends "
                                  "or at neither"
                                : "what listens there is no worker of this version",
                            true);
  }
}

// The connection has ended before its greeting was over.
void Engine::on_no_greeting(Connection& connection, const Io& io) {
  const WorkerId id = connection.peer;
  if (connection.role == Role::Stranger) {
    if (io.kind == Io::Kind::Denied) ++parts_.tally.refused;
    if (io.kind == Io::Kind::Refused) ++parts_.tally.malformed;
    return remove(connection.socket, true);
  }
  if (io.kind == Io::Kind::Denied) {
    return attempt_answered(
        id, invalid(cat("worker ", id, " at ", peer_of(id).name, " cannot be used: ", io.why)));
  }
  const bool ended = io.kind == Io::Kind::Ended;
  connection.reached |= ended;  // only a host that has accepted it closes it
  attempt_failed(id, ended ? "it closed the connection" : io.why, io.kind == Io::Kind::Refused);
}

// A stranger has proved that it belongs to the job, or at least knows its token.
void Engine::on_proven(Connection& connection) {
  const Introduction theirs = connection.greeting->theirs();
  const WorkerId id = theirs.hello.self;
  // A wire that closes opens nothing new. Whoever dials tries again, and may then find the wire
  // that takes the place of this one.
  if (phase_ != Phase::Running && theirs.intent == Intent::Open) {
    return remove(connection.socket, true);
  }
  Status verdict = judge(theirs);
  const bool drops = verdict.ok() && theirs.intent == Intent::Drop;
  if (drops) verdict = dropped_error(id);
  if (verdict.ok()) return accept_session(connection, theirs);
  if (!drops) ++parts_.tally.refused;
  connection.role = Role::Refused;
  connection.greeting->refuse(verdict.error().message);
  mark_writable(connection);
  if (drops) lose(id, "it dropped the link");
}

// Whether a broken connection with the peer is repaired: while the wire closes only for messages
// that have not arrived there.
bool Engine::repairs(const Peer& peer) const {
  return phase_ == Phase::Running || (phase_ != Phase::Closed && peer.link.undelivered() > 0);
}

// Whether anybody may connect, if only to repair a connection.
bool Engine::accepts() const {
  return phase_ == Phase::Running ||
         std::any_of(peers_.begin(), peers_.end(),
                     [this](const auto& entry) { return repairs(entry.second); });
}

// Decides whether the sender of a hello is accepted.
Status Engine::judge(const Introduction& theirs) {
  const WorkerId id = theirs.hello.self;
  Hello hello = theirs.hello;
  hello.token = self_.token;  // its sender has proved that it knows it
  const Status verdict = verify_hello(self_, hello, cat("worker ", id));
  if (!verdict.ok()) return verdict;
  if (theirs.expected != self_.self) {
    return invalid(cat("at ", address_, " listens worker ", self_.self, ", expected worker ",
                       theirs.expected, ": check the list of addresses"));
  }
  if (id == self_.self) return closed_error(self_.self);
  if (theirs.intent == Intent::Open) return judge_open(theirs);
  const auto found = peers_.find(id);
  const bool known =
      found != peers_.end() && repairs(found->second) && found->second.has_session() &&
      !found->second.dialled && found->second.instance == theirs.instance &&
      found->second.session == theirs.session &&
      (theirs.known == instance_ || (theirs.known == 0 && theirs.intent == Intent::Drop));
  if (known) return ok();
  return invalid(cat("worker ", self_.self, " has closed the connection with worker ", id,
                     ", or never opened it"));
}

Status Engine::judge_open(const Introduction& theirs) {
  const Peer& peer = peer_of(theirs.hello.self);
  const bool dials = peer.dial != nullptr && peer.dial->intent == Intent::Open;
  const bool other = peer.instance != theirs.instance;
  if (dials || (peer.has_session() && peer.dialled) || (peer.connection != kNoSocket && other)) {
    return invalid(cat("worker ", theirs.hello.self, " and worker ", self_.self,
                       " are already connected: of a pair exactly one end connects"));
  }
  return ok();
}

// The connection is the first of a new session, or goes on with the one that is there, perhaps
// before this end saw it break.
void Engine::accept_session(Connection& connection, const Introduction& theirs) {
  const WorkerId id = theirs.hello.self;
  Peer& peer = peer_of(id);
  const bool same = peer.instance == theirs.instance;
  const bool goes_on = peer.has_session() && same && peer.session == theirs.session;
  if (peer.has_session() && !goes_on) {
    lose(id, same ? "it dropped the link" : "another process has taken its place");
  }
  end_dial(peer, id, std::nullopt);
  if (peer.connection != kNoSocket) broken(id, "it opened a new connection");
  peer.dialled = false;
  peer.instance = theirs.instance;
  peer.session = theirs.session;
  peer.name = theirs.address;
  peer.where.reset();
  if (const auto where = resolve(theirs.address, false); where.ok()) peer.where = where.value();
  connection.peer = id;
  connection.greeting->welcome(introduction());
  become_open(connection, peer);
}

void Engine::on_welcomed(Connection& connection) {
  const WorkerId id = connection.peer;
  Peer& peer = peer_of(id);
  const Introduction& theirs = connection.greeting->theirs();
  const std::string where = cat("worker ", theirs.hello.self, " at ", peer.name);
  Hello hello = theirs.hello;
  hello.token = self_.token;
  const Status verdict = verify_hello(self_, hello, where);
  if (!verdict.ok()) return attempt_answered(id, verdict.error());
  if (hello.self != id) {
    return attempt_answered(id, invalid(cat(where, " answers, expected worker ", id)));
  }
  const bool other = peer.dial->intent == Intent::Repair && theirs.instance != peer.instance;
  if (other || peer.dial->intent == Intent::Drop) {
    return attempt_answered(id, invalid("another process has taken its place"));
  }
  peer.instance = theirs.instance;
  if (peer.dial->ticket != kNoTicket) report(peer.dial->ticket, id, ok());
  peer.dial.reset();
  become_open(connection, peer);
}

void Engine::become_open(Connection& connection, Peer& peer) {
  if (connection.role == Role::Stranger) strangers_.remove(connection.socket);
  connection.role = Role::Open;
  peer.connection = connection.socket;
  peer.lost.reset();
  if (peer.mending && peer.dialled) {
    const std::lock_guard lock(parts_.tally.mutex);
    parts_.tally.repairs.push_back({connection.peer, sockets_.now() - peer.mending->since});
  }
  stop_mending(peer);
  opening_.erase(connection.peer);
  peer.link.opened();
  mark_writable(connection);
}

void Engine::attempt(WorkerId id, Peer& peer, Duration now) {
  Dial& dial = *peer.dial;
  const SocketId socket = sockets_.connect(*peer.where);
  const bool repairs = dial.intent == Intent::Repair;
  const Duration least = std::min(repairs ? kLeastRepair : settings_.hello_limit, kMostAttempt);
  dial.attempt = socket;
  dial.attempt_limit = now + std::clamp(2 * (now - dial.since), least, kMostAttempt);
  if (socket == kNoSocket) return attempt_failed(id, "no more file descriptors", false);
  Introduction mine = introduction();
  mine.intent = dial.intent;
  mine.expected = id;
  mine.known = peer.instance;
  mine.session = peer.session;
  mine.address = address_;
  Connection& connection = add(socket, Role::Attempt, id);
  connection.greeting = std::make_unique<Greeting>(self_.token, parts_.entropy, mine);
}

// An attempt to connect brought no answer; the next one comes after a pause. `refused`: nobody of
// this job listens there.
void Engine::attempt_failed(WorkerId id, const std::string& why, bool refused) {
  Peer& peer = peer_of(id);
  Dial& dial = *peer.dial;
  const Connection* connection = find(dial.attempt);
  const bool reached = connection != nullptr && connection->reached;
  if (reached) host_lives(peer);
  remove(std::exchange(dial.attempt, kNoSocket), true);
  dial.last_error = why;
  dial.refusals = refused ? dial.refusals + 1 : 0;
  dial.tries = reached ? 1 : dial.tries + 1;
  const Duration now = sockets_.now();
  const Duration least = std::min((now - dial.since) / kPartOfTime, kLongestPause);
  Duration pause = std::max(pause_after(dial.tries), least);
  // A listener with too many strangers has closed it. Workers that all connect at once must not
  // all come back at once.
  if (reached && dial.intent == Intent::Open) pause += Duration(pauses_.below(pause.count()));
  dial.retry = now + pause;
  if (dial.intent != Intent::Repair || dial.refusals < kRefusals) return;
  lose(id, cat(peer.mending->why, "; nobody listens at ", peer.name, " any more"));
}

// The peer has said no, or is another one.
void Engine::attempt_answered(WorkerId id, const Error& error) {
  Peer& peer = peer_of(id);
  if (peer.dial->intent == Intent::Repair) return lose(id, error.message);
  end_dial(peer, id, error);
}

// Gives up opening a connection; a connect() that waits for it ends with the error.
void Engine::end_dial(Peer& peer, WorkerId id, const std::optional<Error>& error) {
  if (peer.dial == nullptr) return;
  const std::unique_ptr<Dial> dial = std::move(peer.dial);
  remove(dial->attempt, true);
  if (!peer.mending) opening_.erase(id);
  if (dial->ticket != kNoTicket && error) report(dial->ticket, id, *error);
}

// How long a host had been silent when a read or write told it.
Duration Engine::silence_of(const Io& io) const {
  return io.kind == Io::Kind::Silent ? silence_before_break(settings_) : Duration{};
}

// The connection is broken but the peer may be alive: calls with it wait for the next one.
// `silent`: for how long its host has already answered nothing.
void Engine::broken(WorkerId id, const std::string& why, Duration silent) {
  Peer& peer = peer_of(id);
  remove(std::exchange(peer.connection, kNoSocket), true);
  stop_watching(id, peer);
  peer.link.broke();
  if (!repairs(peer)) return lose(id, why);
  if (phase_ == Phase::Parting) phase_ = Phase::Flushing;
  ++parts_.tally.broken;
  const Duration now = sockets_.now();
  Mending& mending = peer.mending.emplace(Mending{});
  mending.since = mending.probe_at = now;
  mending.limit = now + settings_.mend_limit - silent;
  mending.why = why;
  opening_.insert(id);
  if (!peer.dialled) return;
  peer.dial = std::make_unique<Dial>();
  peer.dial->intent = Intent::Repair;
  peer.dial->since = peer.dial->retry = now;
  peer.dial->limit = Duration::max();
}

// Looks whether anybody listens at the peer's address.
void Engine::probe(WorkerId id, Peer& peer, Duration now) {
  peer.mending->probe = sockets_.connect(*peer.where);
  peer.mending->probe_limit = now + kProbeLimit;
  if (peer.mending->probe == kNoSocket) return probed(id, false);
  add(peer.mending->probe, Role::Probe, id);
}

void Engine::probed(WorkerId id, bool refused) {
  Peer& peer = peer_of(id);
  Mending& mending = *peer.mending;
  remove(std::exchange(mending.probe, kNoSocket), true);
  mending.refusals = refused ? mending.refusals + 1 : 0;
  mending.probe_at = sockets_.now() + pause_after(++mending.tries);
  if (mending.refusals < kRefusals) return;
  lose(id, cat(mending.why, "; nobody listens at ", peer.name, " any more"));
}

// The peer's host has answered during a repair, so its silence before was the connection's alone,
// and the repair has its whole time. This matters to the end that waits to be called: the other one
// may notice the break later.
void Engine::host_lives(Peer& peer) const {
  if (peer.mending) peer.mending->limit = peer.mending->since + settings_.mend_limit;
}

void Engine::stop_mending(Peer& peer) {
  if (!peer.mending) return;
  remove(peer.mending->probe, true);
  peer.mending.reset();
}

// Ends everything that is under way with the peer.
void Engine::part(WorkerId id, const Error& error) {
  Peer& peer = peer_of(id);
  stop_mending(peer);
  stop_watching(id, peer);
  end_dial(peer, id, error);
  opening_.erase(id);
  remove(std::exchange(peer.connection, kNoSocket), true);
  peer.instance = 0;
  peer.break_after = -1;
  peer.link.broke();
  peer.link.fail(error);
}

// The peer itself is lost: reports that once and ends every call with it.
void Engine::lose(WorkerId id, const std::string& why) {
  const Error error = lost_error(id, why);
  peer_of(id).lost = why;
  const bool told = phase_ == Phase::Running || phase_ == Phase::Flushing;
  if (told && !peer_of(id).link.receives_ended()) report(kNoTicket, id, error);
  part(id, error);
}

// The same for a peer that lives but is not listened to any more.
void Engine::expel(WorkerId id, const std::string& why) {
  Peer& peer = peer_of(id);
  const uint64_t instance = peer.instance;
  lose(id, why);
  peer.instance = instance;
  say_farewell(id, peer);
}

void Engine::drop(WorkerId id) {
  const Error error = dropped_error(id);
  Peer& peer = peer_of(id);
  const bool known = peer.has_session() || peer.dial != nullptr;
  const uint64_t instance = peer.instance;
  part(id, error);
  peer.lost.reset();
  peer.instance = instance;
  if (known) say_farewell(id, peer);
}

// Tells the peer that its session has ended, if it would otherwise wait for this end to connect
// again. A peer that connects itself is refused then.
void Engine::say_farewell(WorkerId id, Peer& peer) {
  if (phase_ != Phase::Running || !peer.dialled || !peer.where) return;
  peer.dial = std::make_unique<Dial>();
  peer.dial->intent = Intent::Drop;
  peer.dial->since = peer.dial->retry = sockets_.now();
  peer.dial->limit = peer.dial->since + kFarewellLimit;
  opening_.insert(id);
}

// The peer has closed its wire in order, or has read that this end does: calls with it end, but it
// is not reported lost. Closing the connection tells it that all that it sent has been received.
void Engine::parted(Connection& connection) {
  const WorkerId id = connection.peer;
  Peer& peer = peer_of(id);
  remove(connection.socket, false);
  peer.connection = kNoSocket;
  peer.lost = "it closed its wire";
  part(id, lost_error(id, *peer.lost));
}

Duration Engine::tick_peers(Duration now) {
  Duration next = Duration::max();
  const std::vector<WorkerId> opening(opening_.begin(), opening_.end());
  for (const WorkerId id : opening) {
    Peer& peer = peer_of(id);
    if (peer.mending) next = std::min(next, tick_mending(id, peer, now));
    if (peer.dial != nullptr) next = std::min(next, tick_dial(id, peer, now));
  }
  return next;
}

Duration Engine::tick_dial(WorkerId id, Peer& peer, Duration now) {
  Dial& dial = *peer.dial;
  if (now >= dial.limit) {
    const std::string last = dial.last_error.empty() ? std::string("no answer") : dial.last_error;
    end_dial(peer, id,
             Error{Code::Timeout, Reach::Link,
                   cat("worker ", self_.self, " could not reach worker ", id, " at ", peer.name,
                       " within ", fixed(to_milliseconds(settings_.connect_limit), 0), " ms (",
                       last, "): is it running, and is the address right?")});
    return Duration::max();
  }
  if (dial.attempt != kNoSocket && now >= dial.attempt_limit) {
    attempt_failed(id, "no answer", false);
  } else if (dial.attempt == kNoSocket && now >= dial.retry) {
    attempt(id, peer, now);
  }
  return std::min(dial.limit, dial.attempt != kNoSocket ? dial.attempt_limit : dial.retry);
}

Duration Engine::tick_mending(WorkerId id, Peer& peer, Duration now) {
  Mending& mending = *peer.mending;
  if (now >= mending.limit) {
    lose(id, cat(mending.why, "; no new connection within ",
                 fixed(to_milliseconds(settings_.mend_limit), 0), " ms"));
    return Duration::max();
  }
  if (peer.dialled || !peer.where) return mending.limit;
  if (mending.probe != kNoSocket && now >= mending.probe_limit) {
    probed(id, false);
  } else if (mending.probe == kNoSocket && now >= mending.probe_at) {
    probe(id, peer, now);
  }
  return std::min(mending.limit,
                  mending.probe != kNoSocket ? mending.probe_limit : mending.probe_at);
}

}  // namespace tenuto::tcp
