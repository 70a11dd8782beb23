// What only real processes and sockets show: death of a peer, strangers, an absent listener.
#include "transport/ucx.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "party.h"
#include "transport/ucx_engine.h"
#include "transport/ucx_frame.h"

extern char** environ;

namespace tenuto {
namespace {

constexpr int kCount = 8;
constexpr size_t kSize = 16 << 20;
constexpr size_t kSmall = 32 << 10;  // as in ucx_peer

// The helper program in a process of its own.
class Process {
 public:
  Process(const std::string& address, const std::string& what) {
    std::string program = TENUTO_UCX_PEER, where = address, mode = what;
    char* arguments[] = {program.data(), where.data(), mode.data(), nullptr};
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

class Death : public testing::TestWithParam<UcxProtocol> {};

TEST_P(Death, OfAnIdlePeerEndsAllOpenCalls) {
  Party host(make_ucx(ucx_settings(GetParam())), hello_of(0));
  std::vector<std::byte> word(1), buffer(100);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "idle");
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
  Party host(make_ucx(ucx_settings(GetParam())), hello_of(0));
  std::vector<std::byte> word(1);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "stream");
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
  Process heir(host.wire->address().text, "idle");
  const Duration limit = monotonic_clock().now() + kPatience;
  Done done;
  do {  // refused until the new process has said hello
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    done = host.end_of(host.recv(1, 1000, word));
  } while (!done.status.ok() && monotonic_clock().now() < limit);
  EXPECT_TRUE(done.status.ok());
}

TEST_P(Death, OfAStoppedPeerIsEndedByDrop) {
  Party host(make_ucx(ucx_settings(GetParam())), hello_of(0));
  std::vector<std::byte> word(1);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "stream");
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

// The peer is stopped while a message is on its way to it: a send ends at arrival only with
// `sends_end_there`.
TEST(Ucx, SendsCanEndAtTheirArrival) {
  for (const bool there : {false, true}) {
    UcxSettings settings;
    settings.sends_end_there = there;
    Party host(make_ucx(settings), hello_of(0));
    std::vector<std::byte> word(1), out(kSmall);
    const Ticket ready = host.recv(1, 1000, word);
    Process peer(host.wire->address().text, "listen");
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
  UcxSettings settings = ucx_settings(GetParam());
  settings.mend_limit = std::chrono::milliseconds(200);
  Party host(make_ucx(settings), hello_of(0));
  std::vector<std::byte> word(1), buffer(100);
  const Ticket ready = host.recv(1, 1000, word);
  Process peer(host.wire->address().text, "idle");
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

std::string name_of(const testing::TestParamInfo<UcxProtocol>& info) {
  switch (info.param) {
    case UcxProtocol::Automatic:
      return "Automatic";
    case UcxProtocol::Eager:
      return "Eager";
    default:
      return "Rendezvous";
  }
}

INSTANTIATE_TEST_SUITE_P(All, Death,
                         testing::Values(UcxProtocol::Automatic, UcxProtocol::Eager,
                                         UcxProtocol::Rendezvous),
                         name_of);

TEST(Ucx, AnAbsentListenerIsNamed) {
  UcxSettings settings = ucx_settings();
  settings.connect_limit = std::chrono::milliseconds(100);
  Party guest(make_ucx(settings), hello_of(0));
  const Status status = guest.connect(WorkerId{1}, {"127.0.0.1:1"});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::Timeout);
  EXPECT_EQ(status.error().reach, Reach::Link);
  EXPECT_NE(status.error().message.find("127.0.0.1:1 within 100 ms"), std::string::npos)
      << status.error().message;
}

TEST(Ucx, ConnectWaitsForTheListener) {
  UcxSettings settings = ucx_settings();
  {
    Party first(make_ucx(settings), hello_of(1));
    const std::string text = first.wire->address().text;
    settings.listen_port = static_cast<uint16_t>(std::stoi(text.substr(text.rfind(':') + 1)));
  }
  Party guest(make_ucx(ucx_settings()), hello_of(0));
  const Ticket ticket = guest.fresh();
  const Address address{"127.0.0.1:" + std::to_string(settings.listen_port)};
  ASSERT_TRUE(guest.wire->connect(WorkerId{1}, address, ticket).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  Party late(make_ucx(settings), hello_of(1));
  const Done done = guest.end_of(ticket);
  EXPECT_TRUE(done.status.ok()) << done.status.error().message;
}

TEST(Ucx, BadSettingsAreRefused) {
  QueueMailbox mailbox;
  UcxSettings settings;
  settings.device = "nosuch0";
  auto made = make_ucx_transport(settings, hello_of(0), mailbox);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("'nosuch0'"), std::string::npos) << made.error().message;
  settings = {};
  settings.listen_host = "192.0.2.1";
  made = make_ucx_transport(settings, hello_of(0), mailbox);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("192.0.2.1"), std::string::npos) << made.error().message;
  Hello hello = hello_of(0);
  hello.token = std::string(kFrameText + 1, 't');
  made = make_ucx_transport(ucx_settings(), hello, mailbox);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("its token 1025, at most 1024 each"), std::string::npos)
      << made.error().message;
  Party party(make_ucx(ucx_settings()), hello_of(0));
  for (const char* bad : {"", "nowhere", ":5", "127.0.0.1:", "127.0.0.1:sixty"}) {
    EXPECT_FALSE(party.wire->connect(WorkerId{1}, {bad}, Ticket{9}).ok()) << bad;
  }
}

// On a busy machine the work of opening a connection may come late; after it the wire sleeps.
TEST(Ucx, AQuietWireSleeps) {
  Party left(make_ucx(ucx_settings()), hello_of(0)), right(make_ucx(ucx_settings()), hello_of(1));
  ASSERT_TRUE(left.connect(right).ok());
  const auto& wire = static_cast<const UcxTransport&>(*left.wire);
  const Duration limit = monotonic_clock().now() + kPatience;
  int64_t woken = 0;
  do {
    const int64_t before = wire.counters().wake_ups;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    woken = wire.counters().wake_ups - before;
  } while (woken > 5 && monotonic_clock().now() < limit);
  EXPECT_LE(woken, 5);
}

// A raw UCX client that speaks no wire at all.
class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    ucp_config_t* config = nullptr;
    EXPECT_EQ(ucp_config_read(nullptr, nullptr, &config), UCS_OK);
    ucp_config_modify(config, "TLS", "tcp");
    ucp_config_modify(config, "NET_DEVICES", "lo");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM;
    EXPECT_EQ(ucp_init(&params, config, &context_), UCS_OK);
    ucp_config_release(config);
    ucp_worker_params_t worker{};
    EXPECT_EQ(ucp_worker_create(context_, &worker, &worker_), UCS_OK);
    const auto to = resolve(address);
    ucp_ep_params_t endpoint{};
    endpoint.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    endpoint.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    endpoint.sockaddr.addr = reinterpret_cast<const sockaddr*>(&to.value().storage);
    endpoint.sockaddr.addrlen = to.value().length;
    endpoint.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    endpoint.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) {};
    EXPECT_EQ(ucp_ep_create(worker_, &endpoint, &endpoint_), UCS_OK);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    finish(ucp_ep_close_nbx(endpoint_, &params));
    ucp_worker_destroy(worker_);
    ucp_cleanup(context_);
  }
  void progress() { ucp_worker_progress(worker_); }
  void say(unsigned id, std::string_view header, std::string_view data, uint32_t flags) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = flags;
    finish(ucp_am_send_nbx(endpoint_, id, header.data(), header.size(), data.data(), data.size(),
                           &params));
  }

 private:
  void finish(ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) return;
    const Duration limit = monotonic_clock().now() + std::chrono::seconds(5);
    while (ucp_request_check_status(request) == UCS_INPROGRESS && monotonic_clock().now() < limit) {
      ucp_worker_progress(worker_);
    }
    ucp_request_free(request);
  }

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

TEST(Ucx, StrangersAreCountedAndRefused) {
  UcxSettings settings = ucx_settings();
  settings.hello_limit = std::chrono::seconds(3);  // all words of the stranger come within it
  Party host(make_ucx(settings), hello_of(0));
  const auto& wire = static_cast<const UcxTransport&>(*host.wire);
  {
    Stranger stranger(host.wire->address().text);
    Random random(5);
    for (int i = 0; i < 20; ++i) {
      std::string junk;
      for (int64_t k = random.below(200); k >= 0; --k) junk += static_cast<char>(random.next());
      stranger.say(1, "", junk, UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY);
      stranger.say(2, junk.substr(0, 10), junk, UCP_AM_SEND_FLAG_EAGER);
      stranger.say(2, std::string(sizeof(DataHeader), 'x'), junk, UCP_AM_SEND_FLAG_EAGER);
    }
    const std::string large(100000, 'y');
    stranger.say(1, "", large, UCP_AM_SEND_FLAG_RNDV);
    stranger.say(2, std::string(sizeof(DataHeader), 'x'), large, UCP_AM_SEND_FLAG_RNDV);
    Frame grant;
    grant.kind = FrameKind::Grant;
    stranger.say(1, "", encode(grant), UCP_AM_SEND_FLAG_EAGER);
    const Duration limit = monotonic_clock().now() + kPatience;
    while (wire.counters().refused == 0 && monotonic_clock().now() < limit) {
      stranger.progress();
      host.drain(std::chrono::milliseconds(10));
    }
  }
  const UcxCounters counters = wire.counters();
  EXPECT_GE(counters.malformed, 41);
  EXPECT_GE(counters.unknown_grants, 21);
  EXPECT_EQ(counters.refused, 1) << "it never said hello";
  EXPECT_TRUE(host.losses.empty());
  Party guest(make_ucx(ucx_settings()), hello_of(1));
  EXPECT_TRUE(guest.connect(host).ok());
}

TEST(Ucx, UnidentifiedConnectionsAreLimited) {
  UcxSettings settings = ucx_settings();
  settings.most_strangers = 2;
  settings.hello_limit = std::chrono::milliseconds(500);
  Party host(make_ucx(settings), hello_of(0));
  const auto& wire = static_cast<const UcxTransport&>(*host.wire);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.push_back(std::make_unique<Stranger>(host.wire->address().text));
  }
  // The wire accepts two of these strangers and refuses them when they do not say hello in time. It
  // accepts no other while it waits for them.
  const Duration limit = monotonic_clock().now() + kPatience;
  while (wire.counters().refused < 2 && monotonic_clock().now() < limit) {
    for (auto& stranger : strangers) stranger->progress();
    host.drain(std::chrono::milliseconds(10));
  }
  EXPECT_GE(wire.counters().refused, 2);
  Party guest(make_ucx(ucx_settings()), hello_of(1));
  const Status status = guest.connect(host);
  EXPECT_TRUE(status.ok()) << status.error().message;
}

// `right` waits for eight messages of `left`, as many as are allowed, then for one more.
void await_too_many(bool right_connects) {
  UcxSettings settings = ucx_settings();
  settings.most_awaited = 8;
  Party left(make_ucx(settings), hello_of(0)), right(make_ucx(ucx_settings()), hello_of(1));
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
TEST(Ucx, APeerThatAwaitsTooManyMessagesIsLost) {
  for (const bool right_connects : {false, true}) {
    SCOPED_TRACE(right_connects);
    await_too_many(right_connects);
  }
}

// Records what a UCX client sends first to a listener: a whole connection request.
std::string connection_request() {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(where);
  EXPECT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&where), length), 0);
  EXPECT_EQ(::listen(listener, 1), 0);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&where), &length), 0);
  std::string request;
  {
    Stranger stranger("127.0.0.1:" + std::to_string(ntohs(where.sin_port)));
    const int connection = ::accept(listener, nullptr, nullptr);
    // It begins with a header of 16 bytes, whose first field is the length of the rest.
    constexpr size_t kHeader = 16;
    size_t wanted = kHeader;
    std::vector<char> bytes(1 << 16);
    const Duration limit = monotonic_clock().now() + std::chrono::seconds(60);
    while (request.size() < wanted && monotonic_clock().now() < limit) {
      stranger.progress();
      const ssize_t count = ::recv(connection, bytes.data(), bytes.size(), MSG_DONTWAIT);
      if (count <= 0) continue;
      request.append(bytes.data(), static_cast<size_t>(count));
      if (wanted == kHeader && request.size() >= kHeader) {
        uint64_t payload = 0;
        std::memcpy(&payload, request.data(), sizeof(payload));
        wanted += payload;
      }
    }
    EXPECT_EQ(request.size(), wanted);
    ::close(connection);
  }
  ::close(listener);
  return request;
}

// How many connections the listener at this address, in this process, has accepted.
size_t accepted_at(const SocketAddress& listener) {
  size_t count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end;
       each.increment(error)) {
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    const int descriptor = std::atoi(each->path().filename().c_str());
    if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        length == listener.length && std::memcmp(&local, &listener.storage, length) == 0) {
      ++count;
    }
  }
  return count - 1;  // the listener itself is counted, too
}

// UCX 1.13 keeps a pointer to its listener in a connection that has sent nothing yet, also after
// the listener is gone; a request that came then made it use freed memory. All connections are
// accepted before the first request is sent: UCX may tell an event of a closed connection to the
// next one that gets its descriptor, which is another defect.
TEST(Ucx, ARequestDuringShutdownIsHarmless) {
  const std::string request = connection_request();
  ASSERT_FALSE(request.empty());
  for (int round = 0; round < 60; ++round) {
    std::vector<int> sockets;
    std::thread late;
    {
      Party host(make_ucx(ucx_settings()), hello_of(0));
      const auto to = resolve(host.wire->address().text);
      for (int i = 0; i < 16; ++i) {
        sockets.push_back(::socket(AF_INET, SOCK_STREAM, 0));
        ASSERT_EQ(::connect(sockets.back(), reinterpret_cast<const sockaddr*>(&to.value().storage),
                            to.value().length),
                  0);
      }
      const Duration limit = monotonic_clock().now() + std::chrono::seconds(60);
      while (accepted_at(to.value()) < sockets.size() && monotonic_clock().now() < limit) {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
      ASSERT_EQ(accepted_at(to.value()), sockets.size());
      late = std::thread([&sockets, &request, round] {
        for (const int each : sockets) {
          ::send(each, request.data(), request.size(), MSG_NOSIGNAL);
          std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
        }
      });
    }
    late.join();
    for (const int each : sockets) ::close(each);
  }
}

TEST(Ucx, APortScanIsHarmless) {
  Party host(make_ucx(ucx_settings()), hello_of(0));
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
  Party guest(make_ucx(ucx_settings()), hello_of(1));
  EXPECT_TRUE(guest.connect(host).ok());
}

}  // namespace
}  // namespace tenuto
