// The mailbox: where wires, engines and control report, and the worker's only wait.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include "base/id.h"
#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// Names one call whose end will be reported. The caller chooses it; kNoTicket is no call.
enum class Ticket : uint64_t {};
inline constexpr Ticket kNoTicket{0};

// A report. With a ticket: that call has ended, and how. Without one: `peer` is lost and status
// says why, or, when peer is none too, control has news.
struct Done {
  Ticket ticket = kNoTicket;
  Status status = ok();
  WorkerId peer;       // who was lost, or whose message this was
  Duration start{};    // of a compute op: when it began, on the worker's clock
  Duration finish{};   // of a compute op: when it ended; of a Recv: when it arrived
  Duration sent{};     // of a Recv: the sender's stamp, on the sender's clock
  uint64_t tally = 0;  // of a Recv: the sender's stamp
};

// Reports come in from any thread and go out, in order, to the one that waits.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  // Hands a report in. Any thread; never blocks on the reader.
  virtual void post(Done done) = 0;
  // The next report, or Timeout/Call when none came within `limit`. The worker's thread only.
  virtual Result<Done> wait(Duration limit) = 0;
};

// The mailbox of a real worker. Bounded by its callers: each posted report answers a call in
// flight, and a walk has at most one call per lane in flight.
class QueueMailbox : public Mailbox {
 public:
  void post(Done done) override;
  Result<Done> wait(Duration limit) override;

 private:
  std::mutex mutex_;  // guards queue_; nothing else is locked while it is held
  std::condition_variable arrived_;
  std::deque<Done> queue_;
};

}  // namespace tenuto
