// Encrypted connections of the wire over TCP: which certificates are refused and how, streams that
// are cut off, whoever stands between two workers. The tests of every wire run over them as well.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "simulated_wires.h"
#include "stranger.h"
#include "test_certificates.h"
#include "transport/tcp/tls_context.h"
#include "transport/tcp/tls_sockets.h"

namespace tenuto::tcp {
namespace {

// Two wires in a network without faults and latency, where a reset overtakes nothing.
struct Two {
  Two(const TlsContext& left_context, const TlsContext& right_context)
      : network(5, {0, 0, 0, Duration{}}),
        left(network, hello_of(0), {}, 1, left_context),
        right(network, hello_of(1), {}, 2, right_context) {}
  // Turns both until `done`, or until a minute has passed.
  template <class Until>
  bool turn_until(const Until& done) {
    const Duration limit = network.now() + std::chrono::minutes(1);
    while (!done() && network.now() < limit) turn_all(network, {&left, &right}, limit);
    return done();
  }
  // Whether the left wire could connect to the right one.
  Status connect() {
    left.connect(right, Ticket{1});
    turn_until([&] { return !left.mailbox.reports.empty(); });
    if (left.mailbox.reports.empty()) return invalid("there was no answer");
    const Done done = left.mailbox.reports.front();
    left.mailbox.reports.pop_front();
    return done.status;
  }

  SimulatedNetwork network;
  SimulatedWire left, right;
};

void expect_in(const std::string& part, const Status& status) {
  ASSERT_FALSE(status.ok()) << "expected: " << part;
  EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
}

// The certificate and key of one, who trusts the authority of another.
Tls trusting(const Tls& other, Tls one) {
  one.authority = other.authority;
  return one;
}

const Validity kExpired{std::chrono::hours(-2), std::chrono::hours(-1), ""};
const Validity kNotYet{std::chrono::hours(1), std::chrono::hours(2), ""};

TEST(TcpTls, CertificatesThatNobodyWouldAcceptAreRefusedAtOnce) {
  const TestAuthority ours, theirs(KeyKind::Ed25519, "another authority");
  const Tls good = ours.certify("worker"), other = theirs.certify("worker");
  EXPECT_TRUE(make_tls_context(good).ok());
  const auto refusal = [](const Tls& tls) -> Status {
    const auto made = make_tls_context(tls);
    if (made.ok()) return ok();
    return made.error();
  };
  expect_in("(ca.pem) cannot be read", refusal({"", good.certificate, good.key}));
  expect_in("(cert.pem) cannot be read", refusal({good.authority, "soon", good.key}));
  expect_in("(key.pem) cannot be read", refusal({good.authority, good.certificate, "soon"}));
  expect_in("(key.pem) does not belong to its certificate",
            refusal({good.authority, good.certificate, other.key}));
  expect_in("unable to get local issuer certificate", refusal(trusting(good, other)));
  expect_in("certificate has expired", refusal(ours.certify("worker", kExpired)));
  expect_in("certificate is not yet valid", refusal(ours.certify("worker", kNotYet)));
  QueueMailbox mailbox;
  TcpSettings settings;
  settings.tls = std::make_shared<const Tls>(ours.certify("worker", kExpired));
  expect_in("other workers would not accept this worker's certificate",
            make_tcp_transport(settings, hello_of(0), mailbox).error());
}

TEST(TcpTls, EveryCertificateOfTheAuthorityIsAccepted) {
  for (const KeyKind kind : {KeyKind::Ed25519, KeyKind::P256}) {
    const TestAuthority ours(kind);
    Validity for_clients;
    for_clients.use = "clientAuth";
    const auto left = make_tls_context(ours.certify("tenuto-coordinator"));
    const auto right = make_tls_context(ours.certify("worker", for_clients));
    ASSERT_TRUE(left.ok() && right.ok());
    Two there(left.value(), right.value()), back(right.value(), left.value());
    EXPECT_TRUE(there.connect().ok());
    EXPECT_TRUE(back.connect().ok());
  }
}

TEST(TcpTls, OtherCertificatesAreRefusedInASentence) {
  const TestAuthority ours, theirs(KeyKind::Ed25519, "another authority"), namesake;
  const Tls good = ours.certify("worker");
  const TlsContext honest = make_tls_context(good).value();
  Validity for_servers;
  for_servers.use = "serverAuth";
  const struct {
    Tls certificates;
    std::string by_dialler, by_listener;
  } cases[] = {
      {trusting(good, theirs.certify("worker")), "unable to get local issuer certificate",
       "alert unknown ca"},
      {ours.certify("worker", kExpired), "certificate has expired", "alert certificate expired"},
      {ours.certify("worker", for_servers), "unsuitable certificate purpose",
       "alert unsupported certificate"}};
  for (const auto& each : cases) {
    const TlsContext bad = unchecked_context(each.certificates);
    Two listens(honest, bad);
    const Duration begin = listens.network.now();
    const Status status = listens.connect();
    expect_in("worker 1 at ", status);
    expect_in("its certificate is not accepted: " + each.by_dialler, status);
    EXPECT_EQ(status.error().code, Code::Invalid);
    EXPECT_LT(listens.network.now() - begin, std::chrono::seconds(1)) << "it is not tried again";
    Two dials(bad, honest);
    expect_in(each.by_listener, dials.connect());
    EXPECT_EQ(dials.right.tally.refused, 1);
  }
  Two without(unchecked_context({good.authority, "", ""}), honest);
  expect_in("does not accept this worker's certificate (tlsv13 alert certificate required)",
            without.connect());
  EXPECT_EQ(without.right.tally.refused, 1);
}

// A stranger's handshake is kept until it is whole, so it has a limit.
TEST(TcpTls, AHandshakeThatIsTooLongIsRefused) {
  TcpSettings settings = tls_settings();
  settings.hello_limit = kPatience * 2;
  Party host(make_tcp(settings), hello_of(0));
  const Stranger stranger(host.wire->address().text);
  // A first message of 120,000 bytes, in records of 16,000.
  const std::string head{0x16, 3, 1, 0x3e, static_cast<char>(0x80)};
  std::string message{1, 1, static_cast<char>(0xd4), static_cast<char>(0xc0), 3, 3};
  message.resize(16000);
  for (int i = 0; i < 5; ++i) stranger.say(head + message);
  EXPECT_EQ(stranger.listen(), 0u);
}

TEST(TcpTls, AnEndWithoutTlsIsToldSo) {
  Two one(nullptr, test_context());
  expect_in("it speaks TLS, and this worker does not", one.connect());
  Two other(test_context(), nullptr);
  expect_in("it does not speak TLS 1.3", other.connect());
  EXPECT_GT(other.right.tally.malformed, 0);
}

// Whoever stands between two workers, with a certificate of their authority, and passes on all that
// they say.
class Relay {
 public:
  Relay(SimulatedNetwork& network, const TlsContext& context, const std::string& target)
      : near_(network.host()), far_(network.host()), target_(resolve(target).value()) {
    if (context != nullptr) {
      near_ = make_tls_sockets(std::move(near_), context);
      far_ = make_tls_sockets(std::move(far_), context);
    }
    address = near_->listen("127.0.0.1", 0).value();
  }
  void turn() {
    std::vector<SocketEvent> events;
    near_->wait(Duration{}, events);
    far_->wait(Duration{}, events);
    if (caller_ == kNoSocket) {
      SocketAddress from;
      caller_ = near_->accept(from);
      if (caller_ != kNoSocket) called_ = far_->connect(target_);
    }
    if (caller_ == kNoSocket) return;
    pass(*near_, caller_, there_, *far_, called_);
    pass(*far_, called_, back_, *near_, caller_);
  }

  std::string address;

 private:
  static void pass(Sockets& from, SocketId source, std::vector<std::byte>& bytes, Sockets& to,
                   SocketId target) {
    std::array<std::byte, 4096> some{};
    const std::span<std::byte> space(some);
    for (Io io{Io::Kind::Moved}; io.kind == Io::Kind::Moved;) {
      io = from.read(source, std::span(&space, 1));
      bytes.insert(bytes.end(), some.begin(), some.begin() + static_cast<long>(io.count));
    }
    for (Io io{Io::Kind::Moved}; io.kind == Io::Kind::Moved && !bytes.empty();) {
      const std::span<const std::byte> rest(bytes);
      io = to.write(target, std::span(&rest, 1));
      bytes.erase(bytes.begin(), bytes.begin() + static_cast<long>(io.count));
    }
  }

  std::unique_ptr<Sockets> near_, far_;
  SocketAddress target_;
  SocketId caller_ = kNoSocket, called_ = kNoSocket;
  std::vector<std::byte> there_, back_;
};

// Without encryption the proofs of the token can be passed on, with it they hold for one
// connection.
TEST(TcpTls, ProofsOfTheTokenCannotBePassedOn) {
  const TestAuthority ours;
  const TlsContext context = make_tls_context(ours.certify("worker")).value();
  const TlsContext between = make_tls_context(ours.certify("worker of another job")).value();
  for (const bool encrypted : {false, true}) {
    Two two(encrypted ? context : nullptr, encrypted ? context : nullptr);
    Relay relay(two.network, encrypted ? between : nullptr, two.right.engine->address());
    two.left.engine->connect(two.right.self, relay.address, resolve(relay.address).value(),
                             Ticket{1});
    two.turn_until([&] {
      relay.turn();
      return !two.left.mailbox.reports.empty();
    });
    ASSERT_FALSE(two.left.mailbox.reports.empty());
    const Status status = two.left.mailbox.reports.front().status;
    EXPECT_EQ(two.right.tally.refused, encrypted ? 1 : 0);
    if (encrypted) {
      expect_in("wrong token", status);
    } else {
      EXPECT_TRUE(status.ok()) << status.error().message;
    }
  }
}

// Somebody who can change packets, but not what is encrypted in them, ends the stream: a break that
// is repaired, and not the end of the peer.
TEST(TcpTls, AStreamThatIsCutOffIsABreak) {
  Two two(test_context(), test_context());
  ASSERT_TRUE(two.connect().ok());
  const std::vector<std::byte> bytes = pattern(3, 3000000);
  std::vector<std::byte> got(bytes.size());
  two.left.engine->send(two.right.self, {0, 0, 1}, bytes, {}, Ticket{2});
  two.right.engine->recv(two.left.self, {0, 0, 1}, got, {}, Ticket{2});
  const auto begun = [&] { return got[100000] == bytes[100000]; };
  ASSERT_TRUE(two.turn_until(begun));
  two.network.cut(*two.right.host);
  ASSERT_TRUE(two.turn_until([&] { return !two.right.mailbox.reports.empty(); }));
  EXPECT_TRUE(two.right.mailbox.reports.front().status.ok());
  EXPECT_TRUE(same(bytes, got));
  EXPECT_EQ(two.right.tally.broken, 1);
}

// Two ends of one connection without a wire.
struct Ends {
  explicit Ends(uint64_t records_for_a_key = kRecordsForAKey)
      : network(3, {}), left_host(network.host()), right_host(network.host()) {
    lower = right_host.get();
    left_host = make_tls_sockets(std::move(left_host), test_context(), records_for_a_key);
    right_host = make_tls_sockets(std::move(right_host), test_context(), records_for_a_key);
    const std::string address = right_host->listen("127.0.0.1", 0).value();
    left = left_host->connect(resolve(address).value());
  }
  // Reads at the left end, or writes at the right one, until it does not block any more.
  Io read(std::span<std::byte> to) {
    return retry([&] { return left_host->read(left, std::span(&to, 1)); });
  }
  Io write(std::span<const std::byte> from) {
    return retry([&] {
      SocketAddress peer;
      if (right == kNoSocket) right = right_host->accept(peer);
      return right == kNoSocket ? Io{} : right_host->write(right, std::span(&from, 1));
    });
  }
  template <class Call>
  Io retry(const Call& call) {
    for (int i = 0; i < 10000; ++i) {
      Io io = call();
      if (io.kind != Io::Kind::Blocked) return io;
      std::vector<SocketEvent> events;
      left_host->wait(Duration{}, events);
      right_host->wait(Duration{}, events);
      network.advance(network.now() + std::chrono::microseconds(10));
      std::byte none{};
      const std::span<std::byte> space(&none, 0);  // carries on the handshake
      static_cast<void>(left_host->read(left, std::span(&space, 1)));
      if (right != kNoSocket) static_cast<void>(right_host->read(right, std::span(&space, 1)));
    }
    return {Io::Kind::Failed, 0, false, "it blocks for ever"};
  }

  SimulatedNetwork network;
  std::unique_ptr<Sockets> left_host, right_host;
  Sockets* lower = nullptr;  // of right_host
  SocketId left = kNoSocket, right = kNoSocket;
};

TEST(TcpTls, TheEndOfAStreamIsToldFromACut) {
  const std::vector<std::byte> bytes = pattern(1, 1000);
  std::vector<std::byte> got(1000);
  for (const bool in_order : {true, false}) {
    Ends ends;
    EXPECT_EQ(ends.write(bytes).count, 1000u);
    EXPECT_EQ(ends.read(got).count, 1000u);
    EXPECT_TRUE(same(bytes, got));
    EXPECT_EQ(ends.left_host->binding(ends.left), ends.right_host->binding(ends.right));
    (in_order ? *ends.right_host : *ends.lower).close(ends.right, false);
    ends.right = kNoSocket;
    const Io io = ends.read(got);
    EXPECT_EQ(io.kind, in_order ? Io::Kind::Ended : Io::Kind::Failed) << io.why;
    if (!in_order) {
      EXPECT_NE(io.why.find("was cut off"), std::string::npos) << io.why;
    }
  }
}

TEST(TcpTls, KeysAreRenewedOnTheWay) {
  const std::vector<std::byte> bytes = pattern(1, 100000);
  std::vector<std::byte> got(bytes.size());
  Ends ends(1);
  size_t sent = 0, received = 0;
  while (received < bytes.size()) {
    if (sent < bytes.size()) {
      const Io io = ends.write(std::span(bytes).subspan(sent));
      ASSERT_EQ(io.kind, Io::Kind::Moved) << io.why;
      sent += io.count;
    }
    const Io io = ends.read(std::span(got).subspan(received));
    ASSERT_EQ(io.kind, Io::Kind::Moved) << io.why;
    received += io.count;
  }
  EXPECT_TRUE(same(bytes, got));
}

}  // namespace
}  // namespace tenuto::tcp
