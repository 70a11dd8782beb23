// The hand-over between the wire's thread and the worker's (transport/tcp/handover.h), played on
// one thread in all orders of its steps: each use of a shared variable, each lock, each sleep. The
// orders in which a thread that could go on is stopped more than a few times are drawn.
#include "transport/tcp/handover.h"

#include <gtest/gtest.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "../sanitized.h"
#include "base/random.h"

namespace tenuto::tcp {
namespace {

// Decides at each point at which several may go on.
class Chooser {
 public:
  virtual ~Chooser() = default;
  // One of `count`. With `stopping`, 0 means that whoever is at work goes on, and all others stop
  // it.
  virtual size_t choose(size_t count, bool stopping) = 0;
};

// All choices, one play after the other, with at most `most` stops in each.
class EachOrder : public Chooser {
 public:
  explicit EachOrder(int most) : most_(most) {}
  size_t choose(size_t count, bool stopping) override {
    if (stopping && stops_ == most_) return 0;
    if (at_ == path_.size()) path_.push_back({0, count});
    const size_t chosen = path_[at_++].chosen;
    if (stopping && chosen > 0) ++stops_;
    return chosen;
  }
  // Goes to the next order; false = that was the last one.
  bool next() {
    at_ = 0;
    stops_ = 0;
    while (!path_.empty() && path_.back().chosen + 1 == path_.back().count) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().chosen;
    return true;
  }

 private:
  struct Choice {
    size_t chosen = 0, count = 0;
  };
  int most_, stops_ = 0;
  std::vector<Choice> path_;
  size_t at_ = 0;
};

class DrawnOrder : public Chooser {
 public:
  explicit DrawnOrder(uint64_t seed) : random_(seed), often_(1 + random_.below(12)) {}
  size_t choose(size_t count, bool stopping) override {
    if (stopping && random_.below(often_) != 0) return 0;
    return static_cast<size_t>(random_.below(static_cast<int64_t>(count)));
  }

 private:
  Random random_;
  int64_t often_;
};

// Threads that take turns by a chooser: only one runs at a time, and it can be stopped only in
// step() and wait_for().
class Interleaver {
 public:
  static constexpr size_t kStack = 128 << 10, kMostStrands = 3;
  explicit Interleaver(Chooser& chooser) : chooser_(chooser) {}

  // `eager`: letting others go first is not a stop.
  void add(std::function<void()> body, bool eager = false) {
    auto strand = std::make_unique<Strand>();
    strand->body = std::move(body);
    strand->eager = eager;
    strand->stack = stacks_[strands_.size()].data();
    getcontext(&strand->context);
    strand->context.uc_stack.ss_sp = strand->stack;
    strand->context.uc_stack.ss_size = kStack;
    makecontext(&strand->context, reinterpret_cast<void (*)()>(&Interleaver::begin), 0);
    strands_.push_back(std::move(strand));
  }
  // Plays until all have ended (true) or nobody can go on. `pass_time` is called when all sleep; it
  // returns false when that changes nothing.
  bool play(std::function<bool()> pass_time) {
    pass_time_ = std::move(pass_time);
    running_ = this;
    current_ = nullptr;
    if (Strand* first = pick()) {
      current_ = first;
      swapcontext(&outside_, &first->context);
    }
    running_ = nullptr;
    for (const auto& each : strands_) {
      if (!each->ended) return false;
    }
    return true;
  }
  // A point at which another one may go on.
  static void step() {
    if (running_ != nullptr) running_->yield();
  }
  // Goes on only when `condition` holds.
  static void wait_for(std::function<bool()> condition) {
    running_->current_->condition = std::move(condition);
    running_->yield();
    running_->current_->condition = nullptr;
  }

 private:
  struct Strand {
    std::function<void()> body;
    std::function<bool()> condition;
    char* stack = nullptr;
    ucontext_t context{};
    bool eager = false, ended = false;
    bool ready() const { return !ended && (condition == nullptr || condition()); }
  };

  static void begin() {
    Interleaver& self = *running_;
    self.current_->body();
    self.current_->ended = true;
    self.yield();
  }
  void yield() {
    Strand* before = current_;
    Strand* next = pick();
    if (next == before) return;
    current_ = next;
    swapcontext(&before->context, next != nullptr ? &next->context : &outside_);
  }
  // Who goes on; nullptr = nobody can.
  Strand* pick() {
    while (true) {
      std::array<Strand*, kMostStrands> ready{};
      size_t count = 0;
      const bool goes_on = current_ != nullptr && current_->ready();
      if (goes_on) ready[count++] = current_;
      for (const auto& each : strands_) {
        if (each.get() != current_ && each->ready()) ready[count++] = each.get();
      }
      if (count > 1) return ready[chooser_.choose(count, goes_on && !current_->eager)];
      if (count == 1) return ready[0];
      if (!pass_time_()) return nullptr;
    }
  }

  static Interleaver* running_;
  static std::array<std::array<char, kStack>, kMostStrands> stacks_;
  Chooser& chooser_;
  std::vector<std::unique_ptr<Strand>> strands_;
  Strand* current_ = nullptr;
  ucontext_t outside_{};
  std::function<bool()> pass_time_;
};

Interleaver* Interleaver::running_ = nullptr;
std::array<std::array<char, Interleaver::kStack>, Interleaver::kMostStrands> Interleaver::stacks_;

// A wire of which only the hand-over is real. Each event of the network, each call and each
// deadline ends with a report.
class ModelWire {
 public:
  explicit ModelWire(bool polls) : polls_(polls) {}

  // What the hand-over works with.
  template <class Value>
  class Atomic {
   public:
    Atomic(Value value) : value_(value) {}
    Value load() const {
      Interleaver::step();
      return value_;
    }
    void store(Value value) {
      Interleaver::step();
      value_ = value;
    }
    Value exchange(Value value) {
      Interleaver::step();
      return std::exchange(value_, value);
    }

   private:
    Value value_;
  };
  using Events = std::vector<bool>;  // whether the event brings a deadline
  void lock() {
    Interleaver::wait_for([this] { return !locked_; });
    locked_ = true;
  }
  bool try_lock() {
    Interleaver::step();
    return !std::exchange(locked_, true);
  }
  void unlock() {
    Interleaver::step();
    locked_ = false;
  }
  Duration turn(bool whole) {
    Interleaver::step();
    EXPECT_TRUE(locked_);
    for (; calls_ > 0; --calls_) end_one();
    to_write_ = std::exchange(large_, false) || to_write_;
    closed_ = closing_;
    if (deadline_ <= clock_) {
      deadline_ = Duration::max();
      end_one();
    }
    if (to_write_ && whole) {
      to_write_ = false;
      end_one();
    }
    return to_write_ || closed_ ? Duration{} : deadline_;
  }
  bool closed() const { return closed_; }
  void handle(Events& events) {
    Interleaver::step();
    EXPECT_TRUE(locked_);
    for (const bool with_deadline : events) {
      if (with_deadline) deadline_ = clock_ + Duration(5);
      end_one();
    }
    events.clear();
  }
  bool has_calls() const {
    Interleaver::step();
    return calls_ > 0 || (closing_ && !closed_);
  }
  void gather(Duration until, Events& events) {
    Sleeper sleeper(*this, until);
    Interleaver::wait_for([&] { return !coming_.empty() || woken_ || until <= clock_; });
    events.insert(events.end(), coming_.begin(), coming_.end());
    coming_.clear();
    woken_ = false;
  }
  void wake() {
    Interleaver::step();
    woken_ = true;
  }
  void count_wake_up() {}
  Duration spin_until() const { return polls_ ? Duration::max() : Duration{}; }
  void pause() {
    Sleeper sleeper(*this, std::min(deadline_, limit_));  // the worker looks at the clock
    Interleaver::wait_for([&] {
      return !coming_.empty() || woken_ || reports_ > 0 || calls_ > 0 || (to_write_ && !locked_) ||
             sleeper.until <= clock_;
    });
  }
  bool has_reports() const {
    Interleaver::step();
    return reports_ > 0;
  }
  bool begin_sleep() {
    Interleaver::step();
    asleep_ = reports_ == 0;
    return asleep_;
  }
  void end_sleep() {
    Interleaver::step();
    asleep_ = false;
  }
  void sleep(Duration until) {
    Sleeper sleeper(*this, until);
    Interleaver::wait_for([&] { return nudged_ || reports_ > 0 || until <= clock_; });
    nudged_ = false;
  }
  void nudge() {
    Interleaver::step();
    nudged_ = true;
  }
  void call_back(Duration) {
    Interleaver::step();
    ringing_ = true;  // it may ring at any time from now on
  }
  void stand_by() {
    Interleaver::wait_for([this] { return ringing_; });
    ringing_ = false;
  }
  Duration now() const { return clock_; }

  // The worker's thread.
  void call() {
    Interleaver::step();
    ++calls_;
    hand_over.called(false, false);
  }
  // With `large`, the caller cannot write all of it at once, and it ends with another report.
  void call_at_once(bool large = false) {
    Interleaver::step();
    ++calls_;
    large_ = large;
    hand_over.called(true, false);
  }
  // Takes a report; false = none came in time.
  bool wait(Duration limit = Duration::max()) {
    limit_ = limit == Duration::max() ? limit : clock_ + limit;
    if (reports_ == 0) {
      do {
        hand_over.drive(limit_);
      } while (!has_reports() && clock_ < limit_);
    }
    if (reports_ == 0) return false;
    --reports_;
    return true;
  }
  // Is away until so much has ended: the wire's thread has to do it.
  void compute_until(int64_t ended) {
    Interleaver::wait_for([this, ended] { return ended_ >= ended; });
  }
  void close() {
    Interleaver::step();
    closing_ = true;
    hand_over.called(false, true);
  }
  // The network, and another thread that posts a report.
  void event(bool with_deadline = false) {
    Interleaver::step();
    coming_.push_back(with_deadline);
  }
  void post() { end_one(); }
  // To the next moment at which somebody wakes. A deadline that nobody wakes for is never met.
  bool pass_time() {
    Duration next = Duration::max();
    for (const Sleeper* each = sleepers_; each != nullptr; each = each->next) {
      next = std::min(next, each->until);
    }
    if (next == Duration::max()) return false;
    EXPECT_LE(next, deadline_) << "nobody wakes for a deadline";
    clock_ = std::max(clock_, next);
    return true;
  }

  Handover<ModelWire> hand_over{*this};

 private:
  struct Sleeper {
    Sleeper(ModelWire& its_wire, Duration moment)
        : wire(its_wire), until(moment), next(its_wire.sleepers_) {
      wire.sleepers_ = this;
    }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    ~Sleeper() {
      Sleeper** at = &wire.sleepers_;
      while (*at != this) at = &(*at)->next;
      *at = next;
    }
    ModelWire& wire;
    Duration until;
    Sleeper* next;
  };
  void end_one() {
    Interleaver::step();
    ++ended_;
    ++reports_;
    if (std::exchange(asleep_, false)) woken_ = true;
  }

  bool polls_;
  Sleeper* sleepers_ = nullptr;
  Duration clock_{1}, deadline_ = Duration::max(), limit_{};
  Events coming_;
  int64_t calls_ = 0, ended_ = 0, reports_ = 0;
  bool locked_ = false, closing_ = false, closed_ = false, large_ = false, to_write_ = false;
  bool woken_ = false, asleep_ = false, nudged_ = false, ringing_ = false;
};

// What the worker does, and what happens around it meanwhile.
struct Case {
  const char* name;
  std::function<void(ModelWire&)> worker, around;
  bool calls = false;  // what happens around it takes more than a few steps
};

std::vector<Case> cases() {
  using Wire = ModelWire;
  const auto nothing = [](Wire&) {};
  const auto two_events = [](Wire& wire) { wire.event(), wire.event(); };
  return {
      {"waits for events", [](Wire& wire) { wire.wait(), wire.wait(); }, two_events},
      {"waits for calls",
       [](Wire& wire) { wire.call(), wire.call_at_once(), wire.wait(), wire.wait(); }, nothing},
      {"computes behind a call",
       [](Wire& wire) { wire.call(), wire.compute_until(1), wire.wait(); }, nothing},
      {"computes behind a wait and a call",
       [](Wire& wire) { wire.wait(), wire.call(), wire.compute_until(2), wire.wait(); },
       [](Wire& wire) { wire.event(); }},
      {"computes behind a large call",
       [](Wire& wire) { wire.wait(), wire.call_at_once(true), wire.compute_until(3); },
       [](Wire& wire) { wire.event(); }},
      {"computes while an event comes", [](Wire& wire) { wire.wait(), wire.compute_until(2); },
       two_events},
      {"computes until a deadline", [](Wire& wire) { wire.wait(), wire.compute_until(2); },
       [](Wire& wire) { wire.event(true); }},
      {"waits until a deadline", [](Wire& wire) { wire.wait(), wire.wait(); },
       [](Wire& wire) { wire.event(true); }},
      {"waits for others' reports", [](Wire& wire) { wire.wait(), wire.wait(); },
       [](Wire& wire) { wire.post(), wire.event(); }},
      {"waits for another's call", [](Wire& wire) { wire.wait(); }, [](Wire& wire) { wire.call(); },
       true},
      {"waits for another's large call", [](Wire& wire) { wire.wait(), wire.wait(); },
       [](Wire& wire) { wire.call_at_once(true); }, true},
      {"waits for others' calls", [](Wire& wire) { wire.wait(), wire.wait(), wire.wait(); },
       [](Wire& wire) { wire.call(), wire.call_at_once(true); }, true},
      {"comes and goes",
       [](Wire& wire) {
         wire.wait(), wire.call(), wire.wait(), wire.compute_until(3), wire.wait();
       },
       two_events},
      {"waits with a limit",
       [](Wire& wire) {
         while (!wire.wait(Duration{})) wire.compute_until(1);
         wire.wait(Duration(3)), wire.compute_until(2);
       },
       [](Wire& wire) { wire.event(true); }},
  };
}

// One play; false = it found a fault.
bool play(const Case& one, bool polls, Chooser& chooser) {
  ModelWire wire(polls);
  Interleaver threads(chooser);
  threads.add([&] { wire.hand_over.serve(); });
  threads.add([&] {
    one.worker(wire);
    wire.close();
  });
  threads.add([&] { one.around(wire); }, !one.calls);
  EXPECT_TRUE(threads.play([&] { return wire.pass_time(); })) << "nobody can go on";
  return !testing::Test::HasFailure();
}

// TENUTO_STOPS=2 plays all orders with two stops, which takes some minutes.
TEST(Handover, NothingIsLostInAnyOrder) {
  const char* asked = std::getenv("TENUTO_STOPS");
  const int stops = asked != nullptr ? std::atoi(asked) : 1;
  int64_t plays = 0;
  for (const Case& one : cases()) {
    for (const bool polls : {false, true}) {
      SCOPED_TRACE(testing::Message() << one.name << (polls ? ", polls" : ""));
      EachOrder order(stops);
      do {
        ++plays;
        if (!play(one, polls, order)) return;
      } while (order.next());
      std::printf("%s %d %lld\n", one.name, polls, (long long)plays), std::fflush(stdout);
    }
  }
  std::printf("%lld orders\n", static_cast<long long>(plays));
}

TEST(Handover, NothingIsLostInDrawnOrders) {
  const uint64_t plays = kSanitized ? 100 : 3000;
  for (const Case& one : cases()) {
    for (const bool polls : {false, true}) {
      for (uint64_t seed = 1; seed <= plays; ++seed) {
        SCOPED_TRACE(testing::Message() << one.name << (polls ? ", polls" : "") << ", " << seed);
        DrawnOrder order(seed);
        if (!play(one, polls, order)) return;
      }
    }
  }
}

}  // namespace
}  // namespace tenuto::tcp
