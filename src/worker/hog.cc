#include "worker/hog.h"

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/host.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "transport/address.h"

namespace tenuto {
namespace {

// So much is handed to the kernel at once.
constexpr size_t kBlock = size_t{64} << 10;

// When the hog ends, on monotonic_clock(); none = it does not end by itself.
using End = std::optional<Duration>;

End end_of(const HogSettings& settings) {
  if (settings.for_ms <= 0) return std::nullopt;
  return monotonic_clock().now() + from_milliseconds(settings.for_ms);
}

bool is_over(const End& end) { return end && monotonic_clock().now() >= *end; }

void sleep_until(const End& end) {
  while (!end) pause();
  const Duration rest = *end - monotonic_clock().now();
  if (rest > Duration::zero()) std::this_thread::sleep_for(rest);
}

// Threads that are started later inherit the processors of the one that calls this.
Status use_processors_of(int process) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(process, sizeof(allowed), &allowed) == 0 &&
      sched_setaffinity(0, sizeof(allowed), &allowed) == 0) {
    return ok();
  }
  return Error{
      Code::Invalid, Reach::Job,
      cat("cannot compute on the processors of process ", process, ": ", std::strerror(errno))};
}

void compute(int32_t threads, const End& end) {
  std::atomic<bool> over = false;
  std::vector<std::thread> all;
  for (int32_t i = 0; i < threads; ++i) {
    all.emplace_back([&over] {
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  }
  sleep_until(end);
  over = true;
  for (std::thread& thread : all) thread.join();
}

// A socket that is closed with its owner.
class Socket {
 public:
  explicit Socket(int number) : number_(number) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

Error broken(const std::string& what) {
  return {Code::Exhausted, Reach::Job, cat("cannot ", what, ": ", std::strerror(errno))};
}

// Reads all that comes, until the other end is closed.
void discard(int descriptor) {
  std::array<char, kBlock> block{};
  while (true) {
    const ssize_t got = recv(descriptor, block.data(), block.size(), 0);
    if (got == 0 || (got < 0 && errno != EINTR)) return;
  }
}

// Sends until the end. With a rate it sleeps whenever it is ahead of it.
Status send_blocks(int descriptor, double bytes_per_second, const End& end) {
  const std::array<char, kBlock> block{};
  const Duration begin = monotonic_clock().now();
  double sent = 0;
  while (!is_over(end)) {
    const ssize_t count = send(descriptor, block.data(), block.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return broken("send bytes to itself");
    sent += static_cast<double>(count);
    if (bytes_per_second <= 0) continue;
    const Duration due = begin + from_nanoseconds(sent / bytes_per_second * 1e9);
    const Duration ahead = (end ? std::min(due, *end) : due) - monotonic_clock().now();
    if (ahead > Duration::zero()) std::this_thread::sleep_for(ahead);
  }
  return ok();
}

Status send_to_itself(const HogSettings& settings, const End& end) {
  const std::string address = address_of_device(settings.device);
  if (address.empty()) {
    return Error{Code::Invalid, Reach::Job,
                 cat("network.device = \"", settings.device,
                     "\" is no network device of this machine that is up and has an IPv4 address: "
                     "`ip -4 address` lists them")};
  }
  Result<SocketAddress> place = resolve(cat(address, ":0"), false);
  if (!place.ok()) return place.error();
  auto* where = reinterpret_cast<sockaddr*>(&place.value().storage);
  socklen_t length = place.value().length;
  const Socket door(socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (door.number() < 0) return broken("open a socket");
  if (bind(door.number(), where, length) != 0 || listen(door.number(), 1) != 0 ||
      getsockname(door.number(), where, &length) != 0) {
    return broken(cat("listen at ", address));
  }
  const Socket from(socket(where->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (from.number() < 0 || connect(from.number(), where, length) != 0) {
    return broken(cat("connect to ", address));
  }
  const Socket to(accept4(door.number(), nullptr, nullptr, SOCK_CLOEXEC));
  if (to.number() < 0) return broken(cat("accept a connection at ", address));
  std::thread reader([&to] { discard(to.number()); });
  const Status sent = send_blocks(from.number(), settings.megabytes_per_second * 1e6, end);
  shutdown(from.number(), SHUT_RDWR);
  reader.join();
  return sent;
}

}  // namespace

Status run_hog(const HogSettings& settings) {
  const End end = end_of(settings);
  if (settings.like != 0) {
    const Status bound = use_processors_of(settings.like);
    if (!bound.ok()) return bound;
  }
  if (settings.threads == 0) return send_to_itself(settings, end);
  compute(settings.threads, end);
  return ok();
}

}  // namespace tenuto
