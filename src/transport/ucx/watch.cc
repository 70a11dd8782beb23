// The part of UcxEngine that notices an unreachable peer although no connection breaks: when a
// cable is pulled or a switch drops packets, TCP goes on trying for a quarter of an hour.
//
// While something is awaited from a peer and nothing comes, the peer is first asked for a sign of
// life over the connection. A process that is stopped, or whose messages wait in a long queue,
// gives none. So next this end tries to connect to the peer's host: as long as the host can be
// reached, its system accepts or refuses the attempt. The peer is lost only when neither answers.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/text.h"
#include "transport/ucx/engine.h"

namespace tenuto {

namespace {

// In fifths of the limit: when the peer is asked over the connection, when this end first tries to
// connect to its host, and the pause between two such attempts.
constexpr int kAskAt = 1, kProbeAt = 2, kAgain = 1, kParts = 5;
// Pause between two checks whether the host has answered.
constexpr Duration kLook = std::chrono::milliseconds(20);

// Begins to connect to the address and returns the socket; -1 = not possible now.
int open_probe(const SocketAddress& where) {
  const int probe =
      ::socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (probe < 0) return -1;
  const auto* address = reinterpret_cast<const sockaddr*>(&where.storage);
  (void)::connect(probe, address, where.length);
  return probe;
}

enum class Answer : uint8_t { None, Heard, Failed };

Answer answer_to(int probe) {
  pollfd answer{probe, POLLOUT, 0};
  if (::poll(&answer, 1, 0) == 0) return Answer::None;
  int code = 0;
  socklen_t length = sizeof(code);
  if (::getsockopt(probe, SOL_SOCKET, SO_ERROR, &code, &length) != 0) return Answer::Failed;
  return code == 0 || code == ECONNREFUSED ? Answer::Heard : Answer::Failed;
}

}  // namespace

void UcxEngine::stop_watching(Peer& peer) {
  for (const int probe : peer.watch.probes) ::close(probe);
  peer.watch = {};
}

// Whether a peer's host has answered one of the attempts to connect.
bool UcxEngine::host_answers(Watch& watch) {
  bool heard = false;
  std::erase_if(watch.probes, [&](int probe) {
    const Answer answer = answer_to(probe);
    heard |= answer == Answer::Heard;
    if (answer != Answer::None) ::close(probe);
    return answer != Answer::None;
  });
  return heard;
}

// Checks one peer from which something is awaited. Lowers `next` to the moment of the next check;
// returns true when the peer cannot be reached any more.
bool UcxEngine::watch_peer(Peer& peer, Duration moment, Duration& next) {
  Watch& watch = peer.watch;
  const Duration part = settings_.mend_limit / kParts;
  if (!watch.awaits || peer.fresh || host_answers(watch)) {
    stop_watching(peer);
    watch.awaits = true;
    watch.since = moment;
    peer.fresh = false;
  }
  const Duration quiet = moment - watch.since;
  if (quiet >= kAskAt * part && !watch.asked) {
    watch.asked = true;
    Frame frame;
    frame.kind = FrameKind::Ask;
    frame.channel = peer.link->remote_id;
    control(*peer.link, frame);
  }
  if (quiet >= kProbeAt * part) {
    if (watch.probe_at == Duration{}) {
      // If this process was suspended, `since` is long ago. So the time that the host has for an
      // answer begins with the first attempt to connect.
      watch.probe_at = moment;
      watch.limit = moment + (kParts - kProbeAt) * part;
    }
    if (moment >= watch.limit) return true;
    if (moment >= watch.probe_at) {
      watch.probe_at = moment + kAgain * part;
      if (const int probe = open_probe(*peer.where); probe >= 0) watch.probes.push_back(probe);
    }
    next = std::min(next, moment + kLook);
    return false;
  }
  next = std::min(next, watch.since + (watch.asked ? kProbeAt : kAskAt) * part);
  return false;
}

Duration UcxEngine::tick_watching(Duration moment) {
  Duration next = Duration::max();
  if (phase_ != Phase::Running) return next;
  std::vector<WorkerId> gone;
  for (auto& [id, peer] : peers_) {
    const bool open = peer.link != nullptr && peer.link->state == LinkState::Open && peer.where;
    const bool awaits = open && !(peer.receives.empty() && peer.sends.empty() && peer.sent.empty());
    if (!awaits) {
      if (peer.watch.awaits) stop_watching(peer);
    } else if (watch_peer(peer, moment, next)) {
      gone.push_back(id);
    }
  }
  for (const WorkerId id : gone) {
    Peer& peer = peers_[id];
    stop_watching(peer);
    const std::string why =
        cat("its host cannot be reached: nothing has come from ", peer.name, " for ",
            fixed(to_milliseconds(settings_.mend_limit), 0), " ms, and no connection is answered");
    if (peer.link != nullptr) end(*peer.link, lost_error(id, why));
    lose(id, why);
  }
  return next;
}

}  // namespace tenuto
