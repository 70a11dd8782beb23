// The server and its limits, over real loopback sockets. The test turns the server and moves its
// clock by hand, so that no result depends on how fast this machine is.
#include "page/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"

namespace tenuto::page {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);
constexpr Duration kSecond = std::chrono::seconds(1);
constexpr const char* kGet = "GET / HTTP/1.1\r\n\r\n";

// A client that never waits.
class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer = 0)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&to);
    EXPECT_EQ(::connect(socket_, generic, sizeof(to)), 0);
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { leave(); }

  void say(std::string_view text) {
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  void leave() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  // Takes what has come; true once nothing more will come.
  bool hear() {
    char piece[4096];
    for (;;) {
      const ssize_t count = ::recv(socket_, piece, sizeof(piece), MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      if (count <= 0) return true;
      heard_.append(piece, static_cast<size_t>(count));
    }
  }
  const std::string& heard() const { return heard_; }

 private:
  int socket_;
  std::string heard_;
};

// Whether this process may have so many files open; it takes all that it is allowed to.
bool may_open(rlim_t files) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= files;
}

// Whether the answer has as many bytes after its head as it says.
bool is_whole(const std::string& answer) {
  const std::string name = "Content-Length: ";
  const size_t length = answer.find(name), end = answer.find("\r\n\r\n");
  if (length == std::string::npos || end == std::string::npos) return false;
  return answer.size() - (end + 4) == std::stoul(answer.substr(length + name.size()));
}

class Server : public testing::Test {
 protected:
  void listen(const ServerLimits& limits = {}) {
    auto made = HttpServer::listen(
        "127.0.0.1:0", limits,
        [this](const HttpRequest& request, int64_t ticket) { return handler(request, ticket); },
        clock);
    ASSERT_TRUE(made.ok()) << made.error().message;
    server = std::move(made).value();
  }
  // Turns the server until `done`; fails if it never is.
  void turn_until(const std::function<bool()>& done, const char* what) {
    constexpr int kMostTurns = 5000;
    for (int turn = 0; turn < kMostTurns; ++turn) {
      if (done()) return;
      server->turn(5 * kMillisecond);
    }
    ADD_FAILURE() << "this never came: " << what;
  }
  std::string answer_to(Client& client) {
    turn_until([&] { return client.hear(); }, "an answer");
    return client.heard();
  }
  std::string answer_to(const std::string& request) {
    Client client(server->port());
    client.say(request);
    return answer_to(client);
  }
  static int status_of(const std::string& answer) {
    return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
  }

  HandClock clock;
  Handler handler = [](const HttpRequest& request, int64_t) {
    HttpResponse response;
    response.body = "you asked for " + request.path;
    return std::optional<HttpResponse>(response);
  };
  std::unique_ptr<HttpServer> server;
};

TEST_F(Server, Answers) {
  listen();
  const std::string answer = answer_to("GET /here HTTP/1.1\r\n\r\n");
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_TRUE(answer.ends_with("\r\n\r\nyou asked for /here")) << answer;
  const std::string head = answer_to("HEAD /here HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(head.ends_with("Connection: close\r\n\r\n")) << head;
  EXPECT_NE(head.find("Content-Length: 19\r\n"), std::string::npos) << head;
  turn_until([&] { return server->connections() == 0; }, "the end of both connections");
}

TEST_F(Server, ReadsARequestInPieces) {
  listen();
  Client client(server->port());
  for (const char letter : std::string("GET /a HTTP/1.1\r\n\r\n")) {
    client.say(std::string_view(&letter, 1));
    server->turn(Duration::zero());
  }
  EXPECT_EQ(status_of(answer_to(client)), 200);
}

TEST_F(Server, RefusesWhatIsNotHttpAndWhatIsTooLarge) {
  listen();
  EXPECT_EQ(status_of(answer_to("hello\r\n\r\n")), 400);
  EXPECT_EQ(status_of(answer_to("GET /" + std::string(8192, 'a'))), 431);
  // The client hears why although it has sent all of its body.
  EXPECT_EQ(status_of(answer_to("POST / HTTP/1.1\r\nContent-Length: 20000\r\n\r\n" +
                                std::string(20000, 'x'))),
            413);
}

TEST_F(Server, GivesUpClientsThatSendTooSlowly) {
  const ServerLimits limits;
  listen(limits);
  Client client(server->port());
  client.say("GET / HT");
  turn_until([&] { return server->connections() == 1; }, "the connection");
  server->turn(Duration::zero());
  clock.advance(limits.read - kMillisecond);
  server->turn(Duration::zero());
  EXPECT_EQ(server->connections(), 1u);
  clock.advance(kMillisecond);
  EXPECT_EQ(status_of(answer_to(client)), 408);
  clock.advance(limits.linger);  // it does not close either
  turn_until([&] { return server->connections() == 0; }, "the end of the connection");
}

TEST_F(Server, GivesUpClientsThatNeverRead) {
  const ServerLimits limits;
  bool asked = false;
  handler = [&asked](const HttpRequest&, int64_t) {
    asked = true;
    HttpResponse response;
    response.body = std::string(32 << 20, 'x');  // more than the kernel keeps for a client
    return std::optional<HttpResponse>(response);
  };
  listen(limits);
  Client client(server->port(), 4096);
  client.say(kGet);
  turn_until([&] { return asked; }, "the request");
  for (int turn = 0; turn < 100; ++turn) server->turn(Duration::zero());
  EXPECT_EQ(server->connections(), 1u);
  Client other(server->port());  // is served meanwhile
  other.say("nonsense\r\n\r\n");
  EXPECT_EQ(status_of(answer_to(other)), 400);
  clock.advance(limits.read + limits.write + limits.linger);
  turn_until([&] { return server->connections() == 0; }, "the end of the connections");
}

TEST_F(Server, ServesSoManyClientsAndNoMore) {
  ServerLimits limits;
  limits.connections = 8;
  listen(limits);
  std::vector<std::unique_ptr<Client>> silent;
  for (size_t i = 0; i < limits.connections; ++i) {
    silent.push_back(std::make_unique<Client>(server->port()));
  }
  turn_until([&] { return server->connections() == limits.connections; }, "all connections");
  for (int i = 0; i < 1000; ++i) {
    Client further(server->port());
    ASSERT_EQ(status_of(answer_to(further)), 503) << i;
    ASSERT_EQ(server->connections(), limits.connections);
  }
  // Who was here before them is served as ever.
  silent.back()->say(kGet);
  EXPECT_EQ(status_of(answer_to(*silent.back())), 200);
  silent.clear();
  turn_until([&] { return server->connections() == 0; }, "the end of all connections");
  EXPECT_EQ(status_of(answer_to(kGet)), 200);
}

// A thousand clients at once ask for the metrics, and all stay connected: each has a whole answer
// or a refusal, and the server never keeps more than one answer for each of its places.
TEST_F(Server, AThousandScrapesAtOnceHaveAnswersOrRefusals) {
  constexpr size_t kClients = 1000, kBody = 100'000, kHead = 1024;
  if (!may_open(2 * kClients)) GTEST_SKIP() << "this process may open fewer than 2000 files";
  const ServerLimits limits;
  handler = [](const HttpRequest&, int64_t) {
    HttpResponse response;
    response.body = std::string(kBody, 'x');
    return std::optional<HttpResponse>(response);
  };
  listen(limits);
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(server->port()));
    clients.back()->say("GET /metrics HTTP/1.1\r\n\r\n");
    server->turn(Duration::zero());
    ASSERT_LE(server->connections(), limits.connections) << i;
    ASSERT_LE(server->bytes(), limits.connections * (kBody + kHead)) << i;
  }
  size_t served = 0, refused = 0;
  for (const auto& client : clients) {
    const std::string answer = answer_to(*client);
    EXPECT_TRUE(is_whole(answer)) << answer.substr(0, kHead);
    served += status_of(answer) == 200 ? 1 : 0;
    refused += status_of(answer) == 503 ? 1 : 0;
  }
  EXPECT_EQ(served, limits.connections);
  EXPECT_EQ(refused, kClients - limits.connections);
  clients.clear();
  turn_until([&] { return server->connections() == 0; }, "the end of all connections");
  EXPECT_EQ(server->bytes(), 0u);
  EXPECT_EQ(status_of(answer_to(kGet)), 200);
}

// A thousand pages ask once a second, each over a new connection, as their script does.
TEST_F(Server, AThousandPagesThatPollHaveAnswersOrRefusals) {
  constexpr int32_t kClients = 1000, kSeconds = 3;
  const ServerLimits limits;
  listen(limits);
  size_t most = 0;
  for (int32_t second = 0; second < kSeconds; ++second) {
    int32_t served = 0, refused = 0;
    for (int32_t i = 0; i < kClients; ++i) {
      const std::string answer = answer_to("GET /api/state?since=7 HTTP/1.1\r\n\r\n");
      ASSERT_TRUE(is_whole(answer)) << answer;
      served += status_of(answer) == 200 ? 1 : 0;
      refused += status_of(answer) == 503 ? 1 : 0;
      most = std::max(most, server->connections());
    }
    EXPECT_EQ(served, limits.answers) << second;
    EXPECT_EQ(refused, kClients - limits.answers) << second;
    clock.advance(kSecond);
  }
  EXPECT_LT(most, limits.connections) << "who has left keeps no place";
}

// A thousand clients ask and never read: they cost the places that there are, until the deadline.
TEST_F(Server, AThousandClientsThatNeverReadCostTheirPlaces) {
  constexpr size_t kClients = 1000, kBody = 1 << 20, kHead = 1024;
  if (!may_open(2 * kClients)) GTEST_SKIP() << "this process may open fewer than 2000 files";
  const ServerLimits limits;
  size_t asked = 0;
  handler = [&asked](const HttpRequest&, int64_t) {
    ++asked;
    HttpResponse response;
    response.body = std::string(kBody, 'x');
    return std::optional<HttpResponse>(response);
  };
  listen(limits);
  std::vector<std::unique_ptr<Client>> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(server->port(), 4096));
    clients.back()->say(kGet);
    server->turn(Duration::zero());
    ASSERT_LE(server->connections(), limits.connections) << i;
    ASSERT_LE(server->bytes(), limits.connections * (kBody + kHead)) << i;
  }
  for (int turn = 0; turn < 100; ++turn) server->turn(Duration::zero());
  EXPECT_EQ(asked, limits.connections);
  EXPECT_EQ(server->connections(), limits.connections);
  clock.advance(limits.write + limits.linger);
  turn_until([&] { return server->connections() == 0; }, "the end of all connections");
  EXPECT_EQ(server->bytes(), 0u);
  EXPECT_EQ(status_of(answer_to(kGet)), 200);
}

TEST_F(Server, AnswersSoManyRequestsASecond) {
  ServerLimits limits;
  limits.answers = 3;
  listen(limits);
  for (int second = 0; second < 3; ++second) {
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(status_of(answer_to(kGet)), i < 3 ? 200 : 503) << second << " " << i;
    }
    clock.advance(kSecond);
  }
}

TEST_F(Server, PassesOnAnswersThatComeLater) {
  const ServerLimits limits;
  std::vector<int64_t> tickets;
  handler = [&tickets](const HttpRequest&, int64_t ticket) {
    tickets.push_back(ticket);
    return std::optional<HttpResponse>();
  };
  listen(limits);
  Client first(server->port());
  first.say(kGet);
  turn_until([&] { return tickets.size() == 1; }, "the first request");
  Client second(server->port());
  second.say(kGet);
  turn_until([&] { return tickets.size() == 2; }, "the second request");
  HttpResponse response;
  response.body = "later";
  // From another thread, and also once more, and for a request that there never was.
  std::thread([&] {
    server->answer(tickets[1], response);
    server->answer(tickets[1], response);
    server->answer(12345, response);
  }).join();
  const std::string answer = answer_to(second);
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_TRUE(answer.ends_with("later")) << answer;
  clock.advance(limits.wait);
  EXPECT_EQ(status_of(answer_to(first)), 504);
}

TEST_F(Server, ForgetsClientsThatLeaveWhileTheyWait) {
  std::vector<int64_t> tickets;
  handler = [&tickets](const HttpRequest&, int64_t ticket) {
    tickets.push_back(ticket);
    return std::optional<HttpResponse>();
  };
  listen();
  {
    Client client(server->port());
    client.say(kGet);
    turn_until([&] { return tickets.size() == 1; }, "the request");
  }
  // Its place is free at the deadline at the latest; whether the kernel says before that the client
  // is gone does not matter.
  server->answer(tickets[0], HttpResponse());
  turn_until([&] { return server->connections() == 0; }, "the end of the connection");
}

TEST_F(Server, SaysWhyItCannotListen) {
  listen();
  const auto taken = [this](const std::string& address) {
    const auto other = HttpServer::listen(
        address, ServerLimits(), [](const HttpRequest&, int64_t) { return std::nullopt; }, clock);
    return other.ok() ? std::string() : other.error().message;
  };
  const std::string address = cat("127.0.0.1:", server->port());
  EXPECT_EQ(taken(address), cat("cannot listen at ", address, ": Address already in use"));
  EXPECT_NE(taken("192.0.2.1:0").find("cannot listen at 192.0.2.1:0: "), std::string::npos);
  EXPECT_NE(taken("nowhere"), "");
}

}  // namespace
}  // namespace tenuto::page
