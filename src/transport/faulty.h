// A wire around another wire that adds faults: latency, rate and jitter of a link, loss of a peer,
// a frozen worker.
//
// It sits between the wire and the worker's mailbox. The receiver's end adds the delay of a link:
// it holds the report of a message back until the message would have arrived,
//   leaves  = max(Stamp.sent, when the message before it left) + size / rate
//   arrives = leaves + latency + jitter, never before the message ahead of it,
// on the given clock (Stamp.sent of zero, or later than now, counts as now). The ends of sends are
// reported at once: a slow link delays the message, not its sender.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "transport/transport.h"

namespace tenuto {

// What one direction of one link adds to every message. Zero adds nothing; rate 0 = unlimited;
// jitter is uniform in [0, jitter), by seed, link and the message's step and name (jitter.h).
struct LinkFault {
  Duration latency{};
  double bytes_per_second = 0;
  Duration jitter{};
};

// The faults of a whole cluster; each worker's wire uses those that concern it.
struct FaultSettings {
  uint64_t seed = 0;
  LinkFault others;                                          // of links not named
  std::map<std::pair<WorkerId, WorkerId>, LinkFault> links;  // (from, to)
};

// Who hands over held reports: a thread when their moment comes, or only pump(), for tests that
// move a HandClock on one thread.
enum class FaultDrive : uint8_t { Thread, Pump };

// A Transport with injected faults. Calls from one thread, the worker's.
class FaultyTransport : public Transport {
 public:
  // From now on the link from `from` to this worker has this fault.
  virtual void set_link(WorkerId from, LinkFault fault) = 0;
  // From now on each message takes as long as one of the size that `sizes` returns for it.
  virtual void set_sizes(MessageSizes sizes) = 0;
  // Messages from `from` that would arrive before `until` arrive at that moment.
  virtual void hold(WorkerId from, Duration until) = 0;
  // The link with `peer` breaks, as if the peer had died: the loss is posted, every call with it
  // and every message still in transit ends Disconnected/Worker, also at the peer's end.
  virtual void lose(WorkerId peer) = 0;
  // Freezes this worker: from now on calls and reports are held back.
  virtual void freeze() = 0;
  // Ends freeze(): the calls and reports that were held back happen now.
  virtual void thaw() = 0;
  // Hands over the reports that are due; returns when the next one is due, or Duration::max().
  virtual Duration pump() = 0;
};

// `make` builds the inner wire, over a mailbox that this wire gives it; reports go on to `mailbox`,
// the worker's.
// Errors: those of `make`.
Result<std::unique_ptr<FaultyTransport>> make_faulty_transport(
    const FaultSettings& settings, WorkerId self, Mailbox& mailbox, const Clock& clock,
    FaultDrive drive, const std::function<Result<std::unique_ptr<Transport>>(Mailbox&)>& make);

}  // namespace tenuto
