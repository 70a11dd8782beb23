#include "transport/ucx/ucx.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/text.h"
#include "transport/queued_wire.h"
#include "transport/ucx/engine.h"

namespace tenuto {

namespace {

constexpr int64_t kHeaderSpace = 8 << 10;  // for UCX's headers and ours: more than they need

class Wire : public QueuedWire<UcxTransport> {
 public:
  Wire(const UcxSettings& settings, Hello self, Mailbox& mailbox)
      : settings_(settings), self_(std::move(self)), mailbox_(mailbox) {}
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() override;

  // Starts the communication thread and waits until it listens or has failed.
  Status start();

  Address address() const override { return {address_}; }
  bool has_takers() const override { return !settings_.device_memory; }
  Status close(Duration limit) override;
  WireNews take_news() override;
  UcxCounters counters() const override;

 private:
  Status submit(WireCall call) override;
  void run();
  void open_and_serve(UcxEngine& engine);
  void serve(UcxEngine& engine);
  void apply(UcxEngine& engine);
  bool sleep_allowed();

  UcxSettings settings_;
  Hello self_;
  Mailbox& mailbox_;
  UcxTally tally_;
  std::string address_;
  std::thread thread_;
  int wake_ = -1, poll_ = -1;
  std::atomic<bool> pending_{false};  // queue_ is not empty

  std::mutex mutex_;  // guards what follows; nothing else is locked while it is held
  std::condition_variable changed_;
  std::vector<WireCall> queue_;
  bool sleeping_ = false;  // the thread must be woken for a new call
  bool open_ = true;       // calls are accepted
  bool started_ = false, finished_ = false;
  Status outcome_ = ok();  // of starting, then of closing
};

Status Wire::start() {
  wake_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  poll_ = epoll_create1(EPOLL_CLOEXEC);
  if (wake_ < 0 || poll_ < 0) {
    open_ = false;
    return Error{Code::Exhausted, Reach::Worker,
                 "no more file descriptors for a wire: raise `ulimit -n`"};
  }
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_; });
  return outcome_;
}

Wire::~Wire() {
  [[maybe_unused]] const Status status = close(Duration::zero());
  if (thread_.joinable()) thread_.join();
  if (wake_ >= 0) ::close(wake_);
  if (poll_ >= 0) ::close(poll_);
}

Status Wire::submit(WireCall call) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (!open_) return closed_error(self_.self);
    if (call.kind == WireCall::Kind::Close) open_ = false;
    queue_.push_back(std::move(call));
    pending_.store(true, std::memory_order_release);
    wake = std::exchange(sleeping_, false);
  }
  if (wake) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
  }
  return ok();
}

WireNews Wire::take_news() {
  const std::lock_guard lock(tally_.mutex);
  return {std::exchange(tally_.repairs, {}), {}};
}

Status Wire::close(Duration limit) {
  if (!thread_.joinable()) return ok();
  WireCall call;
  call.limit = limit;
  if (!submit(std::move(call)).ok()) return ok();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return finished_; });
  return outcome_;
}

UcxCounters Wire::counters() const {
  return {tally_.eager_sent, tally_.rendezvous_sent, tally_.refused,
          tally_.malformed,  tally_.unknown_grants,  tally_.wake_ups,
          tally_.broken,     tally_.sent_again,      tally_.kept};
}

// The main function of the communication thread. Closing is finished only after UCX is destroyed:
// until then UCX may use buffers and the mailbox.
void Wire::run() {
  if (settings_.on_thread) settings_.on_thread();
  {
    UcxEngine engine(settings_, self_, mailbox_, tally_);
    open_and_serve(engine);
  }
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
  }
  changed_.notify_all();
}

void Wire::open_and_serve(UcxEngine& engine) {
  const Status opened = engine.open();
  address_ = engine.address();
  if (opened.ok()) {
    for (const int descriptor : {engine.descriptor(), wake_}) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = descriptor;
      CHECK(epoll_ctl(poll_, EPOLL_CTL_ADD, descriptor, &event) == 0, "epoll refuses a descriptor");
    }
  }
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
    outcome_ = opened;
    if (!opened.ok()) open_ = false;
  }
  changed_.notify_all();
  if (opened.ok()) serve(engine);
}

void Wire::apply(UcxEngine& engine) {
  if (!pending_.load(std::memory_order_acquire)) return;
  std::vector<WireCall> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(queue_);
    pending_.store(false, std::memory_order_release);
  }
  for (const WireCall& each : calls) make_call(each, engine);
}

// True when no call waits. From then on the next call wakes the thread.
bool Wire::sleep_allowed() {
  const std::lock_guard lock(mutex_);
  sleeping_ = queue_.empty();
  return sleeping_;
}

// Works while there is work, then sleeps until UCX has work, a call comes or a limit is reached.
void Wire::serve(UcxEngine& engine) {
  while (true) {
    apply(engine);
    if (engine.progress()) continue;
    const Duration next = engine.tick();
    if (engine.closed()) break;
    if (!engine.arm() || !sleep_allowed()) continue;
    int milliseconds = -1;
    if (next != Duration::max()) {
      const Duration left = std::max(next - monotonic_clock().now(), Duration::zero());
      milliseconds =
          static_cast<int>((left + std::chrono::microseconds(999)) / std::chrono::milliseconds(1));
    }
    epoll_event events[2];
    const int count = epoll_wait(poll_, events, 2, milliseconds);
    ++tally_.wake_ups;
    for (int i = 0; i < count; ++i) {
      uint64_t ignored = 0;
      if (events[i].data.fd == wake_) {
        [[maybe_unused]] const ssize_t size = read(wake_, &ignored, sizeof(ignored));
      }
    }
  }
  const std::lock_guard lock(mutex_);
  outcome_ = engine.verdict();
}

}  // namespace

Result<std::unique_ptr<UcxTransport>> make_ucx_transport(const UcxSettings& settings, Hello self,
                                                         Mailbox& mailbox) {
  if (self.job.size() > kFrameText || self.token.size() > kFrameText) {
    return invalid(cat("the name of the job has ", self.job.size(), " bytes and its token ",
                       self.token.size(), ", at most ", kFrameText, " each"));
  }
  if (self.self.value < 0) return invalid("a wire needs a worker number of at least 0");
  // UCX reads these only from the environment. The first lets a restarted worker listen at its old
  // port at once. The second keeps large messages from TCP's put: if the connection is closed by
  // force meanwhile, the put's acknowledgement fails an assertion of UCX 1.13 and ends the process.
  // The third raises TCP's piece size from 64 KiB, so that a message of kOnePiece and its headers
  // fit into one.
  const std::string piece = cat(LinkRate::kOnePiece.count + kHeaderSpace);
  static const bool prepared = setenv("UCX_TCP_CM_REUSEADDR", "y", 0) == 0 &&
                               setenv("UCX_TCP_PUT_ENABLE", "n", 0) == 0 &&
                               setenv("UCX_TCP_RX_SEG_SIZE", piece.c_str(), 0) == 0;
  if (!prepared) return invalid("cannot set environment variables of this process");
  auto wire = std::make_unique<Wire>(settings, std::move(self), mailbox);
  if (const Status status = wire->start(); !status.ok()) return status.error();
  return std::unique_ptr<UcxTransport>(std::move(wire));
}

}  // namespace tenuto
