#include "transport/tcp/epoll_sockets.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <span>

#include "base/clock.h"
#include "base/text.h"

namespace tenuto::tcp {

namespace {

// Bytes that the kernel takes before it has sent them. More would let less urgent bytes stand in
// front of more urgent ones; fewer would let the network wait for this process.
constexpr int kUnsent = 256 << 10;
constexpr int kBacklog = 1024;
constexpr int kEventsAtOnce = 64;
// Keep-alive: how often another host is asked at most before its silence is a break. The kernel
// counts in whole seconds, one at least until it asks and one for each answer, so a break takes
// two.
constexpr int kMostQuestions = 3;
constexpr size_t kMostSpans = 64;

std::string reason(int code) {
  std::array<char, 256> text{};
  return strerror_r(code, text.data(), text.size());
}

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof(value));
}

Io failed(int code) {
  if (code == EAGAIN || code == EWOULDBLOCK || code == EINTR) return {};
  const auto kind = code == ECONNREFUSED ? Io::Kind::Refused
                    : code == ETIMEDOUT  ? Io::Kind::Silent
                                         : Io::Kind::Failed;
  return {kind, 0, false, reason(code)};
}

// Waits until there are events, `limit` at most. Returns how many it has found, or -1.
int wait_for_events(int epoll, std::span<epoll_event> found, Duration limit) {
  const int most = static_cast<int>(found.size());
  const Duration bounded = std::min<Duration>(limit, std::chrono::hours(1));
  const timespec time{bounded.count() / 1'000'000'000, bounded.count() % 1'000'000'000};
  const int count = epoll_pwait2(epoll, found.data(), most, &time, nullptr);
  if (count >= 0 || errno != ENOSYS) return count;
  // Kernels before 5.11 wait in whole milliseconds.
  const auto rounded = (bounded + std::chrono::microseconds(999)) / std::chrono::milliseconds(1);
  return epoll_wait(epoll, found.data(), most, static_cast<int>(rounded));
}

class EpollSockets : public Sockets {
 public:
  explicit EpollSockets(Duration patience) : patience_(patience) {}
  EpollSockets(const EpollSockets&) = delete;
  EpollSockets& operator=(const EpollSockets&) = delete;
  ~EpollSockets() override {
    for (const int each : {listener_, wake_, epoll_}) {
      if (each >= 0) ::close(each);
    }
  }

  Status start();
  Result<std::string> listen(const std::string& host, uint16_t port) override;
  SocketId accept(SocketAddress& from) override;
  SocketId connect(const SocketAddress& to) override;
  Io read(SocketId socket, std::span<const std::span<std::byte>> to) override;
  Io write(SocketId socket, std::span<const std::span<const std::byte>> from) override;
  std::string binding(SocketId) const override { return {}; }
  void close(SocketId socket, bool reset) override;
  Delivery delivery(SocketId socket) const override;
  void wait(Duration limit, std::vector<SocketEvent>& events) override;
  void wake() override;
  Duration now() const override { return monotonic_clock().now(); }

 private:
  SocketId adopt(int socket);
  bool watch(int descriptor, uint32_t events);

  Duration patience_;
  int epoll_ = -1, wake_ = -1, listener_ = -1;
  std::map<int, int> unconnected_;  // sockets that could not begin to connect, and why
};

Status EpollSockets::start() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (epoll_ < 0 || wake_ < 0 || !watch(wake_, EPOLLIN | EPOLLET)) {
    return Error{Code::Exhausted, Reach::Worker,
                 "no more file descriptors for a wire: raise `ulimit -n`"};
  }
  return ok();
}

bool EpollSockets::watch(int descriptor, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  return epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

Result<std::string> EpollSockets::listen(const std::string& host, uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  const std::string name = v6 && host.front() != '[' ? cat("[", host, "]") : host;
  const auto where = resolve(cat(name, ":", port));
  if (!where.ok()) return where.error();
  const sockaddr_storage& storage = where.value().storage;
  listener_ = ::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener_ < 0) {
    return Error{Code::Exhausted, Reach::Worker, cat("no socket to listen at: ", reason(errno))};
  }
  set(listener_, SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  if (::bind(listener_, reinterpret_cast<const sockaddr*>(&storage), where.value().length) != 0 ||
      ::listen(listener_, kBacklog) != 0 || !watch(listener_, EPOLLIN | EPOLLET) ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return Error{Code::Disconnected, Reach::Worker,
                 cat("cannot listen at ", name, ":", port, ": ", reason(errno),
                     ": listen at an address of this machine and a free port")};
  }
  return cat(name, ":", port_of(bound));
}

// Watches a new connection. While nothing is under way, the kernel asks the other host for signs of
// life and gives up when none comes.
SocketId EpollSockets::adopt(int socket) {
  const auto whole = std::chrono::ceil<std::chrono::seconds>(patience_).count();
  const int patience = static_cast<int>(std::min<int64_t>(whole, 3600));
  const int pause = std::max(patience / (kMostQuestions + 1), 1);
  const int questions = std::clamp(patience / pause - 1, 1, kMostQuestions);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsent);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, pause);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, pause);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, questions);
  if (watch(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)) return SocketId{socket};
  ::close(socket);
  return kNoSocket;
}

SocketId EpollSockets::accept(SocketAddress& from) {
  while (true) {
    from.length = sizeof(from.storage);
    auto* const address = reinterpret_cast<sockaddr*>(&from.storage);
    const int socket = ::accept4(listener_, address, &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket >= 0) return adopt(socket);
    if (errno != ECONNABORTED && errno != EINTR) return kNoSocket;
  }
}

SocketId EpollSockets::connect(const SocketAddress& to) {
  const int socket = ::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return kNoSocket;
  const auto* address = reinterpret_cast<const sockaddr*>(&to.storage);
  const int code = ::connect(socket, address, to.length) == 0 ? 0 : errno;
  const SocketId made = adopt(socket);
  if (made != kNoSocket && code != 0 && code != EINPROGRESS) unconnected_[socket] = code;
  return made;
}

Io EpollSockets::read(SocketId socket, std::span<const std::span<std::byte>> to) {
  std::array<iovec, kMostSpans> spans;
  size_t wanted = 0, count = 0;
  for (; count < std::min(to.size(), kMostSpans); ++count) {
    spans[count] = {to[count].data(), to[count].size()};
    wanted += to[count].size();
  }
  msghdr message{};
  message.msg_iov = spans.data();
  message.msg_iovlen = count;
  const ssize_t size = ::recvmsg(static_cast<int>(socket), &message, MSG_DONTWAIT);
  if (size < 0) {
    const int code = errno;
    const auto known = unconnected_.find(static_cast<int>(socket));
    return failed(known != unconnected_.end() ? known->second : code);
  }
  if (size == 0) return {Io::Kind::Ended, 0, false, {}};
  const auto moved = static_cast<size_t>(size);
  return {Io::Kind::Moved, moved, moved == wanted, {}};
}

Io EpollSockets::write(SocketId socket, std::span<const std::span<const std::byte>> from) {
  std::array<iovec, kMostSpans> spans;
  size_t wanted = 0, count = 0;
  for (; count < std::min(from.size(), kMostSpans); ++count) {
    spans[count] = {const_cast<std::byte*>(from[count].data()), from[count].size()};
    wanted += from[count].size();
  }
  msghdr message{};
  message.msg_iov = spans.data();
  message.msg_iovlen = count;
  const ssize_t size = ::sendmsg(static_cast<int>(socket), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (size < 0) return failed(errno);
  const auto moved = static_cast<size_t>(size);
  return {Io::Kind::Moved, moved, moved == wanted, {}};
}

void EpollSockets::close(SocketId socket, bool reset) {
  const int descriptor = static_cast<int>(socket);
  if (reset) {
    const linger at_once{1, 0};
    ::setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  }
  unconnected_.erase(descriptor);
  ::close(descriptor);
}

Delivery EpollSockets::delivery(SocketId socket) const {
  const int descriptor = static_cast<int>(socket);
  tcp_info info{};
  socklen_t length = sizeof(info);
  int left = 0;
  const bool known = ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
                     ::ioctl(descriptor, SIOCOUTQ, &left) == 0;
  if (!known) return {};
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  Delivery delivery{info.tcpi_bytes_acked, static_cast<size_t>(left)};
  delivery.round_trip = microseconds(info.tcpi_rtt);
  delivery.variation = microseconds(info.tcpi_rttvar);
  delivery.bytes_per_second = static_cast<double>(info.tcpi_delivery_rate);
  delivery.held_up = info.tcpi_delivery_rate_app_limited != 0;
  // On a busy host acknowledgements come late, and packets that have arrived are sent again.
  delivery.repeated =
      info.tcpi_total_retrans - std::min(info.tcpi_total_retrans, info.tcpi_dsack_dups);
  // The kernel counts packets that were sent again until one of them is acknowledged. An answer
  // that acknowledges nothing, because a stopped process has no space left, is an answer, too: then
  // it is younger than the last packet. Questions for space are counted until any answer comes.
  const bool waits = info.tcpi_last_data_sent < info.tcpi_last_ack_recv;
  delivery.unanswered = (waits ? info.tcpi_retransmits : 0) + info.tcpi_probes;
  delivery.quiet = milliseconds(info.tcpi_last_ack_recv);
  delivery.busy = microseconds(info.tcpi_busy_time);
  delivery.unread = microseconds(info.tcpi_rwnd_limited);
  return delivery;
}

void EpollSockets::wait(Duration limit, std::vector<SocketEvent>& events) {
  std::array<epoll_event, kEventsAtOnce> found;
  const int count = wait_for_events(epoll_, found, limit);
  for (int i = 0; i < count; ++i) {
    const epoll_event& each = found[static_cast<size_t>(i)];
    if (each.data.fd == wake_) continue;  // each write is one event, whether it is read or not
    if (each.data.fd == listener_) {
      events.push_back({kNoSocket});
    } else {
      const bool over = (each.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      events.push_back({SocketId{each.data.fd}, over || (each.events & EPOLLIN) != 0,
                        over || (each.events & EPOLLOUT) != 0, over});
    }
  }
}

void EpollSockets::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
}

}  // namespace

Result<std::unique_ptr<Sockets>> make_epoll_sockets(Duration patience) {
  auto made = std::make_unique<EpollSockets>(patience);
  if (const Status status = made->start(); !status.ok()) return status.error();
  return std::unique_ptr<Sockets>(std::move(made));
}

}  // namespace tenuto::tcp
