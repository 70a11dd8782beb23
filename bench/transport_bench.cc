// Compares the wires with plain blocking sockets, between two processes over loopback TCP:
// bandwidth with eight messages under way, the time of a message of 8 bytes with eight under way,
// the one-way latency of a single message of 8 bytes, and the processor time of both processes.
// Plain sockets write without waiting for the reader. "Answered sockets" are the same sockets with
// an answer of one byte for each message, of which at most eight wait for theirs: a wire waits for
// its receiver, too, which posts a receive for each message.
//
// In each round every wire is measured once, so that other load on the machine affects all of them
// equally; the medians over the rounds are printed. With --connections, the program measures
// instead the memory and the processor time of one wire that has many connections.
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
#include "bench/many_connections.h"
#include "bench/processor_time.h"
#include "bench/transport_failure.h"
#include "tests/transport/test_certificates.h"
#include "transport/tcp/tcp.h"
#include "transport/ucx/ucx.h"

namespace tenuto {
namespace {

constexpr int kWindow = 8;
constexpr Duration kLimit = std::chrono::seconds(30);
// What is measured: messages of a size, with kWindow of them under way or one after the other.
struct Column {
  const char* key;
  const char* title;
  int64_t size = 0, count = 0;
  bool alone = false;
  const char* processor_key = nullptr;  // of the processor time for a GB; null = not measured
  bool is_time() const { return size < 1024; }  // time per message, not bytes per second
};
constexpr std::array<Column, 5> kColumns{
    {{"us_8b_window", "8 B us", 8, 8000, false},
     {"mb_s_64k", "64 KiB MB/s", 64 << 10, 2048, false},
     {"mb_s_1m", "1 MiB MB/s", 1 << 20, 128, false, "processor_s_1m"},
     {"mb_s_64m", "64 MiB MB/s", 64 << 20, 4, false, "processor_s_64m"},
     {"latency_us", "8 B alone us", 8, 1000, true}}};
constexpr size_t kOneMebibyte = 2;     // the column that has a target
constexpr size_t kMemory = 128 << 20;  // that the messages lie in; the largest share it
enum Variant : int32_t {
  Sockets,
  Answered,
  Tcp,
  TcpEvent,
  TcpAuto,
  TcpPoll,
  TcpTls,
  Automatic,
  Eager,
  Rendezvous,
  kVariants
};
constexpr std::array<const char*, kVariants> kNames{
    "plain sockets", "answered sockets", "tcp",      "tcp event", "tcp auto",
    "tcp poll",      "tcp with TLS",     "ucx auto", "ucx eager", "ucx rendezvous"};
constexpr int32_t kProcesses = 2;

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

// How many messages of a task are under way at once: as many as the memory has places.
int64_t window_of(const Task& task) {
  return std::min<int64_t>(kWindow, static_cast<int64_t>(kMemory) / task.size);
}

// One process's ends of all connections.
struct Side {
  std::unique_ptr<Socket> socket;
  std::array<std::unique_ptr<QueueMailbox>, kVariants> mailbox;
  std::array<std::unique_ptr<Transport>, kVariants> wire;
  WorkerId peer;
  std::vector<std::byte> memory;
  uint64_t ticket = 0;

  void open(int self, const std::shared_ptr<const Tls>& tls) {
    peer = WorkerId{1 - self};
    memory.assign(kMemory, std::byte{1});
    for (int variant = Tcp; variant < kVariants; ++variant) {
      UcxSettings settings;
      settings.protocol = variant == Automatic ? UcxProtocol::Automatic
                          : variant == Eager   ? UcxProtocol::Eager
                                               : UcxProtocol::Rendezvous;
      mailbox[variant] = std::make_unique<QueueMailbox>();
      const Hello hello{"bench", "bench", kWireVersion, WorkerId{self}, 0};
      if (variant < Automatic) {
        TcpSettings tcp;
        tcp.progress = variant == TcpEvent  ? WireProgress::Event
                       : variant == TcpAuto ? WireProgress::Auto
                       : variant == TcpPoll ? WireProgress::Poll
                                            : WireProgress::Thread;
        tcp.workers_here = std::make_shared<std::atomic<int32_t>>(kProcesses);
        if (variant == TcpTls) tcp.tls = tls;
        auto made = make_tcp_transport(tcp, hello, *mailbox[variant]);
        if (!made.ok()) die(made.error().message);
        wire[variant] = std::move(made).value();
        continue;
      }
      auto made = make_ucx_transport(settings, hello, *mailbox[variant]);
      if (!made.ok()) die(made.error().message);
      wire[variant] = std::move(made).value();
    }
  }
  std::span<std::byte> buffer(const Task& task, int64_t message) {
    const auto size = static_cast<size_t>(task.size);
    return std::span(memory).subspan(static_cast<size_t>(message % window_of(task)) * size, size);
  }
  void recv(const Task& task, int64_t message) {
    const std::span<std::byte> bytes = buffer(task, message);
    require(wire[task.variant]->recv(peer, {0, task.round, static_cast<uint64_t>(message)}, bytes,
                                     Ticket{++ticket}));
  }
  void send(const Task& task, int64_t message) {
    const std::span<const std::byte> bytes = buffer(task, message);
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
  if (task.variant < Tcp) {
    side.socket->write(&all, 1);
    for (int64_t i = 0; i < task.count; ++i) {
      side.socket->read(side.buffer(task, i).data(), task.size);
      if (task.variant == Answered) side.socket->write(&all, 1);
    }
  } else {
    const int64_t ahead = std::min<int64_t>(window_of(task), task.count);
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
  if (task.variant < Tcp) {
    const int64_t ahead = task.variant == Answered ? window_of(task) : task.count;
    for (int64_t i = 0; i < task.count; ++i) {
      if (i >= ahead) side.socket->read(&all, 1);
      side.socket->write(side.buffer(task, i).data(), task.size);
    }
    if (task.variant == Answered) {
      for (int64_t i = std::min(ahead, task.count); i > 0; --i) side.socket->read(&all, 1);
    }
  } else {
    const int64_t ahead = std::min<int64_t>(window_of(task), task.count);
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
  if (task.variant < Tcp) {
    for (int64_t i = 0; i < task.count; ++i) {
      if (first) side.socket->write(side.memory.data(), task.size);
      side.socket->read(side.memory.data(), task.size);
      if (!first) side.socket->write(side.memory.data(), task.size);
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
  if (task.variant < Tcp) return;
  while (side.mailbox[task.variant]->wait(std::chrono::milliseconds(5)).ok()) continue;
}

// What a task took: of the parent its time, of each process the processor time of all threads.
struct Took {
  Duration time{};
  double processor_ms = 0;
};

Took take_part(Side& side, const Task& task, bool parent) {
  Took took;
  const double before = process_milliseconds();
  if (task.latency != 0) {
    took.time = ping_pong(side, task, parent);
  } else if (parent) {
    took.time = stream_out(side, task);
  } else {
    stream_in(side, task);
  }
  took.processor_ms = process_milliseconds() - before;
  drain(side, task);
  return took;
}

void child(int descriptor, const std::shared_ptr<const Tls>& tls) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Side side;
  side.socket = std::make_unique<Socket>(descriptor);
  side.open(1, tls);
  for (int variant = Tcp; variant < kVariants; ++variant) {
    const std::string text = side.wire[variant]->address().text;
    const auto length = static_cast<int64_t>(text.size());
    side.socket->write(&length, sizeof(length));
    side.socket->write(text.data(), text.size());
  }
  for (Task task;;) {
    side.socket->read(&task, sizeof(task));
    if (task.variant < 0) break;
    const double processor_ms = take_part(side, task, false).processor_ms;
    side.socket->write(&processor_ms, sizeof(processor_ms));
  }
  for (int variant = Tcp; variant < kVariants; ++variant) {
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
  for (int variant = Tcp; variant < kVariants; ++variant) {
    int64_t length = 0;
    side.socket->read(&length, sizeof(length));
    std::string text(static_cast<size_t>(length), ' ');
    side.socket->read(text.data(), text.size());
    require(side.wire[variant]->connect(side.peer, {text}, Ticket{++side.ticket}));
    side.wait(variant);
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Options {
  int rounds = 9;
  bool json = false;
  bool small = false;   // only messages of 8 bytes, over plain sockets and TCP
  int connections = 0;  // above 0: measure a wire with so many connections, and nothing else
  bool measures(const Column& column, int32_t variant) const {
    if (variant == Answered && column.alone) return false;  // the same as without answers
    return !small || (column.is_time() && variant < Automatic);
  }
};

// figures[column][variant]: of each round; empty = not measured.
using Figures = std::array<std::array<std::vector<double>, kVariants>, kColumns.size()>;

struct Measured {
  Figures speed;      // as the columns say
  Figures processor;  // seconds for a GB, of both processes
};

Measured measure(Side& side, const Options& options) {
  Measured measured;
  int64_t turn = 0;
  for (int round = -1; round < options.rounds; ++round) {  // the first one warms up
    for (size_t column = 0; column < kColumns.size(); ++column) {
      const Column& what = kColumns[column];
      for (int32_t step = 0; step < kVariants; ++step) {
        Task task;
        task.variant = (step + round + 1) % kVariants;
        if (!options.measures(what, task.variant)) continue;
        task.latency = what.alone ? 1 : 0;
        task.size = what.size;
        task.count = what.count;
        task.round = ++turn;
        side.socket->write(&task, sizeof(task));
        const Took took = take_part(side, task, true);
        double other_ms = 0;
        side.socket->read(&other_ms, sizeof(other_ms));
        const double seconds = std::chrono::duration<double>(took.time).count();
        const auto messages = static_cast<double>(what.alone ? 2 * task.count : task.count);
        const double figure = what.is_time()
                                  ? seconds / messages * 1e6
                                  : messages * static_cast<double>(task.size) / seconds / 1e6;
        if (round < 0) continue;
        measured.speed[column][task.variant].push_back(figure);
        if (what.processor_key == nullptr) continue;
        measured.processor[column][task.variant].push_back(
            (took.processor_ms + other_ms) / 1e3 /
            (messages * static_cast<double>(task.size) / 1e9));
      }
    }
  }
  return measured;
}

// The median over the rounds of a variant's figure divided by plain sockets' of the same round: a
// slow moment affects both sides.
double ratio(const Figures& figures, size_t column, int variant) {
  std::vector<double> ratios;
  for (size_t i = 0; i < figures[column][variant].size(); ++i) {
    ratios.push_back(figures[column][variant][i] / figures[column][Sockets][i]);
  }
  return median(ratios);
}

// Prints a figure, or that there is none.
void print_cell(bool measured, int digits, double figure) {
  measured ? std::printf(" %13.*f", digits, figure) : std::printf(" %13s", "-");
}

// A line for each wire: the processor time of both processes for a GB, and its ratio to that of
// plain sockets.
void print_processor(const Figures& figures) {
  std::printf(
      "\nprocessor time of both processes: seconds for a GB, and divided by that of plain sockets");
  for (int variant = 0; variant < kVariants; ++variant) {
    std::printf("\n%-16s", kNames[variant]);
    for (size_t i = 0; i < kColumns.size(); ++i) {
      if (kColumns[i].processor_key == nullptr) continue;
      std::printf("  %lld MiB: %.3f %.2fx", static_cast<long long>(kColumns[i].size >> 20),
                  median(figures[i][variant]), ratio(figures, i, variant));
    }
  }
}

void print_table(const Measured& measured, const Options& options) {
  const Figures& figures = measured.speed;
  std::printf("two processes, loopback TCP, window %d, medians of %d interleaved rounds\n%-16s",
              kWindow, options.rounds, "wire");
  for (const Column& column : kColumns) std::printf(" %13s", column.title);
  for (int variant = 0; variant < kVariants; ++variant) {
    std::printf("\n%-16s", kNames[variant]);
    for (size_t i = 0; i < kColumns.size(); ++i) {
      print_cell(options.measures(kColumns[i], variant), kColumns[i].is_time() ? 1 : 0,
                 median(figures[i][variant]));
    }
  }
  std::printf("\ndivided by plain sockets");
  for (const int variant : {Answered, Tcp, TcpEvent, TcpAuto, TcpPoll, TcpTls, Automatic}) {
    std::printf("\n%-16s", kNames[variant]);
    for (size_t i = 0; i < kColumns.size(); ++i) {
      print_cell(options.measures(kColumns[i], variant), 2, ratio(figures, i, variant));
    }
  }
  if (!options.small) print_processor(measured.processor);
  std::printf("\n");
  if (options.small) return;
  std::printf("ucx auto / plain sockets at 1 MiB: %.2f (at least 0.90 is wanted)\n",
              ratio(figures, kOneMebibyte, Automatic));
}

void print_json(const Measured& measured, const Options& options) {
  const Figures& figures = measured.speed;
  std::string rows;
  for (int variant = 0; variant < kVariants; ++variant) {
    rows += cat(rows.empty() ? "" : ", ", "{\"name\": \"", kNames[variant], "\"");
    for (size_t i = 0; i < kColumns.size(); ++i) {
      if (!options.measures(kColumns[i], variant)) continue;
      rows += cat(", \"", kColumns[i].key, "\": ", median(figures[i][variant]));
      if (kColumns[i].processor_key == nullptr) continue;
      rows +=
          cat(", \"", kColumns[i].processor_key, "\": ", median(measured.processor[i][variant]));
    }
    rows += "}";
  }
  std::printf("{\"rounds\": %d, \"wires\": [%s]", options.rounds, rows.c_str());
  if (!options.small) std::printf(", \"ratio_1m\": %.3f", ratio(figures, kOneMebibyte, Automatic));
  std::printf("}\n");
}

int run(const Options& options) {
  const auto [near, far] = loopback_pair();
  const auto tls = std::make_shared<const Tls>(TestAuthority(KeyKind::P256).certify("bench"));
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid < 0) die("cannot start the second process");
  if (pid == 0) {
    ::close(near);
    child(far, tls);
    std::_Exit(0);
  }
  ::close(far);
  Side side;
  side.socket = std::make_unique<Socket>(near);
  side.open(0, tls);
  meet(side);
  const Measured measured = measure(side, options);
  const Task end;
  side.socket->write(&end, sizeof(end));
  for (int variant = Tcp; variant < kVariants; ++variant) {
    require(side.wire[variant]->close(kLimit));
  }
  int status = 0;
  waitpid(pid, &status, 0);
  options.json ? print_json(measured, options) : print_table(measured, options);
  return status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  tenuto::Options options;
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    if (argument == "--json") {
      options.json = true;
    } else if (argument == "--small") {
      options.small = true;
    } else if (argument == "--rounds" && i + 1 < count && std::atoi(arguments[i + 1]) > 0) {
      options.rounds = std::atoi(arguments[++i]);
    } else if (argument == "--connections" && i + 1 < count && std::atoi(arguments[i + 1]) > 0) {
      options.connections = std::atoi(arguments[++i]);
    } else {
      std::fprintf(stderr,
                   "transport_bench: unknown argument '%s'; usage: transport_bench [--json] "
                   "[--small] [--rounds COUNT], or transport_bench --connections COUNT [--json]\n",
                   argument.c_str());
      return 2;
    }
  }
  if (options.connections > 0) return tenuto::print_connections(options.connections, options.json);
  return tenuto::run(options);
}
