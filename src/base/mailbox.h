// The mailbox of a worker. Transports, compute engines and the coordinator's messages post reports
// to it; the worker waits nowhere else.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include "base/id.h"
#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// Names one call whose end will be reported. The caller chooses it; kNoTicket names no call.
enum class Ticket : uint64_t {};
inline constexpr Ticket kNoTicket{0};

// A report. With a ticket: that call has ended with `status`. Without a ticket, but with a peer:
// that peer is lost, and `status` says why. With neither: something new has come from the
// coordinator.
struct Done {
  Ticket ticket = kNoTicket;
  Status status = ok();
  WorkerId peer;       // who was lost, or whose message this was
  Duration start{};    // of a compute op: when it began, on the worker's clock
  Duration finish{};   // of a compute op: when it ended; of a Recv: when it arrived
  Duration sent{};     // of a Recv: the sender's stamp, on the sender's clock
  uint64_t tally = 0;  // of a Recv: the tally that the sender put on the message
};

// A queue of reports: any thread posts them, and the worker's thread takes them in order.
class Mailbox {
 public:
  virtual ~Mailbox() = default;
  // Posts a report. Any thread; never blocks on the reader.
  virtual void post(Done done) = 0;
  // The next report, or Timeout/Call when none came within `limit`. The worker's thread only.
  virtual Result<Done> wait(Duration limit) = 0;
};

// The mailbox of a real worker. Its callers bound its length: each report answers a call in flight,
// except for the few about lost peers and about news from the coordinator.
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
