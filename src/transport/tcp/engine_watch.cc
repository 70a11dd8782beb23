// The part of Engine that asks the kernel what it knows of connections, and notices that a peer's
// host is silent.
//
// TCP repeats what is not acknowledged for a quarter of an hour, and the sender cannot tell a host
// that is gone from a process that is stopped and takes nothing more. So this end opens another
// connection to where the peer listens: the peer's host answers that, whatever its process does.
//
// If the host answers that, the connection may still carry nothing: a switch or a firewall may
// discard the packets of this one connection. Then the kernel sends packets again and gets no
// answer over it, and the connection counts as broken. A stopped process is not taken for this,
// because its kernel answers over the connection itself: it acknowledges what it has space for, and
// then answers each question for more space. There may be minutes between two such questions, so
// the age of the last answer does not matter, but only whether packets have been sent since then.
#include <algorithm>

#include "base/text.h"
#include "transport/tcp/engine.h"

namespace tenuto::tcp {

namespace {

// The pause between two looks, at most, and how many there are while a host is silent until it
// counts as gone.
constexpr Duration kMostPause = std::chrono::seconds(1);
constexpr int kLooks = 5;
// After so many pauses without a sign of life the host is asked.
constexpr int kAskAfter = 2;
// How often events must have been gathered since it was asked: on a busy machine its answer may
// have come, and this process may have had no time to see it.
constexpr uint64_t kRounds = 2;
// The kernel sends a packet again when its answer is overdue. If the answer to that one is overdue,
// too, it has been sent twice.
constexpr int kSentInVain = 2;

// The pause between two looks at what the kernel knows of one connection. A look takes 1 us.
constexpr Duration kFiguresPause = std::chrono::milliseconds(200);

}  // namespace

// Looks at what the kernel knows of a connection over which bytes have come; not if it has just
// done so. Nobody is woken for it.
void Engine::note_figures(Connection& connection) {
  if (connection.heard - connection.looked < kFiguresPause) return;
  connection.looked = connection.heard;
  const Delivery delivery = sockets_.delivery(connection.socket);
  // Below zero while packets that were counted turn out to have arrived.
  connection.owed += static_cast<int64_t>(delivery.repeated -
                                          std::exchange(connection.repeated, delivery.repeated));
  const Duration busy = delivery.busy - std::exchange(connection.busy, delivery.busy);
  const Duration unread = delivery.unread - std::exchange(connection.unread, delivery.unread);
  if (delivery.round_trip == Duration::zero()) return;
  const bool carried = !delivery.held_up && unread <= busy / 2;
  const std::lock_guard lock(parts_.tally.mutex);
  const auto [each, fresh] = parts_.tally.figures.try_emplace(connection.peer);
  LinkFigures& figures = each->second;
  figures.peer = connection.peer;
  if (fresh || delivery.round_trip - delivery.variation < figures.round_trip - figures.variation) {
    figures.round_trip = delivery.round_trip;
    figures.variation = delivery.variation;
  }
  if (carried) figures.bytes_per_second = delivery.bytes_per_second;
  if (connection.owed > 0) figures.repeated += std::exchange(connection.owed, 0);
}

Duration Engine::look_pause() const { return std::min(settings_.mend_limit / kLooks, kMostPause); }

// Bytes are on their way to the peer.
void Engine::watch(WorkerId id, Peer& peer, Duration now) {
  peer.watch = Watch{};
  peer.watch->answered = now;
  if (watched_.empty()) next_look_ = now + look_pause();
  watched_.insert(id);
}

void Engine::stop_watching(WorkerId id, Peer& peer) {
  if (!peer.watch) return;
  remove(peer.watch->probe, true);
  peer.watch.reset();
  watched_.erase(id);
}

// The peer's host has answered.
void Engine::host_answered(Peer& peer, Duration now) {
  remove(std::exchange(peer.watch->probe, kNoSocket), true);
  peer.watch->answered = now;
  peer.watch->asked.reset();
}

// Whether the connection has carried no answer for too long although the peer's host lives. This
// counts from the first look that finds packets sent again in vain, so that one which meets the
// kernel between a question and its answer means nothing. The host must have answered since then:
// if it is silent, too, it may be gone, or the network between.
bool Engine::carries_nothing(Watch& watch, const Delivery& delivery, Duration now) const {
  if (delivery.unanswered == 0) {
    watch.in_vain.reset();
    return false;
  }
  if (!watch.in_vain || now - delivery.quiet > *watch.in_vain) watch.in_vain = now;
  return delivery.unanswered >= kSentInVain && watch.answered > *watch.in_vain &&
         now - *watch.in_vain >= silence_before_break(settings_);
}

Duration Engine::tick_watched(Duration now) {
  if (watched_.empty()) return Duration::max();
  if (now < next_look_) return next_look_;
  next_look_ = now + look_pause();
  const std::vector<WorkerId> watched(watched_.begin(), watched_.end());
  for (const WorkerId id : watched) look(id, peer_of(id), now);
  return watched_.empty() ? Duration::max() : next_look_;
}

void Engine::look(WorkerId id, Peer& peer, Duration now) {
  const Connection* connection = find(peer.connection);
  if (connection == nullptr) return stop_watching(id, peer);
  const Delivery delivery = sockets_.delivery(peer.connection);
  if (delivery.left == 0) return stop_watching(id, peer);
  Watch& watch = *peer.watch;
  if (carries_nothing(watch, delivery, now)) {
    return broken(id,
                  cat("it carried nothing for ", fixed(to_milliseconds(now - *watch.in_vain), 0),
                      " ms although the peer's host answers"),
                  now - watch.answered);
  }
  if (std::exchange(watch.acknowledged, delivery.acknowledged) != delivery.acknowledged) {
    return host_answered(peer, now);
  }
  watch.answered = std::max(watch.answered, connection->heard);
  if (now - watch.answered < kAskAfter * look_pause()) return;
  const bool seen = watch.asked && rounds_ >= *watch.asked + kRounds;
  if (seen && now - watch.answered >= settings_.mend_limit) {
    return lose(id, cat("its host has not answered for ",
                        fixed(to_milliseconds(settings_.mend_limit), 0), " ms"));
  }
  if (!watch.asked) watch.asked = rounds_;
  if (!peer.where) return;
  remove(watch.probe, true);
  watch.probe = sockets_.connect(*peer.where);
  if (watch.probe != kNoSocket) add(watch.probe, Role::Probe, id);
}

// What a probe has found; `socket` may be the one that looks whether a host answers, or the one of
// a repair, which wants to know whether anybody listens.
void Engine::probe_ended(WorkerId id, SocketId socket, const Io& io) {
  Peer& peer = peer_of(id);
  const bool silent = io.kind == Io::Kind::Failed || io.kind == Io::Kind::Silent;
  if (!peer.watch || peer.watch->probe != socket) {
    if (!silent) host_lives(peer);
    return probed(id, io.kind == Io::Kind::Refused);
  }
  if (silent) {
    remove(std::exchange(peer.watch->probe, kNoSocket), true);
  } else {
    host_answered(peer, sockets_.now());
  }
}

}  // namespace tenuto::tcp
