// The UCX wire against plain blocking sockets, two processes over loopback TCP, in the same run:
// bandwidth with eight messages under way, and the one-way latency of 8 bytes. The variants take
// turns within each round, so that other load on the machine affects all equally; medians of the
// rounds are printed. The last line is the ratio that has a target.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "transport/ucx.h"

namespace tenuto {
namespace {

constexpr int kWindow = 8;
constexpr Duration kLimit = std::chrono::seconds(30);
constexpr std::array<size_t, 3> kSizes{64 << 10, 1 << 20, 16 << 20};
enum Variant : int32_t { Sockets, Automatic, Eager, Rendezvous, kVariants };
constexpr std::array<const char*, kVariants> kNames{"plain sockets", "ucx auto", "ucx eager",
                                                    "ucx rendezvous"};

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "transport_bench: %s\n", why.c_str());
  std::_Exit(1);
}

void require(const Status& status) {
  if (!status.ok()) die(status.error().message);
}

// A blocking socket between the two processes.
class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {
    const int one = 1;
    setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  void write(const void* data, size_t size) const {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t count = ::send(descriptor_, at, size, MSG_NOSIGNAL);
      if (count <= 0) die("the other process is gone");
      at += count;
      size -= static_cast<size_t>(count);
    }
  }
  void read(void* data, size_t size) const {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t count = ::recv(descriptor_, at, size, 0);
      if (count <= 0) die("the other process is gone");
      at += count;
      size -= static_cast<size_t>(count);
    }
  }

 private:
  int descriptor_;
};

// A measurement that the parent asks the child to take part in.
struct Task {
  int32_t variant = -1;  // -1: the end
  int32_t latency = 0;   // ping-pong instead of a stream
  int64_t size = 0, count = 0, round = 0;
};

// One process's ends of all connections.
struct Side {
  std::unique_ptr<Socket> socket;
  std::array<std::unique_ptr<QueueMailbox>, kVariants> mailbox;
  std::array<std::unique_ptr<UcxTransport>, kVariants> wire;
  WorkerId peer;
  std::vector<std::vector<std::byte>> buffers;
  uint64_t ticket = 0;

  void open(int self) {
    peer = WorkerId{1 - self};
    buffers.assign(kWindow, std::vector<std::byte>(kSizes.back(), std::byte{1}));
    for (int variant = Automatic; variant < kVariants; ++variant) {
      UcxSettings settings;
      settings.protocol = variant == Automatic ? UcxProtocol::Automatic
                          : variant == Eager   ? UcxProtocol::Eager
                                               : UcxProtocol::Rendezvous;
      mailbox[variant] = std::make_unique<QueueMailbox>();
      auto made = make_ucx_transport(settings, {"bench", "bench", kWireVersion, WorkerId{self}, 0},
                                     *mailbox[variant]);
      if (!made.ok()) die(made.error().message);
      wire[variant] = std::move(made).value();
    }
  }
  void recv(const Task& task, int64_t message) {
    const std::span<std::byte> bytes(buffers[message % kWindow].data(), task.size);
    require(wire[task.variant]->recv(peer, {0, task.round, static_cast<uint64_t>(message)}, bytes,
                                     Ticket{++ticket}));
  }
  void send(const Task& task, int64_t message) {
    const std::span<const std::byte> bytes(buffers[message % kWindow].data(), task.size);
    require(wire[task.variant]->send(peer, {0, task.round, static_cast<uint64_t>(message)}, bytes,
                                     {}, Ticket{++ticket}));
  }
  Done wait(int variant) {
    const auto done = mailbox[variant]->wait(kLimit);
    if (!done.ok()) die(done.error().message);
    require(done.value().status);
    return done.value();
  }
};

// Both ends of a task; the returned time is the parent's.
void stream_in(Side& side, const Task& task) {
  char all = 1;
  if (task.variant == Sockets) {
    side.socket->write(&all, 1);
    for (int64_t i = 0; i < task.count; ++i) {
      side.socket->read(side.buffers[i % kWindow].data(), task.size);
    }
  } else {
    const int64_t ahead = std::min<int64_t>(kWindow, task.count);
    for (int64_t i = 0; i < ahead; ++i) side.recv(task, i);
    side.socket->write(&all, 1);
    for (int64_t i = 0; i < task.count; ++i) {
      side.wait(task.variant);
      if (i + ahead < task.count) side.recv(task, i + ahead);
    }
  }
  side.socket->write(&all, 1);
}

Duration stream_out(Side& side, const Task& task) {
  char all = 0;
  side.socket->read(&all, 1);
  const Duration start = monotonic_clock().now();
  if (task.variant == Sockets) {
    for (int64_t i = 0; i < task.count; ++i) {
      side.socket->write(side.buffers[i % kWindow].data(), task.size);
    }
  } else {
    const int64_t ahead = std::min<int64_t>(kWindow, task.count);
    for (int64_t i = 0; i < ahead; ++i) side.send(task, i);
    for (int64_t i = 0; i < task.count; ++i) {
      side.wait(task.variant);
      if (i + ahead < task.count) side.send(task, i + ahead);
    }
  }
  side.socket->read(&all, 1);
  return monotonic_clock().now() - start;
}

Duration ping_pong(Side& side, const Task& task, bool first) {
  const Duration start = monotonic_clock().now();
  if (task.variant == Sockets) {
    for (int64_t i = 0; i < task.count; ++i) {
      if (first) side.socket->write(side.buffers[0].data(), task.size);
      side.socket->read(side.buffers[0].data(), task.size);
      if (!first) side.socket->write(side.buffers[0].data(), task.size);
    }
    return monotonic_clock().now() - start;
  }
  // The receive of the next turn is posted before this turn's send, as a schedule would.
  side.recv(task, 0);
  if (first) side.send(task, 0);
  for (int64_t i = 0; i < task.count;) {
    const Done done = side.wait(task.variant);
    if (done.finish == Duration::zero()) continue;  // a send has ended
    if (i + 1 < task.count) side.recv(task, i + 1);
    if (!first) side.send(task, i);
    if (first && i + 1 < task.count) side.send(task, i + 1);
    ++i;
  }
  return monotonic_clock().now() - start;
}

// Empties the mailbox, so that no report of this task is left when the next one starts.
void drain(Side& side, const Task& task) {
  if (task.variant == Sockets) return;
  while (side.mailbox[task.variant]->wait(std::chrono::milliseconds(5)).ok()) continue;
}

Duration take_part(Side& side, const Task& task, bool parent) {
  Duration time{};
  if (task.latency != 0) {
    time = ping_pong(side, task, parent);
  } else if (parent) {
    time = stream_out(side, task);
  } else {
    stream_in(side, task);
  }
  drain(side, task);
  return time;
}

void child(int descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Side side;
  side.socket = std::make_unique<Socket>(descriptor);
  side.open(1);
  for (int variant = Automatic; variant < kVariants; ++variant) {
    const std::string text = side.wire[variant]->address().text;
    const auto length = static_cast<int64_t>(text.size());
    side.socket->write(&length, sizeof(length));
    side.socket->write(text.data(), text.size());
  }
  for (Task task;;) {
    side.socket->read(&task, sizeof(task));
    if (task.variant < 0) break;
    take_part(side, task, false);
  }
  for (int variant = Automatic; variant < kVariants; ++variant) {
    require(side.wire[variant]->close(kLimit));
  }
}

// Two ends of one loopback TCP connection.
std::array<int, 2> loopback_pair() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int near = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::bind(listener, generic, length) != 0 || ::listen(listener, 1) != 0 ||
      ::getsockname(listener, generic, &length) != 0 || ::connect(near, generic, length) != 0) {
    die("no loopback connection");
  }
  const int far = ::accept(listener, nullptr, nullptr);
  ::close(listener);
  return {near, far};
}

void meet(Side& side) {
  for (int variant = Automatic; variant < kVariants; ++variant) {
    int64_t length = 0;
    side.socket->read(&length, sizeof(length));
    std::string text(static_cast<size_t>(length), ' ');
    side.socket->read(text.data(), text.size());
    require(side.wire[variant]->connect(side.peer, {text}, Ticket{++side.ticket}));
    side.wait(variant);
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// figures[column][variant]: MB/s for each size, then the latency in microseconds.
using Figures = std::array<std::array<std::vector<double>, kVariants>, kSizes.size() + 1>;

Figures measure(Side& side, int rounds) {
  Figures figures;
  int64_t turn = 0;
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    for (size_t column = 0; column <= kSizes.size(); ++column) {
      for (int32_t step = 0; step < kVariants; ++step) {
        Task task;
        task.variant = (step + round + 1) % kVariants;
        task.latency = column == kSizes.size() ? 1 : 0;
        task.size = task.latency != 0 ? 8 : static_cast<int64_t>(kSizes[column]);
        task.count = task.latency != 0 ? 1000 : std::max<int64_t>(16, (192 << 20) / task.size);
        task.round = ++turn;
        side.socket->write(&task, sizeof(task));
        const double seconds = std::chrono::duration<double>(take_part(side, task, true)).count();
        const auto bytes = static_cast<double>(task.size * task.count);
        const double figure = task.latency != 0
                                  ? seconds / static_cast<double>(2 * task.count) * 1e6
                                  : bytes / seconds / 1e6;
        if (round >= 0) figures[column][task.variant].push_back(figure);
      }
    }
  }
  return figures;
}

void print(const Figures& figures, int rounds, bool json) {
  if (!json) {
    std::printf("two processes, loopback TCP, window %d, medians of %d interleaved rounds\n",
                kWindow, rounds);
    std::printf("%-16s %14s %14s %14s %12s\n", "wire", "64 KiB MB/s", "1 MiB MB/s", "16 MiB MB/s",
                "8 B us");
  }
  std::string rows;
  for (int variant = 0; variant < kVariants; ++variant) {
    std::array<double, kSizes.size() + 1> row{};
    for (size_t i = 0; i < row.size(); ++i) row[i] = median(figures[i][variant]);
    if (!json) {
      std::printf("%-16s %14.0f %14.0f %14.0f %12.1f\n", kNames[variant], row[0], row[1], row[2],
                  row[3]);
    }
    rows += cat(rows.empty() ? "" : ", ", "{\"name\": \"", kNames[variant],
                "\", \"mb_s_64k\": ", row[0], ", \"mb_s_1m\": ", row[1], ", \"mb_s_16m\": ", row[2],
                ", \"latency_us\": ", row[3], "}");
  }
  // The median of the rounds' ratios: a slow moment affects both sides of a round.
  std::vector<double> ratios;
  for (size_t i = 0; i < figures[1][Sockets].size(); ++i) {
    ratios.push_back(figures[1][Automatic][i] / figures[1][Sockets][i]);
  }
  const double ratio = median(ratios);
  if (json) {
    std::printf("{\"rounds\": %d, \"wires\": [%s], \"ratio_1m\": %.3f}\n", rounds, rows.c_str(),
                ratio);
  } else {
    std::printf("ucx auto / plain sockets at 1 MiB: %.2f (at least 0.90 is wanted)\n", ratio);
  }
}

int run(int rounds, bool json) {
  const auto [near, far] = loopback_pair();
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) die("cannot start the second process");
  if (pid == 0) {
    ::close(near);
    child(far);
    std::_Exit(0);
  }
  ::close(far);
  Side side;
  side.socket = std::make_unique<Socket>(near);
  side.open(0);
  meet(side);
  const Figures figures = measure(side, rounds);
  const Task end;
  side.socket->write(&end, sizeof(end));
  for (int variant = Automatic; variant < kVariants; ++variant) {
    require(side.wire[variant]->close(kLimit));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  print(figures, rounds, json);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  bool json = false;
  int rounds = 9;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--json") {
      json = true;
    } else if (argument == "--rounds" && i + 1 < count && std::atoi(arguments[i + 1]) > 0) {
      rounds = std::atoi(arguments[++i]);
    } else {
      std::fprintf(stderr,
                   "transport_bench: unknown argument '%s'; usage: transport_bench [--json] "
                   "[--rounds COUNT]\n",
                   argument.c_str());
      return 2;
    }
  }
  return tenuto::run(rounds, json);
}
