// The wire of a worker whose values lie in a device's memory: hands that memory to the wire below
// (direct), or carries the bytes through pinned memory of the host (staged), link by link.
//
// A staged send takes a slot of pinned memory, copies the value from the device into it on a stream
// of its own, and sends the slot; the slot is free when the wire below has ended that send. A
// staged receive posts a slot and, when the message is in it, copies it to the device; then the
// receive has ended. Slots come in rings, one for each peer, direction, kind of value and stage
// (runtime/path.h), so that no direction and no kind waits for another; a message that finds no
// free slot of its ring waits for one, in the order of the calls. Values in the host's memory
// (norm, clip decision, sums) are never staged.
//
// The bytes and names on the wire are the same with both paths. So each end of a link has its own
// path, which it may change between two steps, and the ends need not agree.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "base/clock.h"
#include "runtime/copies.h"
#include "runtime/path.h"
#include "transport/transport.h"

namespace tenuto {

// Counts of messages and times of copies since the start.
struct StagedCounters {
  int64_t direct = 0;      // messages on the direct path, both directions
  int64_t sent = 0;        // staged and sent
  int64_t received = 0;    // staged and received
  Duration to_host{};      // time of the copies from the device
  Duration to_device{};    // and to it
  int32_t most_slots = 0;  // the most slots that one ring has ever had in use
  int32_t in_use = 0;      // slots in use now
};

// A Transport with paths. Calls from one thread, the worker's; the wire below is called by one
// thread at a time.
class StagedTransport : public Transport {
 public:
  // Sets the copies of the worker's device; before that, and with nullptr, every message is in the
  // host's memory. Not while calls are under way.
  virtual void use(Copies* copies) = 0;
  // The path of the messages with `peer` from the next call on; at first staged.
  virtual void set_path(WorkerId peer, Path path) = 0;
  // The slots of each ring from now on; a ring that is not named has one.
  virtual void set_slots(std::map<Ring, int32_t> slots) = 0;
  // Errors with `peer` since the last call: messages that failed, losses of the peer, and broken
  // connections that were repaired.
  virtual int32_t take_errors(WorkerId peer) = 0;
  // Any thread.
  virtual StagedCounters counters() const = 0;
};

// Wraps the wire that `make` builds upon the mailbox it is given; `mailbox` is the worker's.
// Errors: those of `make`.
Result<std::unique_ptr<StagedTransport>> make_staged_transport(
    Mailbox& mailbox, const Clock& clock,
    const std::function<Result<std::unique_ptr<Transport>>(Mailbox&)>& make);

}  // namespace tenuto
