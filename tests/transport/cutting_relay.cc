#include "cutting_relay.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "breaks.h"

namespace tenuto {

namespace {

constexpr size_t kAtOnce = 64 << 10;

int open_socket() {
  const int made = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(made >= 0, "no socket for a relay");
  return made;
}

void send_at_once(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

}  // namespace

CuttingRelay::CuttingRelay(const std::string& target, int64_t mean_bytes, uint64_t seed)
    : target_(resolve(target).value()),
      mean_bytes_(mean_bytes),
      random_(seed),
      until_break_(bytes_until_break(random_, mean_bytes)),
      listener_(open_socket()) {
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(here);
  auto* const address = reinterpret_cast<sockaddr*>(&here);
  CHECK(::bind(listener_, address, length) == 0 && ::listen(listener_, 64) == 0 &&
            ::getsockname(listener_, address, &length) == 0,
        "a relay cannot listen");
  address_ = cat("127.0.0.1:", ntohs(here.sin_port));
  thread_ = std::thread([this] { run(); });
}

CuttingRelay::~CuttingRelay() {
  ends_ = true;
  thread_.join();
  for (Pair& each : pairs_) close_both(each, true);
  ::close(listener_);
}

void CuttingRelay::run() {
  while (!ends_) {
    std::vector<pollfd> wanted{{listener_, POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      for (int i = 0; i < 2; ++i) {
        // What has not been passed on to the other side keeps this one waiting.
        const bool reads = !pair.sides[i].ended && pair.sides[1 - i].unsent.empty();
        const bool writes = !pair.sides[i].unsent.empty();
        const int events = (reads ? POLLIN : 0) | (writes ? POLLOUT : 0);
        wanted.push_back({events != 0 ? pair.sides[i].socket : -1, static_cast<short>(events), 0});
      }
    }
    if (::poll(wanted.data(), wanted.size(), 10) <= 0) continue;
    size_t next = 1;
    for (Pair& pair : pairs_) {
      for (int i = 0; i < 2; ++i) {
        const pollfd& found = wanted[next++];
        if (pair.over || found.revents == 0) continue;
        if ((found.events & POLLOUT) != 0) flush(pair, i);
        if (!pair.over && (found.events & POLLIN) != 0) pass(pair, i);
      }
    }
    std::erase_if(pairs_, [](const Pair& pair) { return pair.over; });
    if (wanted.front().revents != 0) accept_one();
  }
}

void CuttingRelay::accept_one() {
  const int accepted = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (accepted < 0) return;
  const int onward = open_socket();
  const auto* const where = reinterpret_cast<const sockaddr*>(&target_.storage);
  Pair& pair = pairs_.emplace_back();
  pair.sides[0].socket = accepted;
  pair.sides[1].socket = onward;
  for (const Side& each : pair.sides) send_at_once(each.socket);
  if (::connect(onward, where, target_.length) == 0) return;
  close_both(pair, true);
  pairs_.pop_back();
}

// Passes on what has come from one side, or breaks the connection at a drawn byte of it.
void CuttingRelay::pass(Pair& pair, int from) {
  std::vector<char> bytes(kAtOnce);
  const ssize_t count = ::recv(pair.sides[from].socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) return close_both(pair, true);
  Side& to = pair.sides[1 - from];
  if (count == 0) {
    pair.sides[from].ended = true;
    if (to.ended) return close_both(pair, false);
    ::shutdown(to.socket, SHUT_WR);
    return;
  }
  const bool breaks = until_break_ <= count;
  bytes.resize(static_cast<size_t>(breaks ? until_break_ : count));
  until_break_ -= count;
  to.unsent = std::move(bytes);
  flush(pair, 1 - from);
  if (!breaks) return;
  until_break_ = bytes_until_break(random_, mean_bytes_);
  if (pair.over) return;
  ++breaks_;
  close_both(pair, true);
}

void CuttingRelay::flush(Pair& pair, int to) {
  Side& side = pair.sides[to];
  if (side.unsent.empty()) return;
  const ssize_t count =
      ::send(side.socket, side.unsent.data(), side.unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) {
    side.unsent.erase(side.unsent.begin(), side.unsent.begin() + count);
  } else if (errno != EAGAIN && errno != EINTR) {
    close_both(pair, true);
  }
}

void CuttingRelay::close_both(Pair& pair, bool reset) {
  for (const Side& each : pair.sides) {
    const linger at_once{1, 0};
    if (reset) ::setsockopt(each.socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    ::close(each.socket);
  }
  pair.over = true;
}

}  // namespace tenuto
