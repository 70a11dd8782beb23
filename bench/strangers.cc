#include "bench/strangers.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <memory>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "bench/open_files.h"
#include "transport/address.h"
#include "transport/tcp/greeting.h"

namespace tenuto {

namespace {

using std::chrono::milliseconds;

constexpr Duration kTick = milliseconds(5), kDrip = milliseconds(50);
constexpr Duration kLife = milliseconds(2000);  // of a connection that says something
constexpr int64_t kSilentASecond = 2000;        // so many are opened until all are there
constexpr int64_t kMostAtOnce = 200;            // opened in a tick, however late it is
constexpr int64_t kOtherFiles = 6000;           // kept free for those that say something
constexpr size_t kMostHeld = 64;                // by a decoy, as by a worker

void reset(int socket) {
  const linger at_once{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  ::close(socket);
}

// What a listener in this process hears from a dialler that introduces itself: the recording of a
// hello, with a right proof for the challenge that it answers.
std::string recorded_hello(const StrangerSettings& settings) {
  tcp::Introduction mine;
  mine.hello = {settings.job, settings.token, kWireVersion, WorkerId{1}, 1};
  mine.instance = mine.session = 7;
  mine.expected = WorkerId{0};
  mine.address = "127.0.0.1:1";
  tcp::Greeting listener(settings.token, tcp::fill_random);
  tcp::Greeting dialler(settings.token, tcp::fill_random, mine);
  for (auto said = listener.output(); !said.empty();) {
    const auto to = dialler.landing();
    const size_t count = std::min(to.size(), said.size());
    std::memcpy(to.data(), said.data(), count);
    CHECK(dialler.take(count) == tcp::Greeting::Step::More, "a challenge is not answered");
    said = said.subspan(count);
  }
  const auto hello = dialler.output();
  return {reinterpret_cast<const char*>(hello.data()), hello.size()};
}

// All strangers of one process.
class Strangers {
 public:
  Strangers(const StrangerSettings& settings, StrangerCounts& counts)
      : settings_(settings), counts_(counts), random_(settings.seed) {
    settings_.silent = std::min(settings.silent, most_files() - kOtherFiles);
    for (const std::string& each : settings.targets) {
      const auto where = resolve(each, false);
      CHECK(where.ok(), "the address of a worker");
      targets_.push_back(where.value());
    }
    poll_ = epoll_create1(EPOLL_CLOEXEC);
    CHECK(poll_ >= 0, "no epoll");
    recorded_ = recorded_hello(settings);
    garbage_.resize(128 << 10);
    for (char& each : garbage_) each = static_cast<char>(random_.next());
  }

  [[noreturn]] void run() {
    const Duration begin = monotonic_clock().now();
    Duration dripped = begin;
    int64_t due_before = 0, silent_before = 0;
    while (true) {
      const Duration now = monotonic_clock().now();
      const double seconds = to_milliseconds(now - begin) / 1000;
      const auto due = static_cast<int64_t>(seconds * static_cast<double>(settings_.a_second));
      for (int64_t i = std::min(due - due_before, kMostAtOnce); i > 0; --i) open_talker(now);
      due_before = due;
      const auto silent = std::min(
          settings_.silent, static_cast<int64_t>(seconds * static_cast<double>(kSilentASecond)));
      for (int64_t i = std::min(silent - silent_before, kMostAtOnce); i > 0; --i) open_silent();
      silent_before = silent;
      if (now - dripped >= kDrip) {
        dripped = now;
        drip();
      }
      while (!ages_.empty() && ages_.front().until <= now) {
        const Age oldest = ages_.front();
        ages_.pop_front();
        const auto found = talkers_.find(oldest.socket);
        if (found != talkers_.end() && found->second.number == oldest.number) end(oldest.socket);
      }
      hear(now + kTick);
    }
  }

 private:
  enum class Kind : uint8_t { Random, Magic, Http, Recorded, WrongToken, Drip, Brief, kCount };
  struct Talker {
    Kind kind = Kind::Brief;
    uint64_t number = 0;
    std::string_view unsent;
    std::string own;                          // what `unsent` lies in, if in no common memory
    std::unique_ptr<tcp::Greeting> greeting;  // of those that answer a challenge
    size_t dripped = 0;
  };
  struct Age {
    Duration until{};
    int socket = -1;
    uint64_t number = 0;
  };

  // A connection that has begun; -1 = none, because no more can be had at present.
  int connect() {
    const SocketAddress& to = targets_[static_cast<size_t>(counts_.opened) % targets_.size()];
    const int made = ::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) return -1;
    if (::connect(made, reinterpret_cast<const sockaddr*>(&to.storage), to.length) != 0 &&
        errno != EINPROGRESS) {
      ::close(made);
      return -1;
    }
    ++counts_.opened;
    return made;
  }
  void open_silent() {
    const int made = connect();
    if (made < 0) return;
    silent_.push_back(made);
    ++counts_.silent;
  }
  void open_talker(Duration now) {
    const int socket = connect();
    if (socket < 0) return;
    Talker talker;
    talker.kind = static_cast<Kind>(random_.below(static_cast<int64_t>(Kind::kCount)));
    talker.number = ++last_;
    if (talker.kind == Kind::Random) {
      const auto size = static_cast<size_t>(random_.below(64 << 10)) + 1;
      const auto begin = static_cast<size_t>(random_.below(64 << 10));
      talker.unsent = std::string_view(garbage_).substr(begin, size);
    } else if (talker.kind == Kind::Magic) {
      // The first 13 bytes of UCX's TCP: its magic number, a kind and a length.
      static constexpr char kMagic[] = "\x78\x56\x34\x12\xbe\xba\xfe\xca\x1f\xff\xff\x00\x00";
      talker.unsent = {kMagic, sizeof(kMagic) - 1};
    } else if (talker.kind == Kind::Http) {
      talker.unsent = "GET / HTTP/1.1\r\nHost: worker\r\n\r\n";
    } else if (talker.kind == Kind::Recorded || talker.kind == Kind::WrongToken) {
      tcp::Introduction mine;
      mine.hello = {settings_.job, "guessed", kWireVersion, WorkerId{1}, 1};
      mine.instance = mine.session = talker.number;
      mine.expected = WorkerId{0};
      mine.address = "127.0.0.1:1";
      talker.greeting = std::make_unique<tcp::Greeting>(mine.hello.token, tcp::fill_random, mine);
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    event.data.fd = socket;
    epoll_ctl(poll_, EPOLL_CTL_ADD, socket, &event);
    talkers_[socket] = std::move(talker);
    ages_.push_back({now + kLife, socket, last_});
  }

  void hear(Duration until) {
    std::array<epoll_event, 256> events{};
    while (true) {
      const Duration left = until - monotonic_clock().now();
      if (left <= Duration::zero()) return;
      const auto wait = static_cast<int>(left / milliseconds(1)) + 1;
      const int count = epoll_wait(poll_, events.data(), static_cast<int>(events.size()), wait);
      for (int i = 0; i < count; ++i) {
        const epoll_event& each = events[static_cast<size_t>(i)];
        const auto found = talkers_.find(each.data.fd);
        if (found != talkers_.end() && !serve(each.data.fd, found->second)) end(each.data.fd);
      }
    }
  }
  // Goes on with a connection that something has happened at; false when it is over.
  bool serve(int socket, Talker& talker) {
    if (talker.kind == Kind::Brief) return false;
    if (!read(socket, talker)) return false;
    while (!talker.unsent.empty()) {
      const ssize_t count =
          ::send(socket, talker.unsent.data(), talker.unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      counts_.sent += count;
      talker.unsent.remove_prefix(static_cast<size_t>(count));
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.fd = socket;
    epoll_ctl(poll_, EPOLL_CTL_MOD, socket, &event);
    return true;
  }
  bool read(int socket, Talker& talker) {
    std::array<std::byte, 4096> bytes;
    while (true) {
      const bool greets = talker.greeting != nullptr;
      const std::span<std::byte> to = greets ? talker.greeting->landing() : std::span(bytes);
      const ssize_t count = ::recv(socket, to.data(), to.size(), MSG_DONTWAIT);
      if (count < 0) return errno == EAGAIN || errno == EINTR;
      if (count == 0) return false;
      if (greets && !answer(talker, static_cast<size_t>(count))) return false;
    }
  }
  // So many bytes of a listener's greeting have come; false when it is over.
  bool answer(Talker& talker, size_t count) {
    using Step = tcp::Greeting::Step;
    const Step step = talker.greeting->take(count);
    const auto hello = talker.greeting->output();
    if (step == Step::More && !hello.empty() && talker.own.empty()) {
      const std::string own(reinterpret_cast<const char*>(hello.data()), hello.size());
      talker.own = talker.kind == Kind::Recorded ? recorded_ : own;
      talker.unsent = talker.own;
    }
    if (step == Step::More) return true;
    // A listener that speaks another protocol, such as the coordinator's, is malformed here.
    if (step == Step::Stranger) ++counts_.refused;
    if (step != Step::Stranger && step != Step::Malformed) ++counts_.let_in;
    return false;
  }
  void drip() {
    for (auto& [socket, talker] : talkers_) {
      if (talker.kind != Kind::Drip || talker.dripped == recorded_.size()) continue;
      const ssize_t count =
          ::send(socket, recorded_.data() + talker.dripped, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count > 0) ++talker.dripped;
      if (count > 0) ++counts_.sent;
    }
  }
  void end(int socket) {
    talkers_.erase(socket);
    if (random_.below(2) == 0) {
      ::close(socket);
    } else {
      reset(socket);
    }
  }

  StrangerSettings settings_;
  StrangerCounts& counts_;
  Random random_;
  std::vector<SocketAddress> targets_;
  int poll_ = -1;
  std::string recorded_, garbage_;
  uint64_t last_ = 0;
  std::map<int, Talker> talkers_;
  std::deque<Age> ages_;
  std::vector<int> silent_;
};

[[noreturn]] void serve_decoy(const std::vector<int>& listeners) {
  most_files();
  const int poll = epoll_create1(EPOLL_CLOEXEC);
  for (const int each : listeners) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = each;
    epoll_ctl(poll, EPOLL_CTL_ADD, each, &event);
  }
  std::map<int, std::deque<int>> held;  // by listener
  while (true) {
    std::array<epoll_event, 16> events{};
    const int count = epoll_wait(poll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int listener = events[static_cast<size_t>(i)].data.fd;
      const int made = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (made < 0) continue;
      const tcp::Greeting greeting("decoy", tcp::fill_random);
      const auto challenge = greeting.output();
      [[maybe_unused]] const ssize_t sent =
          ::send(made, challenge.data(), challenge.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      std::deque<int>& all = held[listener];
      all.push_back(made);
      if (all.size() <= kMostHeld) continue;
      reset(all.front());
      all.pop_front();
    }
  }
}

StrangerCounts* shared_counts() {
  void* const made = mmap(nullptr, sizeof(StrangerCounts), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(made != MAP_FAILED, "no memory that two processes share");
  return new (made) StrangerCounts;
}

std::vector<int> listen_at(size_t ports) {
  std::vector<int> made(ports);
  for (int& each : made) {
    each = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::bind(each, reinterpret_cast<const sockaddr*>(&here), sizeof(here)) == 0 &&
              ::listen(each, 1024) == 0,
          "a decoy cannot listen");
  }
  return made;
}

std::vector<std::string> addresses_of(const std::vector<int>& listeners) {
  std::vector<std::string> all;
  for (const int each : listeners) {
    sockaddr_in here{};
    socklen_t length = sizeof(here);
    CHECK(::getsockname(each, reinterpret_cast<sockaddr*>(&here), &length) == 0, "a decoy's port");
    all.push_back(cat("127.0.0.1:", ntohs(here.sin_port)));
  }
  return all;
}

}  // namespace

pid_t ChildProcess::begin() {
  const pid_t parent = getpid();
  const pid_t made = fork();
  CHECK(made >= 0, "no more processes");
  if (made > 0) return made;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  return 0;
}

void ChildProcess::leave() { _exit(0); }

double ChildProcess::stop() {
  if (pid_ <= 0) return processor_;
  kill(pid_, SIGKILL);
  rusage used{};
  int status = 0;
  while (wait4(pid_, &status, 0, &used) < 0 && errno == EINTR) continue;
  pid_ = -1;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  processor_ = seconds(used.ru_utime) + seconds(used.ru_stime);
  return processor_;
}

Attack::Attack(const StrangerSettings& settings)
    : counts_(shared_counts()), child_([&] { Strangers(settings, *counts_).run(); }) {}

Attack::~Attack() {
  child_.stop();
  munmap(counts_, sizeof(*counts_));
}

StrangerCounts Attack::stop() {
  const double processor = child_.stop();
  StrangerCounts counts = *counts_;
  counts.processor = processor;
  return counts;
}

Decoy::Decoy(size_t ports)
    : listeners_(listen_at(ports)),
      targets_(addresses_of(listeners_)),
      child_([this] { serve_decoy(listeners_); }) {
  for (const int each : listeners_) ::close(each);
}

}  // namespace tenuto
