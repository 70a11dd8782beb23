#include "bench/many_connections.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/text.h"
#include "bench/processor_time.h"
#include "transport/tcp/tcp.h"

namespace tenuto {
namespace {

constexpr Duration kLimit = std::chrono::seconds(60);
constexpr Duration kIdle = std::chrono::seconds(5);
constexpr int kReceives = 4;  // posted on each connection
constexpr int kDescriptorsEach = 8;
constexpr double kMebibyte = 1 << 20;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "transport_bench: %s\n", why.c_str());
  std::_Exit(1);
}

void require(const Status& status) {
  if (!status.ok()) die(status.error().message);
}

// The memory of this process, in MiB.
double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  if (!(file >> all >> resident)) die("/proc/self/statm cannot be read");
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / kMebibyte;
}

std::unique_ptr<TcpTransport> make_wire(int self, WireProgress progress, Mailbox& mailbox) {
  TcpSettings settings;
  settings.progress = progress;
  settings.connect_limit = kLimit;
  auto made = make_tcp_transport(settings, {"bench", "bench", kWireVersion, {self}, 0}, mailbox);
  if (!made.ok()) die(made.error().message);
  return std::move(made).value();
}

Done wait(Mailbox& mailbox) {
  auto done = mailbox.wait(kLimit);
  if (!done.ok()) die(done.error().message);
  require(done.value().status);
  return std::move(done).value();
}

// The other ends: a wire for each connection, which receives a message and answers nothing. Writes
// their addresses, and a line when all messages are here.
void be_peers(int count, int descriptor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  FILE* out = ::fdopen(descriptor, "w");
  if (out == nullptr) die("no pipe");
  QueueMailbox mailbox;
  std::vector<std::unique_ptr<TcpTransport>> wires;
  std::vector<std::array<std::byte, 8>> words(static_cast<size_t>(count));
  for (int peer = 1; peer <= count; ++peer) {
    wires.push_back(make_wire(peer, WireProgress::Thread, mailbox));
    const Ticket ticket{static_cast<uint64_t>(peer)};
    require(wires.back()->recv({0}, {0, 0, 0}, words[static_cast<size_t>(peer - 1)], ticket));
    std::fprintf(out, "%s\n", wires.back()->address().text.c_str());
  }
  std::fflush(out);
  for (int i = 0; i < count; ++i) wait(mailbox);
  std::fprintf(out, "all\n");
  std::fflush(out);
  ::pause();
}

// More descriptors than most shells allow.
void allow_descriptors(int count) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto needed = static_cast<rlim_t>(count) * kDescriptorsEach + 100;
  if (limit.rlim_cur >= needed) return;
  limit.rlim_cur = needed;
  limit.rlim_max = std::max(limit.rlim_max, needed);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    die(cat(count, " connections need ", needed, " file descriptors; allow them with ulimit -n"));
  }
}

}  // namespace

int print_connections(int count) {
  allow_descriptors(count);
  std::array<int, 2> pipe{};
  if (::pipe(pipe.data()) != 0) die("no pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) die("cannot start the second process");
  if (child == 0) {
    ::close(pipe[0]);
    be_peers(count, pipe[1]);
    std::_Exit(0);
  }
  ::close(pipe[1]);
  FILE* in = ::fdopen(pipe[0], "r");
  if (in == nullptr) die("no pipe");
  std::array<char, 256> line{};
  std::vector<std::string> addresses;
  while (static_cast<int>(addresses.size()) < count) {
    if (std::fgets(line.data(), line.size(), in) == nullptr) die("the second process has ended");
    addresses.emplace_back(line.data());
    addresses.back().pop_back();
  }

  const double before = resident_mib();
  QueueMailbox mailbox;
  const auto wire = make_wire(0, WireProgress::Event, mailbox);
  std::vector<std::array<std::array<std::byte, 8>, kReceives>> words(static_cast<size_t>(count));
  uint64_t ticket = 0;
  for (int peer = 1; peer <= count; ++peer) {
    require(wire->connect({peer}, {addresses[static_cast<size_t>(peer - 1)]}, Ticket{++ticket}));
  }
  for (int i = 0; i < count; ++i) wait(mailbox);
  constexpr std::array<std::byte, 8> kWord{};
  for (int peer = 1; peer <= count; ++peer) {
    require(wire->send({peer}, {0, 0, 0}, kWord, {}, Ticket{++ticket}));
    for (uint64_t i = 0; i < kReceives; ++i) {
      require(
          wire->recv({peer}, {0, 1, i}, words[static_cast<size_t>(peer - 1)][i], Ticket{++ticket}));
    }
  }
  for (int i = 0; i < count; ++i) wait(mailbox);
  if (std::fgets(line.data(), line.size(), in) == nullptr) die("the second process has ended");
  const double took = resident_mib() - before;

  const Duration begun = monotonic_clock().now();
  const double spent = process_milliseconds();
  if (mailbox.wait(kIdle).ok()) die("something came over a connection on which nothing is sent");
  const double waited = std::chrono::duration<double>(monotonic_clock().now() - begun).count();
  const double share = (process_milliseconds() - spent) / 1e3 / waited;
  ::kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::printf(
      "%d connections of one wire, %d receives posted on each: %.1f MiB; while nothing is "
      "sent, %.3f %% of a core\n",
      count, kReceives, took, 100 * share);
  return 0;
}

}  // namespace tenuto
