// The mailbox of a worker. Transports, compute engines and the coordinator's messages post reports
// to it; the worker waits nowhere else.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "base/id.h"
#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// Names one call whose end will be reported. The caller chooses it; kNoTicket names no call.
enum class Ticket : uint64_t {};
inline constexpr Ticket kNoTicket{0};

// A report. With a ticket: that call has ended with `status`, unless it has `grown`. Without a
// ticket, but with a peer: that peer is lost, and `status` says why. With neither: something new
// has come from the coordinator.
struct Done {
  Ticket ticket = kNoTicket;
  Status status = ok();
  WorkerId peer;       // who was lost, or whose message this was
  Duration start{};    // of a compute op: when it began, on the worker's clock
  Duration finish{};   // of a compute op: when it ended; of a Recv: when it arrived
  Duration sent{};     // of a Recv: the sender's stamp, on the sender's clock
  uint64_t tally = 0;  // of a Recv: the tally that the sender put on the message
  // Above 0: the compute op goes on, and so many parts of the gradient sum to which it adds are
  // complete (SumGrowth in runtime/growth.h).
  int32_t grown = 0;
};

class QueueMailbox;

// A queue of reports: any thread posts them, and the worker's thread takes them in order.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  // Posts a report. Any thread; never blocks on the reader.
  virtual void post(Done done) = 0;
  // The next report, or Timeout/Call when none came within `limit`. The worker's thread only.
  virtual Result<Done> wait(Duration limit) = 0;
  // This mailbox, if a driver can work for its reader; nullptr = the reader always sleeps.
  virtual QueueMailbox* drivable() { return nullptr; }
};

// Works on the reader's thread while the reader waits, instead of letting it sleep: a wire whose
// loop the worker itself turns.
class MailboxDriver {
 public:
  virtual ~MailboxDriver() = default;
  // Works or sleeps until the mailbox has a report, `until` on the monotonic clock at most. It may
  // return earlier. If that moment has passed, it does what can be done without waiting.
  virtual void drive(Duration until) = 0;
  // Ends a sleep that was announced by begin_sleep(). Any thread; the mailbox is locked meanwhile.
  virtual void wake() = 0;
};

// The mailbox of a real worker. Its callers bound its length: each report answers a call in flight,
// except for the few about lost peers and about news from the coordinator.
class QueueMailbox : public Mailbox {
 public:
  void post(Done done) override;
  Result<Done> wait(Duration limit) override;
  QueueMailbox* drivable() override { return this; }

  // Makes the report of a call that ends at a known moment; `now` is when the reader gets it.
  using MakeReport = std::function<Done(Duration now)>;
  // Posts what `make` returns as soon as the monotonic clock shows `moment`. From `awake` before
  // that moment on, a waiting reader looks for reports again and again instead of sleeping, so that
  // it does not get this one late by the time that waking up takes. The worker's thread only.
  void post_at(Duration moment, Duration awake, MakeReport make);

  // From now on the waiting is done by `driver`; nullptr: the reader sleeps again. Not while the
  // reader waits. False = it has another driver, which stays.
  bool set_driver(MailboxDriver* driver);

  // The following calls are the driver's.
  //
  // Whether there is a report.
  bool has_reports() const { return count_.load() > 0; }
  // The reader is about to sleep where only MailboxDriver::wake() reaches it. False = there is a
  // report, so that it must not.
  bool begin_sleep();
  // The reader is awake again, after begin_sleep().
  void end_sleep();
  // Sleeps until there is a report, or nudge() is called or has been called since the last sleep,
  // `until` at most.
  void sleep(Duration until);
  // Ends sleep(). Any thread.
  void nudge();

 private:
  // A report that is posted later.
  struct Later {
    Duration awake;
    MakeReport make;
  };
  void post_due(Duration now);
  Result<Done> wait_for_post(Duration limit);

  std::multimap<Duration, Later> later_;  // by the moment; the reader's thread only

  // Guards what follows; of other locks, only MailboxDriver::wake() may take one meanwhile.
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Done> queue_;
  MailboxDriver* driver_ = nullptr;
  bool asleep_ = false, nudged_ = false;
  std::atomic<size_t> count_{0};  // of queue_
};

}  // namespace tenuto
