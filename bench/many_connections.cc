#include "bench/many_connections.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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
#include "bench/line_process.h"
#include "bench/open_files.h"
#include "bench/processor_time.h"
#include "bench/transport_failure.h"
#include "transport/tcp/tcp.h"

namespace tenuto {
namespace {

constexpr Duration kLimit = std::chrono::seconds(60);
constexpr Duration kIdle = std::chrono::seconds(5);
constexpr int kReceives = 4;  // posted on each connection
// Open files of a wire in the child process, and others of a process.
constexpr int64_t kFilesEach = 8, kOtherFiles = 100;
constexpr double kMebibyte = 1 << 20;

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

// The child process with the other ends, from its start to its end.
class Peers {
 public:
  explicit Peers(int count) {
    std::array<int, 2> pipe{};
    if (::pipe(pipe.data()) != 0) die("no pipe");
    std::fflush(nullptr);
    child_ = fork();
    if (child_ < 0) die("cannot start the second process");
    if (child_ == 0) {
      ::close(pipe[0]);
      be_peers(count, pipe[1]);
      std::_Exit(0);
    }
    ::close(pipe[1]);
    lines_ = std::make_unique<LineReader>(pipe[0]);
  }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers() {
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    ::close(lines_->descriptor());
  }
  // The next line that the child wrote.
  std::string next() {
    const auto line = lines_->next(static_cast<int>(to_milliseconds(kLimit)));
    if (!line) die("the second process has ended, or says nothing");
    return *line;
  }

 private:
  pid_t child_ = -1;
  std::unique_ptr<LineReader> lines_;
};

// The share of a core that this process takes while nothing is sent.
double idle_share(Mailbox& mailbox) {
  const Duration begun = monotonic_clock().now();
  const double spent = process_milliseconds();
  if (mailbox.wait(kIdle).ok()) die("something came over a connection on which nothing is sent");
  return (process_milliseconds() - spent) / to_milliseconds(monotonic_clock().now() - begun);
}

}  // namespace

int print_connections(int count, bool json) {
  const int64_t files = int64_t{count} * kFilesEach + kOtherFiles;
  if (most_files() < files) {
    die(cat(count, " connections need ", files, " open files; allow them with ulimit -n"));
  }
  Peers peers(count);
  std::vector<std::string> addresses;
  for (int peer = 1; peer <= count; ++peer) addresses.push_back(peers.next());

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
  if (peers.next() != "all") die("the second process does not have all messages");
  const double mib = resident_mib() - before;
  const double share = idle_share(mailbox);
  std::printf(json ? "{\"connections\": %d, \"receives\": %d, \"mib\": %.2f, \"core\": %.5f}\n"
                   : "%d connections of one wire, with %d receives posted on each: %.2f MiB, and "
                     "%.5f of a core while nothing is sent\n",
              count, kReceives, mib, share);
  return 0;
}

}  // namespace tenuto
