#include "transport/faulty.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "transport/hello.h"
#include "transport/jitter.h"

namespace tenuto {

namespace {

// One direction of one link, at its receiver.
struct Line {
  LinkFault fault;
  Duration left{}, arrived{};  // of the previous message
  Duration until{};            // no message arrives before this
};

// A receive that is under way.
struct Awaited {
  WorkerId from;
  Bytes size;
  Tag tag;
};

// The inner wire's mailbox. It holds the report of a received message until the message arrives,
// and passes all other reports on.
class Gate : public Mailbox {
 public:
  Gate(const FaultSettings& settings, WorkerId self, Mailbox& outer, const Clock& clock)
      : settings_(settings), self_(self), outer_(outer), clock_(clock) {}

  void post(Done done) override;
  Result<Done> wait(Duration) override {
    return invalid("nobody waits at the gate of a faulty wire");
  }
  // The worker, which waits at the outer mailbox, may turn the inner wire's loop there.
  QueueMailbox* drivable() override { return outer_.drivable(); }

  void await(Ticket ticket, const Awaited& message);
  void set_link(WorkerId from, LinkFault fault);
  void set_sizes(MessageSizes sizes);
  void hold(WorkerId from, Duration until);
  void lose(WorkerId peer);
  void forgive(WorkerId peer);
  bool lost(WorkerId peer);
  void freeze();
  void thaw();
  void discard(WorkerId peer, const Error& error);
  Duration forward();
  void forward_until_stopped();
  void stop();

 private:
  Line& line(WorkerId from);
  Duration moment_of(const Awaited& message, const Done& done);

  const FaultSettings settings_;
  const WorkerId self_;
  Mailbox& outer_;
  const Clock& clock_;

  std::mutex mutex_;  // guards what follows; nothing else is locked while it is held
  std::condition_variable changed_;
  MessageSizes sizes_;
  std::map<WorkerId, Line> lines_;
  std::map<Ticket, Awaited> awaited_;
  std::multimap<Duration, Done> held_;  // by the moment when each is due
  std::set<WorkerId> lost_;
  bool frozen_ = false, stopped_ = false;
};

Line& Gate::line(WorkerId from) {
  const auto [it, fresh] = lines_.try_emplace(from);
  if (fresh) {
    const auto found = settings_.links.find({from, self_});
    it->second.fault = found == settings_.links.end() ? settings_.others : found->second;
  }
  return it->second;
}

// When a message that the inner wire has delivered arrives over the faulty link.
Duration Gate::moment_of(const Awaited& message, const Done& done) {
  Line& link = line(message.from);
  const Duration now = clock_.now();
  const Duration sent = done.sent == Duration::zero() ? now : std::min(done.sent, now);
  const Bytes size = sizes_ ? sizes_(message.tag, message.size) : message.size;
  link.left = std::max(sent, link.left) + transfer_time(size, link.fault.bytes_per_second);
  const Duration jitter =
      jitter_of(settings_.seed, message.from, self_, message.tag, link.fault.jitter);
  link.arrived = std::max({link.arrived, link.left + link.fault.latency + jitter, link.until});
  return link.arrived;
}

void Gate::post(Done done) {
  {
    const std::lock_guard lock(mutex_);
    Duration due{};
    const auto message = awaited_.extract(done.ticket);
    if (!message.empty() && done.status.ok()) {
      due = moment_of(message.mapped(), done);
      done.finish = std::max(done.finish, due);
    }
    const bool ended = !done.status.ok() && done.status.error().code == Code::Cancelled;
    if (ended && lost_.contains(done.peer)) {
      done.status = lost_error(done.peer, "the link to it broke");
    }
    if (frozen_ || due > clock_.now()) {
      held_.emplace(due, std::move(done));
      changed_.notify_all();
      return;
    }
  }
  outer_.post(std::move(done));
}

void Gate::await(Ticket ticket, const Awaited& message) {
  const std::lock_guard lock(mutex_);
  awaited_[ticket] = message;
}

void Gate::set_link(WorkerId from, LinkFault fault) {
  const std::lock_guard lock(mutex_);
  line(from).fault = fault;
}

void Gate::set_sizes(MessageSizes sizes) {
  const std::lock_guard lock(mutex_);
  sizes_ = std::move(sizes);
}

void Gate::hold(WorkerId from, Duration until) {
  const std::lock_guard lock(mutex_);
  line(from).until = std::max(line(from).until, until);
}

void Gate::lose(WorkerId peer) {
  {
    const std::lock_guard lock(mutex_);
    lost_.insert(peer);
  }
  Done done;
  done.peer = peer;
  done.status = lost_error(peer, "the link to it broke");
  post(std::move(done));
  discard(peer, lost_error(peer, "the link to it broke"));
}

void Gate::forgive(WorkerId peer) {
  const std::lock_guard lock(mutex_);
  lost_.erase(peer);
}

bool Gate::lost(WorkerId peer) {
  const std::lock_guard lock(mutex_);
  return lost_.contains(peer);
}

void Gate::freeze() {
  const std::lock_guard lock(mutex_);
  frozen_ = true;
}

void Gate::thaw() {
  const std::lock_guard lock(mutex_);
  frozen_ = false;
  changed_.notify_all();
}

// Ends the messages of `peer` that are still in transit with `error`.
void Gate::discard(WorkerId peer, const Error& error) {
  std::vector<Done> ended;
  {
    const std::lock_guard lock(mutex_);
    const Duration now = clock_.now();
    for (auto it = held_.begin(); it != held_.end();) {
      const bool transit = it->first > now && it->second.peer == peer && it->second.status.ok();
      if (transit) ended.push_back(std::move(it->second));
      it = transit ? held_.erase(it) : std::next(it);
    }
  }
  for (Done& done : ended) {
    done.status = error;
    post(std::move(done));
  }
}

Duration Gate::forward() {
  std::unique_lock lock(mutex_);
  while (!frozen_ && !held_.empty() && held_.begin()->first <= clock_.now()) {
    Done done = std::move(held_.begin()->second);
    held_.erase(held_.begin());
    lock.unlock();
    outer_.post(std::move(done));
    lock.lock();
  }
  return frozen_ || held_.empty() ? Duration::max() : held_.begin()->first;
}

void Gate::forward_until_stopped() {
  sharpen_timer();
  while (true) {
    const Duration next = forward();
    std::unique_lock lock(mutex_);
    if (stopped_) return;
    const auto news = [&] {
      return stopped_ || (!frozen_ && !held_.empty() && held_.begin()->first < next);
    };
    if (next == Duration::max()) {
      changed_.wait(lock, news);
    } else {
      changed_.wait_for(lock, std::max(next - clock_.now(), Duration::zero()), news);
    }
    if (stopped_) return;
  }
}

void Gate::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

class Faulty : public FaultyTransport {
 public:
  Faulty(const FaultSettings& settings, WorkerId self, Mailbox& mailbox, const Clock& clock)
      : gate_(settings, self, mailbox, clock) {}
  Faulty(const Faulty&) = delete;
  Faulty& operator=(const Faulty&) = delete;
  ~Faulty() override {
    inner_.reset();  // posts its last reports
    gate_.thaw();
    gate_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Status start(FaultDrive drive,
               const std::function<Result<std::unique_ptr<Transport>>(Mailbox&)>& make) {
    auto made = make(gate_);
    if (!made.ok()) return made.error();
    inner_ = std::move(made).value();
    if (drive == FaultDrive::Thread)
      thread_ = std::thread([this] { gate_.forward_until_stopped(); });
    return ok();
  }

  Address address() const override { return inner_->address(); }

  Status connect(WorkerId peer, const Address& address, Ticket ticket) override {
    return call(peer, ticket, [this, peer, address, ticket] {
      gate_.forgive(peer);
      return inner_->connect(peer, address, ticket);
    });
  }

  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    if (gate_.lost(to)) return refuse(to, ticket);
    return call(to, ticket, [=, this] { return inner_->send(to, tag, bytes, stamp, ticket); });
  }

  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    if (gate_.lost(from)) return refuse(from, ticket);
    return call(from, ticket, [=, this] {
      gate_.await(ticket, {from, {static_cast<int64_t>(bytes.size())}, tag});
      return inner_->recv(from, tag, bytes, ticket);
    });
  }

  Status drop(WorkerId peer) override {
    end_held_calls(peer, dropped_error(peer));
    const Status status = inner_->drop(peer);
    gate_.discard(peer, dropped_error(peer));
    gate_.forgive(peer);
    return status;
  }

  Status close(Duration limit) override {
    thaw();
    return inner_->close(limit);
  }

  // Without figures: the kernel knows nothing of the faults that are added here.
  WireNews take_news() override { return {inner_->take_news().repairs, {}}; }

  Status break_connection(WorkerId peer, int64_t after) override {
    return inner_->break_connection(peer, after);
  }

  void set_link(WorkerId from, LinkFault fault) override { gate_.set_link(from, fault); }

  void set_sizes(MessageSizes sizes) override { gate_.set_sizes(std::move(sizes)); }

  void hold(WorkerId from, Duration until) override { gate_.hold(from, until); }

  void lose(WorkerId peer) override {
    gate_.lose(peer);
    end_held_calls(peer, lost_error(peer, "the link to it broke"));
    [[maybe_unused]] const Status status = inner_->drop(peer);
  }

  void freeze() override {
    frozen_ = true;
    gate_.freeze();
  }

  void thaw() override {
    frozen_ = false;
    const std::vector<Call> calls = std::move(calls_);
    calls_.clear();
    for (const Call& each : calls) {
      if (const Status status = each.make(); !status.ok()) end(each, status.error());
    }
    gate_.thaw();
    if (!thread_.joinable()) pump();
  }

  Duration pump() override { return gate_.forward(); }

 private:
  // A call held back while frozen.
  struct Call {
    WorkerId peer;
    Ticket ticket;
    std::function<Status()> make;
  };

  Status call(WorkerId peer, Ticket ticket, std::function<Status()> make) {
    if (!frozen_) return make();
    calls_.push_back({peer, ticket, std::move(make)});
    return ok();
  }

  void end(const Call& held, const Error& error) {
    Done done;
    done.ticket = held.ticket;
    done.peer = held.peer;
    done.status = error;
    gate_.post(std::move(done));
  }

  void end_held_calls(WorkerId peer, const Error& error) {
    std::vector<Call> rest;
    for (Call& each : calls_) {
      if (each.peer == peer) {
        end(each, error);
      } else {
        rest.push_back(std::move(each));
      }
    }
    calls_ = std::move(rest);
  }

  Status refuse(WorkerId peer, Ticket ticket) {
    end({peer, ticket, {}}, lost_error(peer, "the link to it broke"));
    return ok();
  }

  Gate gate_;
  std::unique_ptr<Transport> inner_;
  std::thread thread_;
  bool frozen_ = false;
  std::vector<Call> calls_;
};

}  // namespace

Result<std::unique_ptr<FaultyTransport>> make_faulty_transport(
    const FaultSettings& settings, WorkerId self, Mailbox& mailbox, const Clock& clock,
    FaultDrive drive, const std::function<Result<std::unique_ptr<Transport>>(Mailbox&)>& make) {
  auto faulty = std::make_unique<Faulty>(settings, self, mailbox, clock);
  if (const Status status = faulty->start(drive, make); !status.ok()) return status.error();
  return std::unique_ptr<FaultyTransport>(std::move(faulty));
}

}  // namespace tenuto
