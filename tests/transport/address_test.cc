// Whose hosts answer.
#include "transport/address.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"

namespace tenuto {
namespace {

constexpr Duration kLong = std::chrono::minutes(1);

// A port at which somebody listens and nobody accepts, except by accept_one().
class Listener {
 public:
  explicit Listener(int backlog) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(at);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&at), length), 0);
    EXPECT_EQ(::listen(socket_, backlog), 0);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&at), &length), 0);
    address_ = cat("127.0.0.1:", ntohs(at.sin_port));
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { ::close(socket_); }

  const std::string& address() const { return address_; }
  // Waits until a connection can be accepted. False if none comes for long.
  bool wait_for_one() const {
    pollfd each{socket_, POLLIN, 0};
    return ::poll(&each, 1, 2 * 60 * 1000) == 1;
  }
  // Waits for one connection and takes it.
  void accept_one() const {
    ASSERT_TRUE(wait_for_one());
    ::close(::accept(socket_, nullptr, nullptr));
  }

 private:
  int socket_;
  std::string address_;
};

// A port whose queue is full: the kernel answers no attempt to connect until one is accepted.
class Full {
 public:
  Full() : listener_(0), caller_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto to = resolve(listener_.address());
    const auto* where = reinterpret_cast<const sockaddr*>(&to.value().storage);
    EXPECT_EQ(::connect(caller_, where, to.value().length), 0);
    EXPECT_TRUE(listener_.wait_for_one());
  }
  Full(const Full&) = delete;
  Full& operator=(const Full&) = delete;
  ~Full() { ::close(caller_); }
  const std::string& address() const { return listener_.address(); }
  void accept_one() const { listener_.accept_one(); }

 private:
  Listener listener_;
  int caller_;
};

TEST(Address, WhoAcceptsOrRefusesIsReachable) {
  const Listener listener(8);
  const Full full;
  // The second refuses, the third is no address, the last two do not answer.
  const std::vector<bool> expected{true, true, true, false, false};
  EXPECT_EQ(
      are_reachable({listener.address(), "127.0.0.1:1", "nowhere", full.address(), full.address()},
                    std::chrono::milliseconds(50)),
      expected);
  EXPECT_TRUE(are_reachable({}, kLong).empty());
}

// The first host answers only when the second has been asked, and signals come all the time.
TEST(Address, AllAreAskedAtOnceAndSignalsDoNotMatter) {
  struct sigaction quiet {};
  struct sigaction before {};
  quiet.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGALRM, &quiet, &before), 0);
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  const Full first;
  const Listener second(8);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &alarm, nullptr), 0);  // in the other thread, too
  std::thread answering([&] {
    second.accept_one();
    first.accept_one();  // so the kernel answers when the other end asks again, after a second
    first.accept_one();
  });
  ASSERT_EQ(::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr), 0);
  const itimerval often{{0, 2'000}, {0, 2'000}}, never{};
  ASSERT_EQ(::setitimer(ITIMER_REAL, &often, nullptr), 0);
  const std::vector<bool> reachable = are_reachable({first.address(), second.address()}, kLong);
  ASSERT_EQ(::setitimer(ITIMER_REAL, &never, nullptr), 0);
  EXPECT_EQ(reachable, (std::vector<bool>{true, true}));
  answering.join();
  ASSERT_EQ(::sigaction(SIGALRM, &before, nullptr), 0);
}

}  // namespace
}  // namespace tenuto
