// The part of UcxEngine that outlives a connection: which messages are known to have arrived, and
// how a broken connection is repaired.
//
// A receive keeps one number, its grant, for as long as it lasts. After a break the receiver grants
// again, with the same numbers, every message that has not arrived, and then sends AllGranted. The
// sender sends these messages again and knows that all others have arrived. An end uses the new
// connection only after UCX has returned every buffer of the old one there.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/text.h"
#include "transport/ucx/engine.h"

namespace tenuto {

namespace {

// A send waits for its acknowledgement for this time, and longer for each byte under way. Then its
// bytes are copied and it ends. On a link slower than 250 MB/s the copy costs little compared with
// the transfer; on a faster one the acknowledgement comes in time, however full the link is, and
// nothing is copied.
constexpr Duration kAcknowledgementPatience = std::chrono::milliseconds(1);
constexpr int64_t kPatienceForByte = 4;  // ns: 250 MB/s
// When a process dies the kernel closes its connections and its listener almost at once, in any
// order. So nobody listens any more when three checks in a row, over 30 ms, have found nobody.
constexpr int kRefusals = 3;
constexpr Duration kFirstProbePause = std::chrono::milliseconds(10);
constexpr Duration kMostProbePause = std::chrono::milliseconds(200);
constexpr Duration kProbeCheckPause = std::chrono::milliseconds(2);
// When a worker dies, all others close their wires within moments. UCX 1.13 may crash a process
// when somebody connects to its wire just then. So an end waits before it connects: the first pause
// is for reconnecting after a break, the second for telling a peer that its connection was dropped.
constexpr Duration kDialPause = std::chrono::milliseconds(5);
constexpr Duration kNotifyPause = std::chrono::milliseconds(100);
// How long this end tries to tell a peer that its connection was dropped. A peer that could not
// be told waits until its own mend_limit.
constexpr Duration kFarewellLimit = std::chrono::seconds(1);
// UCX 1.13 may end the process by an assertion when a connection is closed by force while it sends.
// So UCX gets this time to complete its requests first.
constexpr Duration kReturnLimit = std::chrono::milliseconds(50);

Duration now() { return monotonic_clock().now(); }

}  // namespace

void UcxEngine::keep(Sent& sent) {
  // A device's memory cannot be copied here: its sends wait for the acknowledgement, however long.
  if (sent.kept || settings_.device_memory) return;
  const std::span<const std::byte> bytes = sent.sending.bytes;
  if (settings_.sends_end_there && bytes.size() > kKeptMessage) return;
  sent.kept = true;
  if (bytes.size() > kKeptMessage) ++tally_.kept;
  if (bytes.empty()) return;
  sent.own = std::shared_ptr<std::byte[]>(new std::byte[bytes.size()]);
  std::memcpy(sent.own.get(), bytes.data(), bytes.size());
  sent.sending.bytes = {sent.own.get(), bytes.size()};
}

// A message is known to have arrived: ends its send.
void UcxEngine::finish_sent(Peer& peer, WorkerId id, uint64_t grant) {
  const auto node = peer.sent.extract(grant);
  const Ticket ticket = node.mapped().sending.ticket;
  if (ticket != kNoTicket) report(ticket, id, ok());
}

// UCX has sent a message: ends the send if its bytes are kept, or lets it wait for the
// acknowledgement.
void UcxEngine::sent_left(Peer& peer, Link& link, uint64_t grant, Sent& sent) {
  if (sent.got) return finish_sent(peer, link.peer, grant);
  int64_t ahead = 0;
  for (const auto& [other, waiting] : peer.sent) {
    if (!waiting.kept) ahead += static_cast<int64_t>(waiting.sending.bytes.size());
  }
  sent.due = now() + kAcknowledgementPatience + Duration(kPatienceForByte * ahead);
  if (link.slow_acknowledgements) keep(sent);
  if (!sent.kept) {
    if (settings_.device_memory || settings_.sends_end_there) return;
    late_.insert({sent.due, {link.peer, grant}});
    return;
  }
  const Ticket ticket = std::exchange(sent.sending.ticket, kNoTicket);
  if (ticket != kNoTicket) report(ticket, link.peer, ok());
}

void UcxEngine::on_got(Link& link, const std::vector<uint64_t>& arrived) {
  Peer& peer = peers_[link.peer];
  const Duration moment = now();
  for (const uint64_t grant : arrived) {
    if (grant == link.probe && link.probe != 0) {
      link.probe = 0;
      link.rate.finish(moment);
    }
    const auto found = peer.sent.find(grant);
    if (found == peer.sent.end() || found->second.link != link.id) {
      ++tally_.unknown_grants;
      continue;
    }
    Sent& sent = found->second;
    if (sent.in_flight) {
      sent.got = true;
      continue;
    }
    if (sent.sending.bytes.size() > kKeptMessage) {
      link.slow_acknowledgements = moment > sent.due;
    }
    finish_sent(peer, link.peer, grant);
  }
}

// Ends the sends whose acknowledgement is late, after copying their bytes.
Duration UcxEngine::tick_late(Duration moment) {
  for (; !late_.empty(); late_.erase(late_.begin())) {
    const auto& [due, late] = *late_.begin();
    Peer& peer = peers_[late.peer];
    const auto found = peer.sent.find(late.grant);
    if (found == peer.sent.end()) continue;
    Sent& sent = found->second;
    const bool waits = !sent.in_flight && !sent.kept && sent.due == due;
    if (!waits || peer.link == nullptr || peer.link->id != sent.link) continue;
    if (due > moment) return due;
    keep(sent);
    peer.link->slow_acknowledgements = true;
    const Ticket ticket = std::exchange(sent.sending.ticket, kNoTicket);
    if (ticket != kNoTicket) report(ticket, late.peer, ok());
  }
  return Duration::max();
}

void UcxEngine::break_connection(WorkerId peer, int64_t after) {
  if (phase_ != Phase::Running) return;
  Peer& side = peers_[peer];
  if (after > 0) {
    side.break_after = after;
  } else if (side.link != nullptr) {
    break_link(*side.link, "an injected fault broke it");
  }
}

// The connection is broken but its peer may be alive: calls with the peer wait for the next
// connection.
void UcxEngine::break_link(Link& link, const std::string& why) {
  ++tally_.broken;
  link.state = LinkState::Ended;
  link.broken = true;
  link.granted.clear();
  link.arrived.clear();
  Peer& peer = peers_[link.peer];
  if (peer.link == &link) peer.link = nullptr;
  stop_mending(link.peer, peer);
  const Duration moment = now();
  link.return_limit = moment + kReturnLimit;
  Mending& mending = peer.mending.emplace(Mending{});
  mending.since = moment;
  mending.limit = moment + settings_.mend_limit;
  mending.why = why;
  mending.probe_at = moment;
  ++mending_;
  if (!peer.dialled || !peer.where) return;
  Connecting& connecting = connecting_[link.peer];
  connecting.name = peer.name;
  connecting.to = *peer.where;
  connecting.ticket = kNoTicket;
  connecting.resumes = peer.instance;
  connecting.retry = moment + kDialPause;
}

void UcxEngine::stop_mending(WorkerId id, Peer& peer) {
  if (!peer.mending) return;
  if (peer.mending->probe >= 0) ::close(peer.mending->probe);
  peer.mending.reset();
  --mending_;
  const auto found = connecting_.find(id);
  if (found == connecting_.end() || !found->second.mends()) return;
  Link* attempt = found->second.attempt;
  connecting_.erase(found);
  if (attempt != nullptr) end(*attempt, dropped_error(id));
}

// The peer itself is lost: reports that once and ends every call with it.
void UcxEngine::lose(WorkerId id, const std::string& why) {
  const Error error = lost_error(id, why);
  peers_[id].lost = why;
  if (phase_ == Phase::Running || phase_ == Phase::Flushing) report(kNoTicket, id, error);
  part(id, error);
}

// Ends everything that is under way with the peer: repair, waiting links and calls.
void UcxEngine::part(WorkerId id, const Error& error) {
  Peer& peer = peers_[id];
  stop_mending(id, peer);
  for (auto& [number, link] : links_) {
    if (link->peer != id) continue;
    if (link->broken && !link->ended) link->ended = error;
    if (link->state == LinkState::Waiting) end(*link, error);
  }
  peer.instance = 0;
  end_calls(peer, id, error);
}

// Tells the peer that its connection was dropped; otherwise it would wait for this end to connect
// again. Needed only at the end that called connect(). If the peer called it, the peer connects
// again by itself and is then refused.
void UcxEngine::notify_dropped_peer(WorkerId id, const Peer& peer, uint64_t instance) {
  if (phase_ != Phase::Running || !peer.where || connecting_.contains(id)) return;
  Connecting& connecting = connecting_[id];
  connecting.name = peer.name;
  connecting.to = *peer.where;
  connecting.ticket = kNoTicket;
  connecting.resumes = instance;
  connecting.farewell = true;
  connecting.retry = now() + kNotifyPause;
  connecting.limit = connecting.retry + kFarewellLimit;
}

void UcxEngine::end_farewell(WorkerId id) {
  const auto found = connecting_.find(id);
  if (found == connecting_.end() || !found->second.farewell) return;
  Link* attempt = found->second.attempt;
  connecting_.erase(found);
  if (attempt != nullptr) end(*attempt, dropped_error(id));
}

// The peer has dropped the link; it is answered with a refusal.
Status UcxEngine::on_farewell(WorkerId id) {
  const std::string why = "it dropped the link";
  if (Link* link = peers_[id].link; link != nullptr) end(*link, lost_error(id, why));
  lose(id, why);
  return dropped_error(id);
}

// Whether UCX still holds something of a broken connection with the peer.
bool UcxEngine::is_held_by_ucx(WorkerId peer) const {
  return std::any_of(links_.begin(), links_.end(), [&](const auto& entry) {
    return entry.second->broken && entry.second->peer == peer;
  });
}

// Decides whether a connection that is to replace a broken one is accepted.
Status UcxEngine::judge_resumption(const Frame& frame) const {
  const auto found = peers_.find(frame.hello.self);
  const bool known = found != peers_.end() && found->second.instance == frame.instance &&
                     !found->second.dialled && frame.resumes == instance_;
  if (known && (found->second.link != nullptr || found->second.mending)) return ok();
  return invalid(cat("worker ", self_.self, " has closed the connection with worker ",
                     frame.hello.self, ", or never opened it"));
}

// The peer has connected again, perhaps before this end saw the break.
void UcxEngine::on_resumption(Link& link) {
  for (auto& [id, each] : links_) {
    if (each->state == LinkState::Waiting && each->peer == link.peer && each.get() != &link) {
      end(*each, dropped_error(link.peer));
    }
  }
  link.state = LinkState::Waiting;
  if (Link* old = peers_[link.peer].link; old != nullptr)
    break_link(*old, "it opened a new connection");
}

// The new connection is ready for use at this end.
void UcxEngine::mended(Link& link) {
  Peer& peer = peers_[link.peer];
  const Duration took = peer.mending ? now() - peer.mending->since : Duration::zero();
  if (peer.dialled) {
    const std::lock_guard lock(tally_.mutex);
    tally_.repairs.push_back({link.peer, took});
  }
  stop_mending(link.peer, peer);
  if (link.state == LinkState::Waiting) {
    welcome(link);
  } else {
    become_open(link);
  }
  if (link.state != LinkState::Open) return;
  Frame frame;
  frame.kind = FrameKind::AllGranted;
  frame.channel = link.remote_id;
  control(link, frame);
}

// The peer still needs a message that was handed to UCX before the break.
void UcxEngine::send_again(Link& link, const Frame& frame, Sent& sent) {
  if (sent.link == link.id || sent.in_flight || frame.size != sent.sending.bytes.size()) {
    ++tally_.malformed;
    return;
  }
  ++tally_.sent_again;
  sent.got = false;
  transmit(link, frame.grant, sent);
}

// The peer has granted again all that it still needs, so all other messages have arrived.
void UcxEngine::on_all_granted(Link& link) {
  Peer& peer = peers_[link.peer];
  std::vector<uint64_t> arrived;
  for (const auto& [grant, sent] : peer.sent) {
    if (sent.link != link.id && !sent.in_flight) arrived.push_back(grant);
  }
  for (const uint64_t grant : arrived) finish_sent(peer, link.peer, grant);
}

// Checks whether anybody listens at the peer's address. True when it is certain that nobody does.
bool UcxEngine::found_nobody(const SocketAddress& where, Mending& mending, Duration moment) {
  int code = EINPROGRESS;
  if (mending.probe < 0) {
    if (moment < mending.probe_at) return false;
    mending.probe =
        ::socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (mending.probe < 0) return false;
    const auto* address = reinterpret_cast<const sockaddr*>(&where.storage);
    code = ::connect(mending.probe, address, where.length) == 0 ? 0 : errno;
    mending.pause = std::clamp<Duration>(mending.pause * 2, kFirstProbePause, kMostProbePause);
    mending.probe_at = moment + mending.pause;
  }
  if (code == EINPROGRESS) {
    pollfd answer{mending.probe, POLLOUT, 0};
    if (::poll(&answer, 1, 0) == 0) return false;
    socklen_t length = sizeof(code);
    if (::getsockopt(mending.probe, SOL_SOCKET, SO_ERROR, &code, &length) != 0) code = errno;
  }
  ::close(mending.probe);
  mending.probe = -1;
  mending.refused = code == ECONNREFUSED ? mending.refused + 1 : 0;
  return mending.refused >= kRefusals;
}

Duration UcxEngine::tick_mending(Duration moment) {
  if (mending_ == 0) return Duration::max();
  Duration next = Duration::max();
  std::vector<std::pair<WorkerId, std::string>> gone;
  for (auto& [id, peer] : peers_) {
    if (!peer.mending) continue;
    Mending& mending = *peer.mending;
    if (peer.where && found_nobody(*peer.where, mending, moment)) {
      gone.emplace_back(id, cat(mending.why, "; nobody listens at ", peer.name, " any more"));
    } else if (moment >= mending.limit) {
      gone.emplace_back(id, cat(mending.why, "; no new connection within ",
                                fixed(to_milliseconds(settings_.mend_limit), 0), " ms"));
    }
    next = std::min(next, mending.limit);
    if (mending.probe >= 0) next = std::min(next, moment + kProbeCheckPause);
    if (peer.where) next = std::min(next, std::max(mending.probe_at, moment + kProbeCheckPause));
  }
  for (const auto& [id, why] : gone) lose(id, why);
  std::vector<Link*> ready;
  for (auto& [id, link] : links_) {
    if (link->state == LinkState::Waiting && !is_held_by_ucx(link->peer))
      ready.push_back(link.get());
  }
  for (Link* link : ready) mended(*link);
  return next;
}

}  // namespace tenuto
