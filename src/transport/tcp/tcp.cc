#include "transport/tcp/tcp.h"

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "transport/bytes.h"
#include "transport/hello.h"
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

// A call on its way to the engine.
struct Call {
  enum class Kind : uint8_t { Connect, Send, Recv, Drop, Break, Close } kind = Kind::Close;
  WorkerId peer;
  Tag tag;
  Stamp stamp;
  Ticket ticket = kNoTicket;
  std::span<const std::byte> sent;
  std::span<std::byte> received;
  Taker taker;
  std::string name;
  SocketAddress to;
  Duration limit{};
  int64_t after = 0;
};

// The engine belongs to whoever has locked `owner_`. Who turns it gives it away while it waits for
// the network. A caller that finds it free writes at once, so that a small message leaves without
// waking a thread; a caller never waits for it.
class Wire : public TcpTransport, public MailboxDriver {
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
  Status connect(WorkerId peer, const Address& address, Ticket ticket) override;
  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override;
  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    return take(from, tag, bytes, {}, ticket);
  }
  bool has_takers() const override { return true; }
  Status take(WorkerId from, Tag tag, std::span<std::byte> buffer, Taker taker,
              Ticket ticket) override;
  Status drop(WorkerId peer) override;
  Status close(Duration limit) override;
  std::vector<Repair> take_repairs() override;
  Status break_connection(WorkerId peer, int64_t after) override;
  TcpCounters counters() const override;

  void drive(Duration until) override { handover_.drive(until); }

 private:
  friend class tcp::Handover<Wire>;
  Status submit(Call call);
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
  tcp::CallQueue<Call> calls_;
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

// Adds a call and sees to it that somebody makes it.
Status Wire::submit(Call call) {
  const bool closes = call.kind == Call::Kind::Close;
  if (closes ? !open_.exchange(false) : !open_.load()) return closed_error(self_);
  const bool at_once = call.kind == Call::Kind::Send && call.sent.size() <= tcp::kSmall;
  const bool urgent = call.kind != Call::Kind::Send && call.kind != Call::Kind::Recv;
  calls_.push(std::move(call));
  handover_.called(at_once, urgent);
  return ok();
}

Status Wire::connect(WorkerId peer, const Address& address, Ticket ticket) {
  const auto to = resolve(address.text);
  if (!to.ok()) return to.error();
  Call call;
  call.kind = Call::Kind::Connect;
  call.peer = peer;
  call.name = address.text;
  call.to = to.value();
  call.ticket = ticket;
  return submit(std::move(call));
}

Status Wire::send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
                  Ticket ticket) {
  Call call;
  call.kind = Call::Kind::Send;
  call.peer = to;
  call.tag = tag;
  call.sent = bytes;
  call.stamp = stamp;
  call.ticket = ticket;
  return submit(std::move(call));
}

Status Wire::take(WorkerId from, Tag tag, std::span<std::byte> buffer, Taker taker, Ticket ticket) {
  Call call;
  call.kind = Call::Kind::Recv;
  call.peer = from;
  call.tag = tag;
  call.received = buffer;
  call.taker = taker;
  call.ticket = ticket;
  return submit(std::move(call));
}

Status Wire::drop(WorkerId peer) {
  Call call;
  call.kind = Call::Kind::Drop;
  call.peer = peer;
  return submit(std::move(call));
}

std::vector<Repair> Wire::take_repairs() {
  const std::lock_guard lock(tally_.mutex);
  return std::exchange(tally_.repairs, {});
}

Status Wire::break_connection(WorkerId peer, int64_t after) {
  Call call;
  call.kind = Call::Kind::Break;
  call.peer = peer;
  call.after = after;
  return submit(std::move(call));
}

Status Wire::close(Duration limit) {
  Call call;
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
  calls_.take_all([this](const Call& each) {
    switch (each.kind) {
      case Call::Kind::Connect:
        return engine_->connect(each.peer, each.name, each.to, each.ticket);
      case Call::Kind::Send:
        return engine_->send(each.peer, each.tag, each.sent, each.stamp, each.ticket);
      case Call::Kind::Recv:
        return engine_->recv(each.peer, each.tag, each.received, each.taker, each.ticket);
      case Call::Kind::Drop:
        return engine_->drop(each.peer);
      case Call::Kind::Break:
        return engine_->break_connection(each.peer, each.after);
      case Call::Kind::Close:
        return engine_->close(each.limit);
    }
  });
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
