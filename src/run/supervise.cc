#include "run/supervise.h"

#include <netdb.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/standard_output.h"
#include "base/text.h"
#include "run/descriptor.h"
#include "run/launch.h"

namespace tenuto {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(100);
// How long workers may take to end by themselves: after a finished job, and after any other end.
constexpr Duration kLeave = std::chrono::seconds(5);
constexpr Duration kLeaveInTrouble = std::chrono::milliseconds(500);
// A coordinator that sends nothing for so long has stalled. The limit leaves it time to remove old
// checkpoints.
constexpr Duration kStandstill = std::chrono::seconds(5);
// The same for a coordinator that is still beginning: it may wait for another one's lease to
// expire.
constexpr Duration kBeginning = std::chrono::seconds(60);
// The run ends when so many coordinators die with no step committed between them.
constexpr int kMostDeaths = 6;
// After the second of these deaths, the next coordinator is started after this pause, which doubles
// with each further death.
constexpr Duration kPause = std::chrono::milliseconds(50);

sigset_t claimed_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&signals, signal);
  return signals;
}

// An address that is kept for this run while no coordinator listens: the kernel does not give a
// bound port to a process that asks for any free one, and a coordinator may bind it too.
struct HeldAddress {
  std::unique_ptr<Descriptor> socket;  // null = not held: the coordinator will say why
  std::string text;
};

HeldAddress hold(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), listen.c_str() + colon + 1, &hints, &found) != 0) {
    return {nullptr, listen};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  auto socket =
      std::make_unique<Descriptor>(::socket(all->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1;
  setsockopt(socket->number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  char port[NI_MAXSERV] = {};
  if (bind(socket->number(), all->ai_addr, all->ai_addrlen) != 0 ||
      getsockname(socket->number(), reinterpret_cast<sockaddr*>(&bound), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof(port),
                  NI_NUMERICSERV) != 0) {
    return {nullptr, listen};
  }
  return {std::move(socket), cat(listen.substr(0, colon), ":", port)};
}

// The run goes on without what went wrong.
void complain(const std::string& trouble) { std::fprintf(stderr, "tenuto: %s\n", trouble.c_str()); }

class Supervisor {
 public:
  explicit Supervisor(const SuperviseInput& input)
      : input_(input),
        held_(hold(input.job->coordinator.listen)),
        signals_(open_claimed_signals()) {}
  ~Supervisor() { kill_coordinator(); }

  Result<Ending> run();

 private:
  Status start_coordinator();
  void wait();
  void collect_signals();
  Status hear(const Notice& notice);
  Status start_workers();
  void start_again(WorkerId worker);
  void start_hog(const Notice& notice);
  void tell_exits();
  void watch();
  void kill_coordinator();
  // How the coordinator's process ended; none while it lives.
  std::optional<int> reap_coordinator();
  std::optional<Ending> answer_death(int status);
  // A successor can go on: the state is in the store. The host of server shards keeps its own in
  // memory, also if there are no servers.
  bool survivable() const {
    return input_.job->coordinator.store != "memory" && !input_.job->is_served();
  }

  const SuperviseInput& input_;
  const HeldAddress held_;
  const Descriptor signals_;
  Launcher launcher_;
  std::optional<Post> post_;  // to the present coordinator
  pid_t coordinator_ = -1, before_ = 0;
  Duration heard_at_{};     // its last notice
  bool listening_ = false;  // it has begun
  Duration start_at_{};     // of the next one, when there is none
  int deaths_ = 0;          // since a step was committed
  int64_t committed_ = -1;
  bool started_ = false;       // the workers
  bool over_ = false;          // the run has ended
  std::vector<Exited> exits_;  // of all workers; each later coordinator is told of all
  size_t exits_told_ = 0;
  std::vector<int> asked_;  // requests to stop; each later coordinator is told of all
};

Result<Ending> Supervisor::run() {
  while (true) {
    if (coordinator_ < 0 && monotonic_clock().now() >= start_at_) {
      const Status begun = start_coordinator();
      if (!begun.ok()) return begun.error();
    }
    wait();
    collect_signals();
    for (const Exited& exited : launcher_.reap()) exits_.push_back(exited);
    for (const std::string& trouble : launcher_.reap_hogs()) complain(trouble);
    tell_exits();
    if (!post_) continue;
    for (const Notice& notice : post_->take()) {
      const Status done = hear(notice);
      if (!done.ok()) return done.error();
    }
    watch();
    const std::optional<int> status = reap_coordinator();
    if (!status) continue;
    if (const std::optional<Ending> ending = answer_death(*status)) return *ending;
  }
}

// A fork without exec: job, plan and settings are at hand at once, and a new coordinator is there
// within milliseconds. This process has one thread and has not used gRPC, so a fork is safe.
Status Supervisor::start_coordinator() {
  Result<std::pair<Post, Post>> pair = Post::make_pair();
  if (!pair.ok()) return pair.error();
  std::fflush(nullptr);
  const pid_t self = getpid();
  const pid_t process = fork();
  if (process < 0) {
    return Error{Code::Exhausted, Reach::Job,
                 cat("cannot start the coordinator: ", std::strerror(errno))};
  }
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != self) _exit(1);  // the launcher has died before the call above
    post_.emplace(std::move(pair.value().second));
    pair.value().first = Post(-1);
    const int code = input_.coordinate({&*post_, held_.text, before_});
    std::exit(exit_code_with_output(code));
  }
  coordinator_ = process;
  post_.emplace(std::move(pair.value().first));
  heard_at_ = monotonic_clock().now();
  exits_told_ = 0;
  listening_ = false;
  for (const int number : asked_) {
    (void)post_->send({.kind = Notice::Kind::Asked, .number = number}, false);
  }
  return ok();
}

void Supervisor::wait() {
  std::vector<pollfd> waits = {{signals_.number(), POLLIN, 0}};
  if (post_) waits.push_back({post_->descriptor(), POLLIN, 0});
  for (const int descriptor : launcher_.descriptors()) waits.push_back({descriptor, POLLIN, 0});
  const Duration pause =
      coordinator_ < 0 ? start_at_ - monotonic_clock().now() : static_cast<Duration>(kTick);
  const double limit = std::clamp(to_milliseconds(pause), 1.0, to_milliseconds(kTick));
  poll(waits.data(), waits.size(), static_cast<int>(limit));
}

void Supervisor::collect_signals() {
  signalfd_siginfo info;
  while (read(signals_.number(), &info, sizeof(info)) == sizeof(info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number != SIGUSR1) asked_.push_back(number);
    if (post_) (void)post_->send({.kind = Notice::Kind::Asked, .number = number}, false);
  }
}

Status Supervisor::hear(const Notice& notice) {
  heard_at_ = monotonic_clock().now();
  switch (notice.kind) {
    case Notice::Kind::Listening:
      listening_ = true;
      return start_workers();
    case Notice::Kind::Alive:
      if (notice.committed > committed_) deaths_ = 0;
      committed_ = std::max(committed_, notice.committed);
      break;
    case Notice::Kind::Signal:
      // A worker that this launcher has not started gets no signal; if it is expelled, it leaves by
      // itself.
      (void)launcher_.signal({notice.worker}, notice.number);
      break;
    case Notice::Kind::Start:
      start_again({notice.worker});
      break;
    case Notice::Kind::StartHog:
      start_hog(notice);
      break;
    case Notice::Kind::EndHog:
      launcher_.end_hog(notice.number);
      break;
    case Notice::Kind::Leaving:
      over_ = true;
      launcher_.finish(notice.well ? kLeave : kLeaveInTrouble);
      (void)post_->send({.kind = Notice::Kind::Alone}, false);
      break;
    case Notice::Kind::Exited:
    case Notice::Kind::Asked:
    case Notice::Kind::Alone:
      break;  // the launcher only sends these
  }
  return ok();
}

Status Supervisor::start_workers() {
  if (started_ || input_.program.empty()) return ok();
  started_ = true;
  return launcher_.start({.program = input_.program,
                          .prefix = input_.job->coordinator.launch,
                          .coordinator = held_.text,
                          .job = input_.job->name,
                          .token = input_.token,
                          .tls = input_.job->coordinator.tls,
                          .directory = input_.directory,
                          .workers = input_.workers,
                          .hog_program = input_.hog_program,
                          .device = input_.job->network.device,
                          .script = input_.script});
}

void Supervisor::start_hog(const Notice& notice) {
  const Status started = launcher_.start_hog({.number = notice.number,
                                              .worker = {notice.worker},
                                              .threads = notice.threads,
                                              .megabytes_per_second = notice.megabytes_per_second,
                                              .for_ms = notice.for_ms});
  if (!started.ok()) complain(started.error().message);
}

// Starts a new process for a worker whose own has ended; later coordinators are not told of that
// end.
void Supervisor::start_again(WorkerId worker) {
  const Status started = launcher_.start_again(worker);
  if (!started.ok()) return complain(started.error().message);
  const auto told = exits_.begin() + static_cast<std::ptrdiff_t>(exits_told_);
  exits_told_ -= static_cast<size_t>(std::count_if(
      exits_.begin(), told, [&](const Exited& exited) { return exited.worker == worker; }));
  std::erase_if(exits_, [&](const Exited& exited) { return exited.worker == worker; });
}

void Supervisor::tell_exits() {
  while (post_ && exits_told_ < exits_.size()) {
    if (!post_->send(to_notice(exits_[exits_told_]), false)) return;  // at the next tick
    ++exits_told_;
  }
}

// Kills a coordinator that has stalled: while it lives, no successor can write to the store, and
// the workers wait for the commit that permits their next update.
void Supervisor::watch() {
  const Duration silence = from_milliseconds(1000 * input_.job->resilience.silence_seconds);
  const Duration limit = listening_ ? std::max(silence, kStandstill) : kBeginning;
  if (monotonic_clock().now() - heard_at_ < limit) return;
  heard_at_ = monotonic_clock().now();
  kill(coordinator_, SIGKILL);
}

std::optional<int> Supervisor::reap_coordinator() {
  int status = 0;
  if (coordinator_ < 0 || waitpid(coordinator_, &status, WNOHANG) != coordinator_) {
    return std::nullopt;
  }
  before_ = std::exchange(coordinator_, -1);
  post_.reset();
  return status;
}

void Supervisor::kill_coordinator() {
  if (coordinator_ < 0) return;
  kill(coordinator_, SIGKILL);
  while (waitpid(coordinator_, nullptr, 0) < 0 && errno == EINTR) {
  }
  coordinator_ = -1;
}

// How the run ends when a coordinator's process has ended; none = a successor continues the run.
std::optional<Ending> Supervisor::answer_death(int status) {
  if (over_ && WIFEXITED(status)) return Ending{WEXITSTATUS(status), ""};
  const std::string fate = WIFSIGNALED(status)
                               ? cat("the coordinator was killed by signal ", WTERMSIG(status))
                               : cat("the coordinator ended with exit code ", WEXITSTATUS(status));
  if (input_.job->is_served()) {
    return Ending{75, cat(fate, ", and only synchronous runs without servers survive that")};
  }
  if (!survivable()) {
    return Ending{75, cat(fate,
                          ", and coordinator.store = \"memory\" does not survive that: with "
                          "\"journal\" a new coordinator continues the run")};
  }
  if (++deaths_ >= kMostDeaths) {
    return Ending{75, cat(fate, ", and so did ", kMostDeaths - 1,
                          " others before it, and no step was committed between them")};
  }
  start_at_ = monotonic_clock().now();
  if (deaths_ > 1) start_at_ += kPause * (1 << (deaths_ - 2));
  return std::nullopt;
}

}  // namespace

void claim_signals() {
  const sigset_t claimed = claimed_signals();
  pthread_sigmask(SIG_BLOCK, &claimed, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

int open_claimed_signals() {
  const sigset_t claimed = claimed_signals();
  return signalfd(-1, &claimed, SFD_CLOEXEC | SFD_NONBLOCK);
}

Result<Ending> supervise(const SuperviseInput& input) { return Supervisor(input).run(); }

}  // namespace tenuto
