#include "runtime/staged.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/tag.h"
#include "transport/hello.h"

namespace tenuto {

namespace {

// The mailbox of the wire below: keeps the ends of staged messages for the thread that goes on with
// them, and passes all other reports to the worker.
class Gate : public Mailbox {
 public:
  explicit Gate(Mailbox& outer) : outer_(outer) {}

  void post(Done done) override {
    {
      const std::lock_guard lock(mutex_);
      const bool failed = !done.status.ok() && done.status.error().code != Code::Cancelled;
      if (failed && done.peer.value >= 0) ++errors_[done.peer];
      if (staged_.erase(done.ticket) > 0) {
        ended_.push_back(std::move(done));
        arrived_.notify_one();
        return;
      }
    }
    outer_.post(std::move(done));
  }
  Result<Done> wait(Duration) override {
    return invalid("nobody waits at the gate of a staged wire");
  }

  // The call with `ticket` is a staged one.
  void watch(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    staged_.insert(ticket);
  }
  // The call was refused: no report will come.
  void forget(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    staged_.erase(ticket);
  }
  // The next end of a staged message; none after stop().
  std::optional<Done> next() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return stopped_ || !ended_.empty(); });
    if (ended_.empty()) return {};
    Done done = std::move(ended_.front());
    ended_.pop_front();
    return done;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    arrived_.notify_all();
  }
  void count_error(WorkerId peer) {
    const std::lock_guard lock(mutex_);
    ++errors_[peer];
  }
  int32_t take_errors(WorkerId peer) {
    const std::lock_guard lock(mutex_);
    return std::exchange(errors_[peer], 0);
  }

 private:
  Mailbox& outer_;
  std::mutex mutex_;  // guards what follows; nothing else is locked while it is held
  std::condition_variable arrived_;
  std::set<Ticket> staged_;
  std::deque<Done> ended_;
  std::map<WorkerId, int32_t> errors_;
  bool stopped_ = false;
};

// A piece of pinned memory.
struct Slot {
  std::shared_ptr<std::byte> memory;
  Bytes size;
};

// The slots of one ring. There may be more than `most` for a while: a ring that shrinks gives its
// slots up as they come back.
struct Slots {
  int32_t most = 1;
  int32_t used = 0;
  std::vector<Slot> free;
  std::deque<Ticket> waiting;  // calls without a slot, first come, first served
};

// A staged message under way. Copying and Wire hold a slot.
struct Call {
  enum class Phase : uint8_t { Waiting, Copying, Wire } phase = Phase::Waiting;
  Ring ring;
  Tag tag;
  Stamp stamp;
  std::span<const std::byte> source;  // send: the value
  std::span<std::byte> target;        // receive: the buffer
  Slot slot;
  bool dropped = false;
  size_t size() const { return ring.send ? source.size() : target.size(); }
};

class Staged : public StagedTransport {
 public:
  Staged(Mailbox& mailbox, const Clock& clock) : outer_(mailbox), clock_(clock), gate_(mailbox) {}
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  ~Staged() override;

  Status open(const std::function<Result<std::unique_ptr<Transport>>(Mailbox&)>& make);

  Address address() const override { return inner_->address(); }
  Status connect(WorkerId peer, const Address& address, Ticket ticket) override;
  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override;
  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override;
  Status drop(WorkerId peer) override;
  WireNews take_news() override;
  Status break_connection(WorkerId peer, int64_t after) override;
  Status close(Duration limit) override;
  void use(Copies* copies) override;
  void set_path(WorkerId peer, Path path) override;
  void set_slots(std::map<Ring, int32_t> slots) override;
  int32_t take_errors(WorkerId peer) override { return gate_.take_errors(peer); }
  StagedCounters counters() const override;

 private:
  // All of these are called with mutex_ held, except copy_out, take_ends and copy_in.
  bool stages(WorkerId peer, const Tag& tag, const std::byte* memory);
  void enter(Ticket ticket, Call call);
  Slots& slots_of(const Ring& ring);
  void pump(Slots& slots);
  Status begin(Ticket ticket, Call& call);
  Result<Slot> take_slot(Slots& slots, Bytes size);
  void finish(Done done);
  void finish(Ticket ticket, const Error& error);
  bool sending() const;

  void copy_out();
  void send_copied(Ticket ticket, const Status& copied, Duration took);
  void take_ends();
  Status copy_in(const Done& done);

  Mailbox& outer_;
  const Clock& clock_;
  Gate gate_;  // outlives the wire below
  std::unique_ptr<Transport> inner_;

  mutable std::mutex mutex_;  // guards what follows, and makes calls of inner_ one at a time; while
                              // it is held, the mutexes of gate and mailboxes may be locked
  std::condition_variable changed_;
  Copies* copies_ = nullptr;
  std::map<WorkerId, Path> paths_;
  std::map<Ring, int32_t> wanted_;
  std::map<Ring, Slots> rings_;
  std::map<Ticket, Call> calls_;
  std::deque<Ticket> to_copy_;  // sends that have a slot
  StagedCounters counters_;
  bool stopped_ = false;

  std::thread out_, in_;
};

Status Staged::open(const std::function<Result<std::unique_ptr<Transport>>(Mailbox&)>& make) {
  Result<std::unique_ptr<Transport>> made = make(gate_);
  if (!made.ok()) return made.error();
  inner_ = std::move(made).value();
  out_ = std::thread([this] { copy_out(); });
  in_ = std::thread([this] { take_ends(); });
  return ok();
}

// Closes the wire below first, so that nothing uses a slot any more; then ends the threads.
Staged::~Staged() {
  if (inner_ == nullptr) return;
  [[maybe_unused]] const Status status = close(Duration::zero());
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  out_.join();
  gate_.stop();
  in_.join();
  inner_.reset();
}

// --- The worker's calls ------------------------------------------------------------------------

Status Staged::connect(WorkerId peer, const Address& address, Ticket ticket) {
  const std::lock_guard lock(mutex_);
  return inner_->connect(peer, address, ticket);
}

bool Staged::stages(WorkerId peer, const Tag& tag, const std::byte* memory) {
  if (copies_ == nullptr || !value_of(tag) || !copies_->holds(memory)) return false;
  const auto found = paths_.find(peer);
  if (found == paths_.end() || found->second == Path::Staged) return true;
  ++counters_.direct;
  return false;
}

Status Staged::send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
                    Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (!stages(to, tag, bytes.data())) return inner_->send(to, tag, bytes, stamp, ticket);
  const Value value = *value_of(tag);
  enter(ticket,
        {.ring = {to, true, value.kind, value.stage}, .tag = tag, .stamp = stamp, .source = bytes});
  return ok();
}

Status Staged::recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (!stages(from, tag, bytes.data())) return inner_->recv(from, tag, bytes, ticket);
  const Value value = *value_of(tag);
  enter(ticket, {.ring = {from, false, value.kind, value.stage}, .tag = tag, .target = bytes});
  return ok();
}

// Calls that wait for a slot end here; a call that is being copied ends after its copy; the wire
// below ends the calls that were handed to it.
Status Staged::drop(WorkerId peer) {
  const std::lock_guard lock(mutex_);
  std::vector<Ticket> over;
  for (auto& [ticket, call] : calls_) {
    if (call.ring.peer != peer) continue;
    call.dropped = true;
    if (call.phase == Call::Phase::Waiting) over.push_back(ticket);
  }
  for (const Ticket ticket : over) finish(ticket, dropped_error(peer));
  return inner_->drop(peer);
}

bool Staged::sending() const {
  for (const auto& [ticket, call] : calls_) {
    if (call.ring.send && call.phase != Call::Phase::Wire) return true;
  }
  return false;
}

// A connection that broke counts as an error on its link's path.
WireNews Staged::take_news() {
  const std::lock_guard lock(mutex_);
  WireNews news = inner_->take_news();
  for (const Repair& repair : news.repairs) gate_.count_error(repair.peer);
  return news;
}

Status Staged::break_connection(WorkerId peer, int64_t after) {
  const std::lock_guard lock(mutex_);
  return inner_->break_connection(peer, after);
}

Status Staged::close(Duration limit) {
  const Duration end = clock_.now() + limit;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return !sending(); });
  }
  return inner_->close(std::max(end - clock_.now(), Duration::zero()));
}

void Staged::use(Copies* copies) {
  const std::lock_guard lock(mutex_);
  copies_ = copies;
}

void Staged::set_path(WorkerId peer, Path path) {
  const std::lock_guard lock(mutex_);
  paths_[peer] = path;
}

void Staged::set_slots(std::map<Ring, int32_t> slots) {
  const std::lock_guard lock(mutex_);
  wanted_ = std::move(slots);
  for (auto& [ring, of] : rings_) {
    const auto found = wanted_.find(ring);
    of.most = std::max(found == wanted_.end() ? 1 : found->second, 1);
    while (!of.free.empty() && static_cast<int32_t>(of.free.size()) + of.used > of.most) {
      of.free.pop_back();
    }
    pump(of);
  }
}

StagedCounters Staged::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

// --- Slots -------------------------------------------------------------------------------------

Slots& Staged::slots_of(const Ring& ring) {
  const auto [it, fresh] = rings_.try_emplace(ring);
  if (fresh) {
    const auto found = wanted_.find(ring);
    it->second.most = std::max(found == wanted_.end() ? 1 : found->second, 1);
  }
  return it->second;
}

void Staged::enter(Ticket ticket, Call call) {
  Slots& slots = slots_of(call.ring);
  calls_.emplace(ticket, std::move(call));
  slots.waiting.push_back(ticket);
  pump(slots);
}

// Gives free slots to the calls that wait for one.
void Staged::pump(Slots& slots) {
  while (!slots.waiting.empty() && slots.used < slots.most) {
    const Ticket ticket = slots.waiting.front();
    slots.waiting.pop_front();
    const auto found = calls_.find(ticket);
    if (found == calls_.end()) continue;
    Call& call = found->second;
    if (call.dropped) {
      finish(ticket, dropped_error(call.ring.peer));
      continue;
    }
    Result<Slot> slot = take_slot(slots, {static_cast<int64_t>(call.size())});
    if (!slot.ok()) {
      finish(ticket, slot.error());
      continue;
    }
    call.slot = std::move(slot).value();
    call.phase = Call::Phase::Copying;
    if (call.ring.send) {
      to_copy_.push_back(ticket);
      changed_.notify_all();
      continue;
    }
    if (Status posted = begin(ticket, call); !posted.ok()) finish(ticket, posted.error());
  }
}

// Hands the call with its slot to the wire below.
Status Staged::begin(Ticket ticket, Call& call) {
  call.phase = Call::Phase::Wire;
  gate_.watch(ticket);
  const std::span<std::byte> bytes(call.slot.memory.get(), call.size());
  const Status status = call.ring.send
                            ? inner_->send(call.ring.peer, call.tag, bytes, call.stamp, ticket)
                            : inner_->recv(call.ring.peer, call.tag, bytes, ticket);
  if (!status.ok()) gate_.forget(ticket);
  return status;
}

Result<Slot> Staged::take_slot(Slots& slots, Bytes size) {
  Slot slot;
  if (!slots.free.empty()) {
    slot = std::move(slots.free.back());
    slots.free.pop_back();
  }
  if (slot.memory == nullptr || slot.size < size) {
    auto made = copies_->pinned(size);
    if (!made.ok()) return made.error();
    slot = {std::move(made).value(), size};
  }
  ++slots.used;
  ++counters_.in_use;
  counters_.most_slots = std::max(counters_.most_slots, slots.used);
  return slot;
}

// Ends a staged call: its slot comes back, the worker is told, the next in its ring goes on.
void Staged::finish(Done done) {
  const auto node = calls_.extract(done.ticket);
  if (node.empty()) return;
  Call& call = node.mapped();
  Slots& slots = slots_of(call.ring);
  if (call.slot.memory != nullptr) {
    --slots.used;
    --counters_.in_use;
    const int32_t kept = static_cast<int32_t>(slots.free.size()) + slots.used;
    if (kept < slots.most) slots.free.push_back(std::move(call.slot));
  }
  if (done.status.ok()) ++(call.ring.send ? counters_.sent : counters_.received);
  outer_.post(std::move(done));
  changed_.notify_all();
  pump(slots);
}

void Staged::finish(Ticket ticket, const Error& error) {
  Done done;
  done.ticket = ticket;
  done.status = error;
  if (const auto found = calls_.find(ticket); found != calls_.end()) {
    done.peer = found->second.ring.peer;
  }
  finish(std::move(done));
}

// --- The threads -------------------------------------------------------------------------------

// Copies values from the device into slots, one after the other; each is sent after its copy.
void Staged::copy_out() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !to_copy_.empty(); });
    if (to_copy_.empty()) return;
    const Ticket ticket = to_copy_.front();
    to_copy_.pop_front();
    const Call& call = calls_.at(ticket);
    const std::span<const std::byte> from = call.source;
    const std::span<std::byte> to(call.slot.memory.get(), from.size());
    Copies& copies = *copies_;
    lock.unlock();
    const Duration start = clock_.now();
    const Status copied = copies.to_host(from, to);
    const Duration took = clock_.now() - start;
    lock.lock();
    send_copied(ticket, copied, took);
  }
}

// The bytes of a message are in its slot: only now does it leave.
void Staged::send_copied(Ticket ticket, const Status& copied, Duration took) {
  counters_.to_host += took;
  Call& call = calls_.at(ticket);
  if (!copied.ok()) return finish(ticket, copied.error());
  if (call.dropped) return finish(ticket, dropped_error(call.ring.peer));
  if (call.stamp.sent.count() != 0) call.stamp.sent = clock_.now();
  if (Status begun = begin(ticket, call); !begun.ok()) finish(ticket, begun.error());
  changed_.notify_all();
}

// Handles what the wire below has ended: frees the slots of sends, copies what has come to the
// device.
void Staged::take_ends() {
  while (std::optional<Done> done = gate_.next()) {
    if (done->status.ok()) done->status = copy_in(*done);
    const std::lock_guard lock(mutex_);
    finish(std::move(*done));
  }
}

Status Staged::copy_in(const Done& done) {
  std::unique_lock lock(mutex_);
  const auto found = calls_.find(done.ticket);
  if (found == calls_.end() || found->second.ring.send) return ok();
  Call& call = found->second;
  call.phase = Call::Phase::Copying;
  const std::span<std::byte> to = call.target;
  const std::span<const std::byte> from(call.slot.memory.get(), to.size());
  Copies& copies = *copies_;
  lock.unlock();
  const Duration start = clock_.now();
  Status copied = copies.to_device(from, to);
  const Duration took = clock_.now() - start;
  lock.lock();
  counters_.to_device += took;
  return copied;
}

}  // namespace

Result<std::unique_ptr<StagedTransport>> make_staged_transport(
    Mailbox& mailbox, const Clock& clock,
    const std::function<Result<std::unique_ptr<Transport>>(Mailbox&)>& make) {
  auto staged = std::make_unique<Staged>(mailbox, clock);
  if (const Status opened = staged->open(make); !opened.ok()) return opened.error();
  return std::unique_ptr<StagedTransport>(std::move(staged));
}

}  // namespace tenuto
