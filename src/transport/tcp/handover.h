// Who turns the loop of a wire: the wire's thread, or the worker's own thread while it waits in its
// mailbox.
//
// The engine belongs to whoever has locked it, for one turn at a time. While the worker waits, its
// thread turns the loop and sleeps in epoll itself, so that no message is handed from thread to
// thread. Meanwhile the wire's thread stands back. It may still lie asleep in epoll from before:
// the kernel wakes the newest sleeper, which is the worker. Only when it is woken nevertheless it
// notices the worker and stands back for good: it then sleeps at a timer (`standby`), and takes
// over again when the worker has stayed away from its mailbox for kAway to twice kAway. A worker
// that comes back sooner keeps the loop, so that nobody is woken for short work between two waits.
//
// Every variable that both threads use is an atomic with sequential consistency, and every
// hand-over is made by the same two steps: first tell what you do, then look at what the other
// does. At least one of two threads that do this sees the other. handover_test plays the code below
// in all orders of these steps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/unit.h"

namespace tenuto::tcp {

// When the wire's thread takes over from a worker that is away. A worker that only starts its next
// ops is back sooner, even if others use its core meanwhile.
inline constexpr Duration kAway = std::chrono::microseconds(300);

// `World` is what the loop works with (tcp.cc has the real one). Its functions:
//   Events                 what the network has told; a container
//   lock, try_lock, unlock the engine
//   turn(whole)            with the engine: makes the calls and writes, all or only little; returns
//                          the moment until which it may be waited
//   closed()               with the engine: the wire is closed
//   handle(Events&)        with the engine: reads where something has happened, and empties them
//   has_calls()            there are calls that turn() has not made
//   gather(moment, Events&), wake()   waits for the network until then; ends one such wait
//   count_wake_up()        the wire's thread has slept in the network
//   spin_until()           how long a wait that begins now should look again and again before it
//                          sleeps; a moment that has passed = it sleeps at once
//   pause()                between two looks
//   has_reports, begin_sleep, end_sleep, sleep, nudge   the mailbox's, base/mailbox.h
//   call_back(time), stand_by()       sets the timer of the wire's thread; sleeps until it has rung
//   now()
template <class World>
class Handover {
 public:
  explicit Handover(World& world) : world_(world) {}
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // What the wire's thread does until the wire is closed.
  void serve() {
    typename World::Events events;
    world_.lock();
    while (true) {
      until_.store(world_.turn(true).count());
      const bool closed = world_.closed();
      world_.unlock();
      if (closed) return;
      if (driving_.load()) {
        stand_back();
      } else {
        watch(events);
      }
      world_.lock();
      world_.handle(events);
    }
  }

  // What the worker's thread does while it waits: returns when there is a report, at `limit` at the
  // latest.
  void drive(Duration limit) {
    driving_.store(true);
    const Duration spins_until = world_.spin_until();
    do {
      const int64_t thread = thread_until_.load();
      const bool spins = spins_until > world_.now();
      if (thread == kWorking || (spins && thread != kParked)) {
        // The thread stands back after its turn, and says so. The kernel would wake it for each
        // event that finds this thread awake, so it is sent away before this one begins to spin.
        if (thread != kWorking) wake();
        world_.sleep(limit);
      } else {
        drive_once(limit, spins_until);
      }
    } while (!world_.has_reports() && world_.now() < limit);
    leave();
  }

  // After a call has been added. With `at_once` the caller makes it and writes, if it finds the
  // engine free. An urgent call is not left to a worker that may come back soon.
  void called(bool at_once, bool urgent) {
    if (at_once && world_.try_lock()) {
      const int64_t until = world_.turn(false).count();
      until_.store(until);
      world_.unlock();
      if (until < thread_until_.load() || until < worker_until_.load()) wake();
      if (!world_.has_calls()) return;
    }
    const int64_t thread = thread_until_.load();
    if (thread == kParked && urgent) return call_thread();
    if (thread > kParked || worker_until_.load() > kParked) wake();
  }

 private:
  template <class Value>
  using Atomic = typename World::template Atomic<Value>;
  // A thread that is at work looks at everything before it sleeps: nobody has to wake it. One that
  // stands back is called by the timer. All other values are the moment until which it sleeps.
  static constexpr int64_t kWorking = INT64_MIN;
  static constexpr int64_t kParked = INT64_MIN + 1;

  void wake() {
    if (!woken_.exchange(true)) world_.wake();
  }

  void call_thread() {
    called_.store(true);
    world_.call_back(Duration(1));
  }

  // The thread sleeps in the network, unless there is more to do.
  void watch(typename World::Events& events) {
    const int64_t until = until_.load();
    thread_until_.store(until);
    if (!driving_.load() && !world_.has_calls() && until_.load() >= until) {
      world_.gather(Duration(until), events);
      if (until != 0) world_.count_wake_up();
    }
    thread_until_.store(kWorking);
    woken_.store(false);
  }

  // The thread sleeps at its timer until it is called, or the worker has been away for a while.
  void stand_back() {
    thread_until_.store(kParked);
    world_.nudge();
    // The worker may sleep for longer than this thread's last turn has found.
    if (worker_until_.load() != kWorking) wake();
    bool away = !driving_.load();
    while (!away) {
      world_.stand_by();
      away = called_.exchange(false) || is_away();
    }
    thread_until_.store(kWorking);
    checking_.store(false);
  }

  // After the timer has rung: whether the worker has been away since it was set. If not, it is set
  // again, by this thread or by the worker when it leaves.
  bool is_away() {
    if (driving_.load()) {
      checking_.store(false);
      if (driving_.load() || checking_.exchange(true)) return false;
    }
    const int64_t leaves = leaves_.load();
    if (checked_.exchange(leaves) == leaves) return true;
    world_.call_back(kAway);
    return false;
  }

  // One turn of the worker's: what is to be done now, then the network, then what came from there.
  void drive_once(Duration limit, Duration spins_until) {
    if (world_.has_calls() || until_.load() <= world_.now().count()) turn_as_worker();
    if (world_.has_reports()) return;
    if (!spin(limit, spins_until)) doze(std::min(limit, Duration(until_.load())));
    woken_.store(false);
    if (!events_.empty() || world_.has_calls()) turn_as_worker();
  }

  // What is read goes to the worker before anything is written: the worker writes when it waits
  // again, or before that with its next small send. If it stays away, the wire's thread, which
  // stands back meanwhile, does it.
  void turn_as_worker() {
    world_.lock();
    world_.handle(events_);
    const bool later = world_.has_reports() && thread_until_.load() == kParked;
    until_.store(later ? 0 : world_.turn(true).count());
    world_.unlock();
  }

  // Looks again and again. True when there is something to do or the moment has come.
  bool spin(Duration limit, Duration end) {
    for (Duration now = world_.now(); now < end; now = world_.now()) {
      world_.gather(Duration{}, events_);
      const Duration until = std::min(limit, Duration(until_.load()));
      if (!events_.empty() || world_.has_reports() || world_.has_calls() || now >= until) {
        return true;
      }
      world_.pause();
    }
    return false;
  }

  void doze(Duration until) {
    worker_until_.store(until.count());
    if (!world_.has_calls() && until_.load() >= until.count() && world_.begin_sleep()) {
      world_.gather(until, events_);
      world_.end_sleep();
    }
    worker_until_.store(kWorking);
  }

  void leave() {
    leaves_.store(leaves_.load() + 1);
    driving_.store(false);
    const int64_t thread = thread_until_.load();
    if (thread == kParked) {
      if (checking_.exchange(true)) return;
      checked_.store(leaves_.load());
      world_.call_back(kAway);
    } else if (until_.load() < thread) {
      wake();
    }
  }

  World& world_;
  typename World::Events events_;  // the worker's
  // The moment until which it may be waited, by the last turn.
  Atomic<int64_t> until_{0};
  Atomic<int64_t> thread_until_{kWorking}, worker_until_{kWorking};
  Atomic<bool> driving_{false};   // the worker waits in its mailbox
  Atomic<bool> woken_{false};     // the network's wait has been ended, and nobody has noticed yet
  Atomic<bool> checking_{false};  // the timer is set
  Atomic<bool> called_{false};    // it has been set for an urgent call
  Atomic<int64_t> leaves_{0}, checked_{0};  // how often the worker has left; when the timer was set
};

}  // namespace tenuto::tcp
