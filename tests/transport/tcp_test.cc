// What only the wire over TCP has: its greeting, strangers at its port, peers that do not keep to
// the format, deaths and drops at any moment of a simulated network.
#include "transport/tcp/tcp.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "../sanitized.h"
#include "base/text.h"
#include "simulated_wires.h"
#include "stranger.h"
#include "tcp_party.h"
#include "transport/tcp/greeting.h"

namespace tenuto::tcp {
namespace {

using std::chrono::milliseconds;

Introduction introduction(int worker) {
  Introduction one;
  one.hello = hello_of(worker);
  one.instance = 70 + static_cast<uint64_t>(worker);
  one.expected = WorkerId{0};
  one.session = 5;
  one.address = "127.0.0.1:4711";
  return one;
}

Entropy counting(uint64_t seed) {
  return [random = Random(seed)](std::span<std::byte> bytes) mutable {
    for (std::byte& each : bytes) each = static_cast<std::byte>(random.next());
  };
}

// Moves what `from` has to say to `to`, a few bytes at a time.
Greeting::Step pass(Greeting& from, Greeting& to, size_t most, std::string* copy = nullptr) {
  Greeting::Step step = Greeting::Step::More;
  while (!from.output().empty() && step == Greeting::Step::More) {
    const auto landing = to.landing();
    const size_t count = std::min({most, landing.size(), from.output().size()});
    std::memcpy(landing.data(), from.output().data(), count);
    if (copy != nullptr) copy->append(reinterpret_cast<const char*>(landing.data()), count);
    from.written(count);
    step = to.take(count);
  }
  return step;
}

TEST(TcpGreeting, BothEndsProveThatTheyKnowTheToken) {
  for (const size_t most : {1, 3, 7, 1024}) {
    Greeting listener("secret", counting(1));
    Greeting dialler("secret", counting(2), introduction(3));
    EXPECT_EQ(pass(listener, dialler, most), Greeting::Step::More);
    std::string hello;
    EXPECT_EQ(pass(dialler, listener, most, &hello), Greeting::Step::Proven);
    EXPECT_EQ(hello.find("secret"), std::string::npos) << "the token travels";
    EXPECT_EQ(listener.theirs().hello.self, WorkerId{3});
    EXPECT_EQ(listener.theirs().hello.job, "tale");
    EXPECT_EQ(listener.theirs().instance, 73u);
    EXPECT_EQ(listener.theirs().address, "127.0.0.1:4711");
    listener.welcome(introduction(0));
    EXPECT_EQ(pass(listener, dialler, most), Greeting::Step::Welcomed);
    EXPECT_EQ(dialler.theirs().hello.self, WorkerId{0});
  }
}

TEST(TcpGreeting, ARefusalIsProvedToo) {
  Greeting listener("secret", counting(1));
  Greeting dialler("secret", counting(2), introduction(3));
  pass(listener, dialler, 1024);
  pass(dialler, listener, 1024);
  listener.refuse("it is of epoch 4");
  EXPECT_EQ(pass(listener, dialler, 1024), Greeting::Step::Refused);
  EXPECT_EQ(dialler.text(), "it is of epoch 4");
}

TEST(TcpGreeting, AnotherTokenIsFoundOutAtBothEnds) {
  Greeting listener("secret", counting(1)), guesser("guess", counting(3));
  Greeting dialler("guess", counting(2), introduction(3));
  pass(listener, dialler, 1024);
  EXPECT_EQ(pass(dialler, listener, 1024), Greeting::Step::Unproven);
  listener.refuse_stranger();
  EXPECT_EQ(pass(listener, dialler, 1024), Greeting::Step::Stranger);
  // A listener without the token that claims to have understood.
  Greeting honest("secret", counting(4), introduction(3));
  pass(guesser, honest, 1024);
  EXPECT_EQ(pass(honest, guesser, 1024), Greeting::Step::Unproven);
  guesser.welcome(introduction(0));
  EXPECT_EQ(pass(guesser, honest, 1024), Greeting::Step::Unproven);
}

TEST(TcpGreeting, ARecordedHelloIsWorthNothing) {
  Greeting first("secret", counting(1)), second("secret", counting(9));
  Greeting dialler("secret", counting(2), introduction(3));
  std::string hello;
  pass(first, dialler, 1024);
  EXPECT_EQ(pass(dialler, first, 1024, &hello), Greeting::Step::Proven);
  Greeting::Step step = Greeting::Step::More;
  for (size_t at = 0; step == Greeting::Step::More;) {
    const auto landing = second.landing();
    std::memcpy(landing.data(), hello.data() + at, landing.size());
    at += landing.size();
    step = second.take(landing.size());
  }
  EXPECT_EQ(step, Greeting::Step::Unproven);
}

TEST(TcpGreeting, EveryChangedBitIsFoundOut) {
  Random random(4);
  for (int i = 0; i < 2000; ++i) {
    Greeting listener("secret", counting(1)), dialler("secret", counting(2), introduction(3));
    pass(listener, dialler, 1024);
    const auto said = dialler.output();
    std::string hello(reinterpret_cast<const char*>(said.data()), said.size());
    hello[static_cast<size_t>(random.below(static_cast<int64_t>(hello.size())))] ^=
        static_cast<char>(1 << random.below(8));
    Greeting::Step step = Greeting::Step::More;
    for (size_t at = 0; step == Greeting::Step::More && at < hello.size();) {
      const auto landing = listener.landing();
      const size_t count = std::min(landing.size(), hello.size() - at);
      std::memcpy(landing.data(), hello.data() + at, count);
      at += count;
      step = listener.take(count);
    }
    EXPECT_NE(step, Greeting::Step::Proven);
  }
}

const TcpTransport& tcp(Party& party) { return static_cast<const TcpTransport&>(*party.wire); }

void strangers_harm_nobody(const TcpSettings& settings) {
  Party host(make_tcp(settings), hello_of(0)), friendly(make_tcp(settings), hello_of(1));
  ASSERT_TRUE(friendly.connect(host).ok());
  Random random(5);
  std::vector<std::byte> bytes(1000), got(1000);
  uint64_t name = 0;
  for (size_t length = 1; length <= 65536; length = 2 * length + 1) {
    std::string junk;
    for (size_t i = 0; i < length; ++i) junk += static_cast<char>(random.next());
    for (const std::string& text : {junk, "GET / HTTP/1.1\r\n" + junk, std::string(length, '\0')}) {
      const Stranger stranger(host.wire->address().text);
      stranger.say(text);
      // What is shorter than the head of a greeting is waited for, until hello_limit.
      EXPECT_TRUE(length < 8 || stranger.listen() <= 64);
    }
    const Ticket receiving = friendly.recv(0, ++name, got);
    EXPECT_TRUE(host.end_of(host.send(1, name, bytes)).status.ok());
    EXPECT_TRUE(friendly.end_of(receiving).status.ok());
  }
  EXPECT_GT(tcp(host).counters().malformed, 30);
  EXPECT_TRUE(host.losses.empty());
  EXPECT_EQ(tcp(host).counters().broken, 0);
}

TEST(Tcp, StrangersAreRefusedAndHarmNobody) { strangers_harm_nobody({}); }

TEST(Tcp, StrangersHarmNobodyOverTls) { strangers_harm_nobody(tls_settings()); }

// How many bytes a silent stranger gets until it is closed.
size_t bytes_for_silence(TcpSettings settings) {
  settings.hello_limit = milliseconds(50);
  Party host(make_tcp(settings), hello_of(0));
  const Stranger stranger(host.wire->address().text);
  const size_t count = stranger.listen();
  EXPECT_EQ(tcp(host).counters().refused, 1);
  return count;
}

TEST(Tcp, ASilentStrangerIsClosedInTime) {
  EXPECT_EQ(bytes_for_silence({}), 40u) << "a challenge and no more";
  EXPECT_EQ(bytes_for_silence(tls_settings()), 7u) << "an alert and no more";
}

// Those who do not speak cannot keep others out: the oldest of them goes for the newest.
TEST(Tcp, UnidentifiedConnectionsAreLimited) {
  TcpSettings settings;
  settings.most_strangers = 8;
  settings.hello_limit = kPatience;
  Party host(make_tcp(settings), hello_of(0));
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(std::make_unique<Stranger>(host.wire->address().text));
  }
  Party guest(make_tcp(), hello_of(1));
  const Status status = guest.connect(host);
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(strangers.front()->listen(), 40u);
  EXPECT_GE(tcp(host).counters().turned_away, 92);
}

TEST(Tcp, BadSettingsAreRefused) {
  QueueMailbox mailbox;
  TcpSettings settings;
  settings.listen_host = "192.0.2.1";
  auto made = make_tcp_transport(settings, hello_of(0), mailbox);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("192.0.2.1"), std::string::npos) << made.error().message;
  Hello hello = hello_of(0);
  hello.job = std::string(kLongestJob + 1, 'j');
  made = make_tcp_transport({}, hello, mailbox);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("has 513 bytes, at most 512"), std::string::npos)
      << made.error().message;
  Party party(make_tcp(), hello_of(0));
  for (const char* bad : {"", "nowhere", ":5", "127.0.0.1:", "127.0.0.1:sixty"}) {
    EXPECT_FALSE(party.wire->connect(WorkerId{1}, {bad}, Ticket{9}).ok()) << bad;
  }
}

// A wire that sends a message larger than what the network holds, and one that receives it. One of
// the two connects.
struct Half {
  explicit Half(uint64_t seed, size_t dialler = 1) : network(seed, {}) {
    settings.mend_limit = milliseconds(300);
    settings.sends_end_there = true;
    for (int i = 0; i < 2; ++i) {
      wires.push_back(std::make_unique<SimulatedWire>(network, hello_of(i), settings, seed + 2));
    }
    both = {wires[0].get(), wires[1].get()};
    wires[dialler]->connect(*wires[1 - dialler], Ticket{1});
    wires[0]->engine->send(WorkerId{1}, {0, 0, 1}, out, {}, Ticket{2});
    wires[1]->engine->recv(WorkerId{0}, {0, 0, 1}, in, {}, Ticket{2});
    for (int turn = 0; turn < 20; ++turn) turn_all(network, both, network.now() + milliseconds(1));
    for (const auto& wire : wires) wire->mailbox.reports.clear();
  }
  // Turns the loops of these wires for so long, or until a report has come.
  void turn(const std::vector<SimulatedWire*>& some, Duration limit) {
    const Duration end = network.now() + limit;
    const auto quiet = [](const SimulatedWire* wire) { return wire->mailbox.reports.empty(); };
    while (network.now() < end && std::all_of(some.begin(), some.end(), quiet)) {
      turn_all(network, some, end);
    }
  }
  SimulatedNetwork network;
  TcpSettings settings;
  std::vector<std::byte> out = pattern(3, 8 << 20), in = std::vector<std::byte>(8 << 20);
  std::vector<std::unique_ptr<SimulatedWire>> wires;
  std::vector<SimulatedWire*> both;
};

TEST(Tcp, APeerWhoseHostIsSilentIsLost) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    Half half(seed);
    half.network.fall_silent();
    const Duration begin = half.network.now();
    half.turn(half.both, std::chrono::minutes(1));
    ASSERT_FALSE(half.wires[0]->mailbox.reports.empty());
    const Done loss = half.wires[0]->mailbox.reports.front();
    EXPECT_EQ(loss.ticket, kNoTicket);
    ASSERT_FALSE(loss.status.ok());
    EXPECT_EQ(loss.status.error().code, Code::Disconnected);
    EXPECT_NE(loss.status.error().message.find("its host has not answered for 300 ms"),
              std::string::npos)
        << loss.status.error().message;
    EXPECT_GE(half.network.now() - begin, half.settings.mend_limit);
    EXPECT_LE(half.network.now() - begin, half.settings.mend_limit / 5 * 7);
  }
}

TEST(Tcp, APeerWhoseProcessIsStoppedIsWaitedFor) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    Half half(seed);
    half.network.stop(*half.wires[1]->sockets, true);
    half.turn({half.both[0]}, 100 * half.settings.mend_limit);
    EXPECT_TRUE(half.wires[0]->mailbox.reports.empty());
    half.network.stop(*half.wires[1]->sockets, false);
    half.turn({half.both[1], half.both[0]}, std::chrono::minutes(1));
    half.turn({half.both[0]}, std::chrono::minutes(1));
    for (const auto& wire : half.wires) {
      ASSERT_EQ(wire->mailbox.reports.size(), 1U);
      EXPECT_TRUE(wire->mailbox.reports.front().status.ok());
    }
    EXPECT_TRUE(same(half.in, half.out));
  }
}

// Only the connection carries nothing; the hosts reach each other. The sender finds that out, and
// the receiver, which writes nothing, by keep-alive. An end that has heard of it early waits long
// enough for the other one to connect again.
TEST(Tcp, AConnectionThatCarriesNothingIsMadeAgain) {
  struct Case {
    size_t dialler = 0;
    Duration patience = Duration::max();
  };
  for (const auto& [dialler, patience] : {Case{}, Case{0, milliseconds(100)},
                                          Case{1, milliseconds(100)}, Case{1, milliseconds(225)}}) {
    for (const uint64_t seed : {1, 2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", dialler " << dialler);
      Half half(seed, dialler);
      half.network.swallow(*half.wires[0]->host, patience);
      const Duration begin = half.network.now(), end = begin + std::chrono::minutes(1);
      const auto waits = [](const auto& wire) { return wire->mailbox.reports.empty(); };
      while (std::any_of(half.wires.begin(), half.wires.end(), waits)) {
        ASSERT_LT(half.network.now(), end) << "the message never arrived";
        turn_all(half.network, half.both, end);
      }
      EXPECT_LE(half.network.now() - begin, 2 * half.settings.mend_limit);
      for (const auto& wire : half.wires) {
        ASSERT_EQ(wire->mailbox.reports.size(), 1U);
        const Status& status = wire->mailbox.reports.front().status;
        EXPECT_TRUE(status.ok()) << status.error().message;
        EXPECT_EQ(wire->tally.broken, 1);
      }
      EXPECT_TRUE(same(half.in, half.out));
    }
  }
}

// Two workers over the kernel's sockets, and the descriptors of their connection's two ends.
struct Connected {
  explicit Connected(Duration mend_limit) {
    TcpSettings settings;
    settings.mend_limit = mend_limit;
    left.emplace(make_tcp(settings), hello_of(0));
    right.emplace(make_tcp(settings), hello_of(1));
    EXPECT_TRUE(left->connect(*right).ok());
    for (int each = 3; each < 1024; ++each) {
      sockaddr_in address{};
      socklen_t length = sizeof(address);
      auto* const to = reinterpret_cast<sockaddr*>(&address);
      const bool connected = ::getpeername(each, to, &length) == 0;
      if (connected && address.sin_family == AF_INET) ends.push_back(each);
    }
    EXPECT_EQ(ends.size(), 2u);
  }
  void pass(Party& from, Party& to) {
    const std::vector<std::byte> bytes = pattern(++name, 300000);
    std::vector<std::byte> got(bytes.size());
    const Ticket receiving = to.recv(from.self.value, name, got);
    const Ticket sending = from.send(to.self.value, name, bytes);
    EXPECT_TRUE(to.end_of(receiving).status.ok());
    EXPECT_TRUE(from.end_of(sending).status.ok());
    EXPECT_TRUE(same(bytes, got));
  }
  std::optional<Party> left, right;
  std::vector<int> ends;
  uint64_t name = 0;
};

// The same with the kernel: a filter discards every packet that comes over the connection. The
// receiver's grant is never acknowledged; the sender has nothing to send until it has come.
TEST(Tcp, AConnectionWhosePacketsAreDiscardedIsMadeAgain) {
  for (const bool left_sends : {true, false}) {
    Connected two(std::chrono::seconds(2));
    Party &from = left_sends ? *two.left : *two.right, &to = left_sends ? *two.right : *two.left;
    two.pass(from, to);
    std::array<sock_filter, 1> discard{{{BPF_RET | BPF_K, 0, 0, 0}}};
    const sock_fprog program{discard.size(), discard.data()};
    for (const int each : two.ends) {
      ASSERT_EQ(::setsockopt(each, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
    }
    two.pass(from, to);
    for (Party* each : {&from, &to}) {
      EXPECT_EQ(tcp(*each).counters().broken, 1);
      for (const Done& loss : each->losses) ADD_FAILURE() << loss.status.error().message;
    }
  }
}

// Keep-alive breaks a silent connection in time, as far as whole seconds allow.
TEST(Tcp, KeepAliveIsAsLongAsTheSettingsSay) {
  for (const auto& [limit, seconds] :
       {std::pair{100, 2}, {2000, 2}, {4000, 3}, {5000, 4}, {16000, 12}, {40000, 28}}) {
    const Connected two{milliseconds(limit)};
    for (const int each : two.ends) {
      const auto option = [each](int level, int name) {
        int value = 0;
        socklen_t length = sizeof(value);
        EXPECT_EQ(::getsockopt(each, level, name, &value, &length), 0);
        return value;
      };
      EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
      EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE) +
                    option(IPPROTO_TCP, TCP_KEEPCNT) * option(IPPROTO_TCP, TCP_KEEPINTVL),
                seconds)
          << limit;
    }
  }
}

TEST(Tcp, OnlyAllowedAddressesMayConnect) {
  for (const bool allowed : {true, false}) {
    TcpSettings settings;
    settings.connect_limit = milliseconds(allowed ? 60000 : 200);
    TcpSettings listener = settings;
    listener.allowed = {*read_address_range(allowed ? "127.0.0.0/8" : "10.0.0.0/8")};
    Party left(make_tcp(settings), hello_of(0)), right(make_tcp(listener), hello_of(1));
    EXPECT_EQ(left.connect(right).ok(), allowed);
    EXPECT_EQ(tcp(right).counters().turned_away > 0, !allowed);
  }
}

TEST(Tcp, AQuietWireSleeps) {
  Party left(make_tcp(), hello_of(0)), right(make_tcp(), hello_of(1));
  ASSERT_TRUE(left.connect(right).ok());
  const Duration limit = monotonic_clock().now() + kPatience;
  int64_t woken = 0;
  do {
    const int64_t before = tcp(left).counters().wake_ups;
    std::this_thread::sleep_for(milliseconds(200));
    woken = tcp(left).counters().wake_ups - before;
  } while (woken > 1 && monotonic_clock().now() < limit);
  EXPECT_LE(woken, 1);
}

// Wires on one thread whose connections break, whose ends drop each other and connect again, and
// that die: every call ends once, a message that arrives is whole, and no memory is touched after
// the end of its call.
class Upset {
 public:
  explicit Upset(uint64_t seed, const TlsContext& context = nullptr)
      : random_(mix(seed, 3)), network_(seed, faults()) {
    TcpSettings settings;
    settings.mend_limit = milliseconds(300);
    for (int i = 0; i < 2; ++i) {
      wires_.push_back(
          std::make_unique<SimulatedWire>(network_, hello_of(i), settings, seed + 2, context));
    }
  }

  void run() {
    const std::vector<SimulatedWire*> both{wires_[0].get(), wires_[1].get()};
    begin_connect();
    for (int turn = 0; turn < 3000; ++turn) {
      turn_all(network_, both, network_.now() + milliseconds(1));
      step();
      if (random_.below(300) == 0) {
        const auto end = static_cast<size_t>(random_.below(2));
        both[end]->engine->drop(other_of(static_cast<int>(end)));
      }
      if (random_.below(100) == 0) begin_connect();
    }
    const bool dies = random_.below(2) == 0;
    if (dies) {
      network_.kill(*wires_[1]->host);
      for (int turn = 0; open_[0] > 0 && turn < 100000; ++turn) {
        turn_all(network_, {both[0]}, network_.now() + milliseconds(1));
        step();
        if (open_[0] > 0 && turn % 1000 == 999) begin_connect();
        if (turn == 50000) wires_[0]->engine->drop(WorkerId{1});
      }
      EXPECT_EQ(open_[0], 0) << "calls with a dead peer never ended";
      return;
    }
    for (auto& wire : wires_) wire->engine->close(milliseconds(20));
    for (int turn = 0; turn < 100000; ++turn) {
      if (wires_[0]->engine->closed() && wires_[1]->engine->closed()) break;
      turn_all(network_, both, network_.now() + milliseconds(1));
    }
    step();
    EXPECT_TRUE(wires_[0]->engine->closed() && wires_[1]->engine->closed());
    EXPECT_EQ(open_[0] + open_[1], 0) << "calls of a closed wire never ended";
  }

 private:
  struct Call {
    bool out = false, ended = false;
    uint64_t name = 0;
    std::vector<std::byte> bytes;
  };
  static NetworkFaults faults() { return {300000, 10, 2, std::chrono::microseconds(300)}; }
  static WorkerId other_of(int end) { return WorkerId{1 - end}; }

  void begin_connect() {
    calls_[0].push_back({});  // its ticket
    ++open_[0];
    wires_[0]->connect(*wires_[1], Ticket{calls_[0].size()});
  }
  void step() {
    for (int end = 0; end < 2; ++end) {
      if (open_[end] < 20 && random_.below(3) == 0) begin(end);
      auto& reports = wires_[static_cast<size_t>(end)]->mailbox.reports;
      for (; !reports.empty(); reports.pop_front()) check(end, reports.front());
    }
  }
  // Names are drawn from few, so that some are used twice at once, and some never by the other end.
  void begin(int end) {
    Engine& engine = *wires_[static_cast<size_t>(end)]->engine;
    Call call;
    call.out = random_.below(2) == 0;
    call.name = static_cast<uint64_t>(random_.below(40));
    const size_t size = call.name % 5 == 0 ? 300000 + call.name : call.name * 700;
    const int from = call.out ? end : 1 - end;
    call.bytes = call.out ? pattern(mix(call.name, from), size) : std::vector<std::byte>(size);
    calls_[end].push_back(std::move(call));
    ++open_[end];
    Call& made = calls_[end].back();
    const Ticket ticket{calls_[end].size()};
    const Tag tag{0, 0, made.name};
    if (made.out) {
      engine.send(other_of(end), tag, made.bytes, {}, ticket);
    } else {
      engine.recv(other_of(end), tag, made.bytes, {}, ticket);
    }
  }
  void check(int end, const Done& done) {
    if (done.ticket == kNoTicket) return;
    Call& call = calls_[end][static_cast<size_t>(done.ticket) - 1];
    EXPECT_FALSE(call.ended) << "a call ended twice";
    call.ended = true;
    --open_[end];
    if (done.status.ok() && !call.out && !call.bytes.empty()) {
      EXPECT_TRUE(same(call.bytes, pattern(mix(call.name, 1 - end), call.bytes.size())));
    }
    call.bytes = {};  // the address sanitizer finds who still uses it
  }

  Random random_;
  SimulatedNetwork network_;
  std::vector<std::unique_ptr<SimulatedWire>> wires_;
  std::deque<Call> calls_[2];
  int open_[2] = {};
};

// TENUTO_PLAYS=2000 asks for as many plays.
void play_many(uint64_t plays, const TlsContext& context) {
  if (const char* asked = std::getenv("TENUTO_PLAYS")) plays = std::strtoull(asked, nullptr, 10);
  for (uint64_t seed = 1; seed <= plays && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Upset(seed, context).run();
  }
}

TEST(Tcp, EveryCallEndsOnceWhateverHappens) { play_many(kSanitized ? 8 : 30, nullptr); }

TEST(Tcp, EveryCallEndsOnceOverTls) { play_many(kSanitized ? 2 : 10, test_context()); }

}  // namespace
}  // namespace tenuto::tcp
