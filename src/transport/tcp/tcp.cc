#include "transport/tcp/tcp.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "transport/bytes.h"
#include "transport/hello.h"
#include "transport/queued_wire.h"
#include "transport/tcp/call_queue.h"
#include "transport/tcp/engine.h"
#include "transport/tcp/epoll_sockets.h"
#include "transport/tcp/handover.h"
#include "transport/tcp/spinner.h"
#include "transport/tcp/standby.h"
#include "transport/tcp/tls_context.h"
#include "transport/tcp/tls_sockets.h"

namespace tenuto {

namespace {

using tcp::Engine;

// What a caller writes itself to a connection before it leaves the rest to the wire's thread.
constexpr size_t kWrittenByCaller = tcp::kSmall;

// The engine belongs to whoever has locked `owner_`. Who turns it gives it away while it waits for
// the network. A caller that finds it free writes at once, so that a small message leaves without
// waking a thread; a caller never waits for it.
class Wire : public QueuedWire<TcpTransport>, public MailboxDriver {
 public:
  Wire(const TcpSettings& settings, Hello self, Mailbox& mailbox,
       std::unique_ptr<tcp::Sockets> sockets)
      : settings_(settings),
        self_(self.self),
        sockets_(std::move(sockets)),
        spinner_(settings.progress, settings.workers_here),
        engine_(std::make_unique<Engine>(settings, std::move(self),
                                         tcp::EngineParts{mailbox, *sockets_, tally_})) {
    if (settings.progress != WireProgress::Thread) driven_ = mailbox.drivable();
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() override { [[maybe_unused]] const Status status = close(Duration::zero()); }

  // Listens and starts the thread.
  Status start();

  Address address() const override { return {address_}; }
  bool has_takers() const override { return true; }
  Status close(Duration limit) override;
  WireNews take_news() override;
  TcpCounters counters() const override;

  void drive(Duration until) override { handover_.drive(until); }

 private:
  friend class tcp::Handover<Wire>;
  Status submit(WireCall call) override;
  void apply();
  void run();

  // What the hand-over works with (handover.h).
  template <class Value>
  using Atomic = std::atomic<Value>;
  using Events = std::vector<tcp::SocketEvent>;
  void lock() { owner_.lock(); }
  bool try_lock() { return owner_.try_lock(); }
  void unlock() { owner_.unlock(); }
  Duration turn(bool whole) {
    apply();
    return whole ? engine_->work() : engine_->work(kWrittenByCaller);
  }
  bool closed() const { return engine_->closed(); }
  void handle(Events& events) { engine_->handle_events(events); }
  bool has_calls() const { return !calls_.empty(); }
  void gather(Duration until, Events& events) { engine_->gather_events(until, events); }
  void count_wake_up() { ++tally_.wake_ups; }
  void wake() override { sockets_->wake(); }
  Duration spin_until() { return spinner_.until(); }
  static void pause() { tcp::Spinner::pause(); }
  bool has_reports() const { return driven_->has_reports(); }
  bool begin_sleep() { return driven_->begin_sleep(); }
  void end_sleep() { driven_->end_sleep(); }
  void sleep(Duration until) { driven_->sleep(until); }
  void nudge() { driven_->nudge(); }
  void call_back(Duration after) { standby_.call_back(after); }
  void stand_by() { standby_.wait(); }
  Duration now() const { return sockets_->now(); }

  TcpSettings settings_;
  WorkerId self_;
  tcp::Tally tally_;
  std::unique_ptr<tcp::Sockets> sockets_;
  std::string address_;
  std::thread thread_;
  tcp::CallQueue<WireCall> calls_;
  std::atomic<bool> open_{false};   // calls are accepted
  QueueMailbox* driven_ = nullptr;  // the mailbox whose reader turns the loop; null = nobody's
  tcp::Spinner spinner_;
  tcp::Standby standby_;
  tcp::Handover<Wire> handover_{*this};

  std::mutex owner_;  // guards engine_; mailboxes are posted to while it is held
  std::unique_ptr<Engine> engine_;
  Status outcome_ = ok();  // of closing; read when the thread has ended
};

Status Wire::start() {
  if (const Status status = engine_->open(); !status.ok()) return status;
  if (const Status status = standby_.open(); !status.ok()) return status.error();
  address_ = engine_->address();
  if (driven_ != nullptr && !driven_->set_driver(this)) driven_ = nullptr;
  open_ = true;
  thread_ = std::thread([this] { run(); });
  return ok();
}

Status Wire::submit(WireCall call) {
  const bool closes = call.kind == WireCall::Kind::Close;
  if (closes ? !open_.exchange(false) : !open_.load()) return closed_error(self_);
  const bool at_once = call.kind == WireCall::Kind::Send && call.sent.size() <= tcp::kSmall;
  const bool urgent = call.kind != WireCall::Kind::Send && call.kind != WireCall::Kind::Recv;
  calls_.push(std::move(call));
  handover_.called(at_once, urgent);
  return ok();
}

WireNews Wire::take_news() {
  const std::lock_guard lock(tally_.mutex);
  WireNews news{std::exchange(tally_.repairs, {}), {}};
  for (auto& [peer, figures] : tally_.figures) news.figures.push_back(figures);
  tally_.figures.clear();
  return news;
}

Status Wire::close(Duration limit) {
  WireCall call;
  call.limit = limit;
  if (driven_ != nullptr && open_) driven_->set_driver(nullptr);
  if (!submit(std::move(call)).ok()) return ok();
  thread_.join();
  sockets_.reset();  // not by the thread, which the caller may have been about to wake
  return outcome_;
}

TcpCounters Wire::counters() const {
  return {tally_.refused, tally_.turned_away, tally_.malformed, tally_.wake_ups,
          tally_.broken,  tally_.sent_again,  tally_.kept};
}

void Wire::apply() {
  calls_.take_all([this](const WireCall& each) { make_call(each, *engine_); });
}

// The main function of the wire's thread. Closing is finished only after the engine is destroyed:
// until then it may use buffers and the mailbox.
void Wire::run() {
  if (settings_.on_thread) settings_.on_thread();
  handover_.serve();
  const std::lock_guard own(owner_);
  outcome_ = engine_->verdict();
  engine_.reset();
}

}  // namespace

Result<std::unique_ptr<TcpTransport>> make_tcp_transport(const TcpSettings& settings, Hello self,
                                                         Mailbox& mailbox) {
  if (self.job.size() > tcp::kLongestJob || self.token.size() > kFrameText) {
    return invalid(cat("the name of the job has ", self.job.size(), " bytes, at most ",
                       tcp::kLongestJob, ", and its token ", self.token.size(), ", at most ",
                       kFrameText));
  }
  constexpr size_t kPort = 6;
  if (settings.advertised_host.size() + kPort > tcp::kLongestAddress) {
    return invalid(cat("the advertised address has ", settings.advertised_host.size(),
                       " bytes, at most ", tcp::kLongestAddress - kPort));
  }
  if (self.self.value < 0) return invalid("a wire needs a worker number of at least 0");
  auto sockets = tcp::make_epoll_sockets(silence_before_break(settings));
  if (!sockets.ok()) return sockets.error();
  if (settings.tls != nullptr) {
    const auto context = tcp::make_tls_context(*settings.tls);
    if (!context.ok()) return context.error();
    sockets = tcp::make_tls_sockets(std::move(sockets).value(), context.value());
  }
  auto wire =
      std::make_unique<Wire>(settings, std::move(self), mailbox, std::move(sockets).value());
  if (const Status status = wire->start(); !status.ok()) return status.error();
  return std::unique_ptr<TcpTransport>(std::move(wire));
}

}  // namespace tenuto
