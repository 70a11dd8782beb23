// What only real processes and sockets show, the same for each wire between processes: death of a
// peer, an absent listener, strangers that say nothing of ours.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "any_wire.h"
#include "held_port.h"
#include "transport/address.h"

extern char** environ;

namespace tenuto {
namespace {

constexpr int kCount = 8;
constexpr size_t kSize = 16 << 20;
constexpr size_t kSmall = 32 << 10;  // as in ucx_peer

// The helper program in a process of its own.
class Process {
 public:
  Process(const std::string& address, const std::string& what, WireKind kind) {
    const bool tls = kind == WireKind::TcpTls;
    std::string program = TENUTO_WIRE_PEER, where = address, mode = what,
                wire = kind <= WireKind::TcpTls ? "tcp" : "ucx";
    Tls pem = *test_tls();
    char* arguments[] = {program.data(),       where.data(),           mode.data(),    wire.data(),
                         pem.authority.data(), pem.certificate.data(), pem.key.data(), nullptr};
    if (!tls) arguments[4] = nullptr;
    const int code = posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environ);
    CHECK(code == 0, "the helper program does not start");
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { kill(); }
  // Returns when the process has stopped.
  void stop() {
    ::kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void go_on() { ::kill(pid_, SIGCONT); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
};

void expect_lost(const Done& done) {
  ASSERT_FALSE(done.status.ok());
  EXPECT_EQ(done.status.error().code, Code::Disconnected) << done.status.error().message;
  EXPECT_EQ(done.status.error().reach, Reach::Worker) << done.status.error().message;
  EXPECT_EQ(done.peer, WorkerId{1});
}

class RealWire : public testing::TestWithParam<WireKind> {};
class Death : public testing::TestWithParam<WireKind> {};

TEST_P(Death, OfAnIdlePeerEndsAllOpenCalls) {
  Party host(make_wire(GetParam()), hello_of(0));
  std::vector<std::byte> word(1), buffer(100);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "idle", GetParam());
  ASSERT_TRUE(host.end_of(ready).status.ok());
  std::vector<Ticket> tickets;
  for (int i = 0; i < kCount; ++i) {
    tickets.push_back(host.send(1, i, buffer));
    tickets.push_back(host.recv(1, i, buffer));
  }
  peer.kill();
  expect_lost(host.next_loss());
  for (const Ticket ticket : tickets) expect_lost(host.end_of(ticket));
  expect_lost(host.end_of(host.send(1, 50, buffer)));
  host.drain(std::chrono::milliseconds(50));
  EXPECT_TRUE(host.losses.empty()) << "one loss is reported once";
}

TEST_P(Death, InTheMiddleOfLargeMessagesBothWays) {
  Party host(make_wire(GetParam()), hello_of(0));
  std::vector<std::byte> word(1);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "stream", GetParam());
  ASSERT_TRUE(host.end_of(ready).status.ok());
  std::vector<std::vector<std::byte>> out(kCount, std::vector<std::byte>(kSize)), in = out;
  std::vector<Ticket> tickets;
  for (int i = 0; i < kCount; ++i) {
    if (i == kCount / 2) peer.stop();  // some messages are then half way on any machine
    tickets.push_back(host.send(1, i, out[i]));
    tickets.push_back(host.recv(1, i, in[i]));
  }
  peer.kill();
  expect_lost(host.next_loss());
  int lost = 0;
  for (const Ticket ticket : tickets) {
    const Done done = host.end_of(ticket);
    if (done.status.ok()) continue;
    ++lost;
    expect_lost(done);
  }
  EXPECT_GT(lost, 0);
  // The test owns the buffers again: the wire must not write to them any more.
  for (auto& buffer : in) paint(buffer, 0x33);
  host.drain(std::chrono::milliseconds(50));
  for (const auto& buffer : in) EXPECT_TRUE(painted(buffer, 0x33));
  EXPECT_TRUE(host.losses.empty());
  // Another process may take the place of the dead one.
  const Ticket back = host.recv(1, 2000, word);
  expect_lost(host.end_of(back));
  Process heir(host.wire->address().text, "idle", GetParam());
  const Duration limit = monotonic_clock().now() + kPatience;
  Done done;
  do {  // refused until the new process has said hello
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done = host.end_of(host.recv(1, 1000, word));
  } while (!done.status.ok() && monotonic_clock().now() < limit);
  EXPECT_TRUE(done.status.ok());
}

TEST_P(Death, OfAStoppedPeerIsEndedByDrop) {
  Party host(make_wire(GetParam()), hello_of(0));
  std::vector<std::byte> word(1);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "stream", GetParam());
  ASSERT_TRUE(host.end_of(ready).status.ok());
  peer.stop();
  std::vector<std::byte> out(kSize), in(kSize);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(host.send(1, i, out));
  tickets.push_back(host.recv(1, 0, in));
  EXPECT_TRUE(host.wire->drop(WorkerId{1}).ok());
  for (const Ticket ticket : tickets) {
    const Done done = host.end_of(ticket);
    if (!done.status.ok()) {
      EXPECT_EQ(done.status.error().code, Code::Cancelled);
    }
  }
  EXPECT_TRUE(host.losses.empty());
}

// A stopped process takes nothing, but its host answers: the peer is waited for.
TEST_P(Death, OfAStoppedPeerIsNotReported) {
  WireOptions settings;
  settings.mend_limit = std::chrono::milliseconds(300);
  Party host(make_wire(GetParam(), settings), hello_of(0));
  std::vector<std::byte> word(1);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "stream", GetParam());
  ASSERT_TRUE(host.end_of(ready).status.ok());
  peer.stop();
  std::vector<std::byte> out(kSize), in(kSize);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(host.send(1, i, out));
  tickets.push_back(host.recv(1, 0, in));
  host.drain(10 * *settings.mend_limit);
  EXPECT_TRUE(host.losses.empty());
  peer.go_on();
  for (const Ticket ticket : tickets) EXPECT_TRUE(host.end_of(ticket).status.ok());
  EXPECT_TRUE(host.losses.empty());
}

// The peer is stopped while a message is on its way to it: a send ends at arrival only with
// `sends_end_there`.
TEST_P(RealWire, SendsCanEndAtTheirArrival) {
  for (const bool there : {false, true}) {
    WireOptions settings;
    settings.sends_end_there = there;
    Party host(make_wire(GetParam(), settings), hello_of(0));
    std::vector<std::byte> word(1), out(kSmall);
    const Ticket ready = host.recv(1, 1000, word);
    Process peer(host.wire->address().text, "listen", GetParam());
    ASSERT_TRUE(host.end_of(ready).status.ok());
    peer.stop();
    const Ticket sent = host.send(1, 0, out);
    if (there) {
      host.drain(std::chrono::milliseconds(100));
      EXPECT_FALSE(host.has_ended(sent));
      peer.go_on();
    }
    EXPECT_TRUE(host.end_of(sent).status.ok());
  }
}

// A connection breaks, and its other end neither reconnects nor exits.
TEST_P(Death, OfAPeerThatDoesNotReconnectIsReported) {
  WireOptions settings;
  settings.mend_limit = std::chrono::milliseconds(200);
  Party host(make_wire(GetParam(), settings), hello_of(0));
  std::vector<std::byte> word(1), buffer(100);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "idle", GetParam());
  ASSERT_TRUE(host.end_of(ready).status.ok());
  peer.stop();
  const Ticket receiving = host.recv(1, 1, buffer);
  const Duration begin = monotonic_clock().now();
  EXPECT_TRUE(host.wire->break_connection(WorkerId{1}, 0).ok());
  const Done loss = host.next_loss();
  expect_lost(loss);
  EXPECT_NE(loss.status.error().message.find("no new connection within 200 ms"), std::string::npos)
      << loss.status.error().message;
  EXPECT_GE(monotonic_clock().now() - begin, settings.mend_limit);
  expect_lost(host.end_of(receiving));
}

TEST_P(RealWire, AnAbsentListenerIsNamed) {
  WireOptions settings;
  settings.connect_limit = std::chrono::milliseconds(100);
  Party guest(make_wire(GetParam(), settings), hello_of(0));
  const Status status = guest.connect(WorkerId{1}, {"127.0.0.1:1"});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::Timeout);
  EXPECT_EQ(status.error().reach, Reach::Link);
  EXPECT_NE(status.error().message.find("127.0.0.1:1 within 100 ms"), std::string::npos)
      << status.error().message;
}

TEST_P(RealWire, ConnectWaitsForTheListener) {
  const HeldPort port;
  WireOptions settings;
  settings.listen_port = port.number();
  Party guest(make_wire(GetParam()), hello_of(0));
  const Ticket ticket = guest.fresh();
  ASSERT_TRUE(guest.wire->connect(WorkerId{1}, Address{port.address()}, ticket).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  Party late(make_wire(GetParam(), settings), hello_of(1));
  const Done done = guest.end_of(ticket);
  EXPECT_TRUE(done.status.ok()) << done.status.error().message;
}

// `right` waits for eight messages of `left`, as many as are allowed, then for one more.
void await_too_many(WireKind kind, bool right_connects) {
  WireOptions settings;
  settings.most_awaited = 8;
  Party left(make_wire(kind, settings), hello_of(0)), right(make_wire(kind), hello_of(1));
  ASSERT_TRUE((right_connects ? right.connect(left) : left.connect(right)).ok());
  std::array<std::byte, 9> bytes{};
  const auto byte = [&](uint64_t name) { return std::span(bytes).subspan(name, 1); };
  std::vector<Ticket> awaited;
  for (uint64_t name = 0; name < 8; ++name) awaited.push_back(right.recv(0, name, byte(name)));
  const std::byte sent{7};
  EXPECT_TRUE(left.end_of(left.send(1, 0, std::span(&sent, 1))).status.ok());
  EXPECT_TRUE(right.end_of(awaited[0]).status.ok());
  EXPECT_EQ(bytes[0], sent);
  awaited.push_back(right.recv(0, 8, byte(8)));  // eight again
  EXPECT_TRUE(left.end_of(left.send(1, 8, std::span(&sent, 1))).status.ok());
  EXPECT_TRUE(right.end_of(awaited[8]).status.ok());
  right.recv(0, 9, byte(0));
  const Ticket beyond = right.recv(0, 10, byte(8));
  const Done lost = left.next_loss();
  EXPECT_EQ(lost.peer, WorkerId{1});
  EXPECT_EQ(lost.status.error().message,
            "worker 1 is lost: it has posted more than 8 messages that worker 0 has not sent");
  EXPECT_FALSE(right.end_of(beyond).status.ok());
  EXPECT_FALSE(right.end_of(awaited[1]).status.ok());
}

// A worker that waits for more messages than it may, which nobody sends, is lost, and both ends are
// told. If its request were only forgotten, it would wait until the step ends by silence.
TEST_P(RealWire, APeerThatAwaitsTooManyMessagesIsLost) {
  for (const bool right_connects : {false, true}) {
    SCOPED_TRACE(right_connects);
    await_too_many(GetParam(), right_connects);
  }
}

TEST_P(RealWire, APortScanIsHarmless) {
  Party host(make_wire(GetParam()), hello_of(0));
  const auto to = resolve(host.wire->address().text);
  for (int i = 0; i < 5; ++i) {
    const int probe = ::socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(
        ::connect(probe, reinterpret_cast<const sockaddr*>(&to.value().storage), to.value().length),
        0);
    const std::string request = "GET / HTTP/1.0\r\n\r\n";
    if (i > 0) {
      EXPECT_GT(::send(probe, request.data(), request.size(), MSG_NOSIGNAL), 0);
    }
    ::close(probe);
  }
  Party guest(make_wire(GetParam()), hello_of(1));
  EXPECT_TRUE(guest.connect(host).ok());
}

INSTANTIATE_TEST_SUITE_P(All, RealWire,
                         testing::Values(WireKind::Tcp, WireKind::TcpEvent, WireKind::TcpPoll,
                                         WireKind::TcpTls, WireKind::UcxAutomatic),
                         name_of_kind);
INSTANTIATE_TEST_SUITE_P(All, Death,
                         testing::Values(WireKind::Tcp, WireKind::TcpEvent, WireKind::TcpPoll,
                                         WireKind::TcpTls, WireKind::UcxAutomatic,
                                         WireKind::UcxEager, WireKind::UcxRendezvous),
                         name_of_kind);

}  // namespace
}  // namespace tenuto
