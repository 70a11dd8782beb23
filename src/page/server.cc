#include "page/server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/text.h"
#include "transport/address.h"

namespace tenuto::page {
namespace {

constexpr int kBacklog = 128;
constexpr int kMostAccepted = 128;  // in one turn, so that those who are here get their turn
constexpr size_t kPiece = 16384;    // bytes that are read at once
constexpr Duration kDeaf = std::chrono::milliseconds(100);
constexpr Duration kSecond = std::chrono::seconds(1);

bool is_for_later(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string& address,
                                                       const ServerLimits& limits, Handler handler,
                                                       const Clock& clock) {
  const Result<SocketAddress> where = resolve(address);
  if (!where.ok()) return where.error();
  const auto* const generic = reinterpret_cast<const sockaddr*>(&where.value().storage);
  const int socket = ::socket(generic->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int one = 1;
  const bool listens =
      socket >= 0 && ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
      ::bind(socket, generic, where.value().length) == 0 && ::listen(socket, kBacklog) == 0;
  const int code = listens ? 0 : errno;
  const int waker = listens ? ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (waker < 0) {
    const std::string reason = std::strerror(listens ? errno : code);
    if (socket >= 0) ::close(socket);
    return invalid(cat("cannot listen at ", address, ": ", reason));
  }
  return std::unique_ptr<HttpServer>(
      new HttpServer(socket, waker, limits, std::move(handler), clock));
}

HttpServer::HttpServer(int listener, int waker, const ServerLimits& limits, Handler handler,
                       const Clock& clock)
    : listener_(listener),
      waker_(waker),
      limits_(limits),
      handler_(std::move(handler)),
      clock_(clock) {
  sockaddr_storage here{};
  socklen_t length = sizeof(here);
  if (::getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &length) == 0) {
    port_ = port_of(here);
  }
}

HttpServer::~HttpServer() {
  for (const auto& entry : connections_) ::close(entry.second.socket);
  ::close(listener_);
  ::close(waker_);
}

size_t HttpServer::bytes() const {
  size_t all = 0;
  for (const auto& entry : connections_) all += entry.second.bytes.size();
  return all;
}

void HttpServer::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(waker_, &one, sizeof(one));
}

void HttpServer::answer(int64_t ticket, HttpResponse response) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answered_.emplace_back(ticket, std::move(response));
  }
  wake();
}

// Rounded up, so that a turn does not end just before something is due.
int HttpServer::milliseconds_until_due(Duration limit) const {
  const Duration now = clock_.now();
  Duration least = limit;
  for (const auto& entry : connections_) least = std::min(least, entry.second.deadline - now);
  if (deaf_until_ > now) least = std::min(least, deaf_until_ - now);
  least = std::max(least, Duration::zero());
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(least).count());
}

void HttpServer::turn(Duration limit) {
  std::vector<pollfd> waits;
  std::vector<int64_t> tickets;
  const bool is_deaf = deaf_until_ > clock_.now();
  waits.push_back({waker_, POLLIN, 0});
  waits.push_back({is_deaf ? -1 : listener_, POLLIN, 0});
  for (const auto& [ticket, connection] : connections_) {
    const int state = connection.state == State::Writing   ? POLLOUT
                      : connection.state == State::Waiting ? 0
                                                           : POLLIN;
    waits.push_back({connection.socket, static_cast<short>(state), 0});
    tickets.push_back(ticket);
  }
  ::poll(waits.data(), waits.size(), milliseconds_until_due(limit));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(waker_, &count, sizeof(count));
  const Duration now = clock_.now();
  take_answers(now);
  for (size_t i = 0; i < tickets.size(); ++i) {
    const auto found = connections_.find(tickets[i]);
    if (found == connections_.end()) continue;
    const bool stays = waits[i + 2].revents == 0 || serve(tickets[i], found->second, now);
    if (!stays || !expire(found->second, now)) {
      ::close(found->second.socket);
      connections_.erase(found);
    }
  }
  if (!is_deaf) accept_all(now);
}

void HttpServer::accept_all(Duration now) {
  for (int count = 0; count < kMostAccepted; ++count) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      // Without this pause a process that may open no more files would turn without end.
      if (!is_for_later(errno) && errno != ECONNABORTED) deaf_until_ = now + kDeaf;
      return;
    }
    if (connections_.size() >= limits_.connections) {
      refuse_at_door(socket);
      continue;
    }
    Connection connection;
    connection.socket = socket;
    connection.deadline = now + limits_.read;
    connections_.emplace(next_ticket_++, std::move(connection));
  }
}

// What fits into the buffers of the kernel is said, and nothing is waited for. What the client has
// sent already is read before, because a socket that is closed with unread bytes takes its answer
// back.
void HttpServer::refuse_at_door(int socket) const {
  char thrown_away[4096];
  [[maybe_unused]] const ssize_t came =
      ::recv(socket, thrown_away, sizeof(thrown_away), MSG_DONTWAIT);
  HttpResponse busy = refusal(503, cat("the page serves ", limits_.connections,
                                       " connections already: try again in a second"));
  busy.headers = "Retry-After: 1\r\n";
  const std::string bytes = to_bytes(busy);
  [[maybe_unused]] const ssize_t sent =
      ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
  ::close(socket);
}

void HttpServer::take_answers(Duration now) {
  std::vector<std::pair<int64_t, HttpResponse>> answered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answered.swap(answered_);
  }
  for (const auto& [ticket, response] : answered) {
    const auto found = connections_.find(ticket);
    if (found == connections_.end() || found->second.state != State::Waiting) continue;
    if (say(found->second, response, now)) continue;
    ::close(found->second.socket);
    connections_.erase(found);
  }
}

bool HttpServer::serve(int64_t ticket, Connection& connection, Duration now) {
  switch (connection.state) {
    case State::Reading:
      return read(ticket, connection, now);
    case State::Waiting:
      return false;  // nothing was asked of poll(): the client is gone
    case State::Writing:
      return write(connection, now);
    case State::Leaving:
      break;
  }
  return leave(connection);
}

bool HttpServer::read(int64_t ticket, Connection& connection, Duration now) {
  char piece[kPiece];
  const ssize_t count = ::recv(connection.socket, piece, sizeof(piece), MSG_DONTWAIT);
  if (count < 0) return is_for_later(errno);
  if (count == 0) return false;
  connection.bytes.append(piece, static_cast<size_t>(count));
  const RequestReading reading = read_request(connection.bytes, limits_.request);
  if (reading.state == RequestReading::State::Partial) return true;
  if (reading.state == RequestReading::State::Refused) {
    return say(connection, reading.refusal, now);
  }
  connection.with_body = reading.request.method != "HEAD";
  if (!may_answer(now)) {
    HttpResponse busy = refusal(503, cat("the page answers ", limits_.answers,
                                         " requests a second: try again in a second"));
    busy.headers = "Retry-After: 1\r\n";
    return say(connection, busy, now);
  }
  const std::optional<HttpResponse> response = handler_(reading.request, ticket);
  if (response) return say(connection, *response, now);
  connection.state = State::Waiting;
  connection.deadline = now + limits_.wait;
  connection.bytes.clear();
  return true;
}

bool HttpServer::may_answer(Duration now) {
  const Duration second = now - now % kSecond;
  if (second != second_) {
    second_ = second;
    answers_ = 0;
  }
  return answers_++ < limits_.answers;
}

bool HttpServer::say(Connection& connection, const HttpResponse& response, Duration now) {
  connection.bytes = to_bytes(response, connection.with_body);
  connection.sent = 0;
  connection.state = State::Writing;
  connection.deadline = now + limits_.write;
  return write(connection, now);
}

bool HttpServer::write(Connection& connection, Duration now) {
  while (connection.sent < connection.bytes.size()) {
    const ssize_t count =
        ::send(connection.socket, connection.bytes.data() + connection.sent,
               connection.bytes.size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0) return is_for_later(errno);
    connection.sent += static_cast<size_t>(count);
  }
  ::shutdown(connection.socket, SHUT_WR);
  connection.state = State::Leaving;
  connection.deadline = now + limits_.linger;
  connection.bytes = {};
  return true;
}

bool HttpServer::leave(Connection& connection) const {
  char piece[kPiece];
  const ssize_t count = ::recv(connection.socket, piece, sizeof(piece), MSG_DONTWAIT);
  return count < 0 ? is_for_later(errno) : count > 0;
}

// What happens at a deadline: false = the connection is over.
bool HttpServer::expire(Connection& connection, Duration now) {
  if (now < connection.deadline) return true;
  switch (connection.state) {
    case State::Reading:
      return say(connection, refusal(408, "the request did not come in time"), now);
    case State::Waiting:
      return say(connection, refusal(504, "the coordinator did not answer in time"), now);
    case State::Writing:
    case State::Leaving:
      break;
  }
  return false;
}

}  // namespace tenuto::page
