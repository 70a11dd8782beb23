// Both ends of a state transfer: a donor sends the state of a stage to a worker that joins the run
// or gets the layer. It sends the state in parts, one part between two steps, while steps go on.
//
// The joiner takes every optimizer update together with the others, so a part that it has received
// stays current: a part is made of whole units (StateStore::state_unit), each with all that an
// update of it reads. A part is of the version that both ends hold between two steps. The donor
// copies the part and goes on; the joiner waits until it has come.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "base/unit.h"
#include "protocol/report.h"
#include "runtime/state_store.h"
#include "transport/transport.h"

namespace tenuto {

// A moment between two steps at one worker. All of it must live until the transfer is ready.
struct TransferMoment {
  WorkerId self;
  int64_t epoch = 0, version = 0;
  int64_t plan_serial = 0;  // in force
  int64_t voids = 0;        // void runs of this epoch: those that had to be repeated, see Runner
  Duration now{};
  Transport* transport = nullptr;
  StateStore* state = nullptr;
};

// How large parts of a state are, in bytes.
struct PartSizes {
  int64_t first = 1 << 20;  // of the first part; later ones are as large as time allows
  int64_t least = 1 << 16;  // no part is smaller, but for the last one
  int64_t most = 1 << 28;   // nor larger: both ends keep a copy of it
};

// The state that one worker gives and receives. It must outlive the transport, which reads and
// fills its memory.
class StateTransfers {
 public:
  // Only the donor's sizes count: it tells the joiner how much it sends.
  explicit StateTransfers(const PartSizes& sizes = {}) : sizes_(sizes) {}
  // Begins the transfers that are due at this moment: sends the parts of which this worker is the
  // donor, each once the one before has arrived, and receives those of which it is the joiner. Call
  // once for each version of an epoch.
  Status begin(const std::vector<Joiner>& joiners, const TransferMoment& time);
  // Goes on with the transfers; to be called after each note().
  Status advance(const TransferMoment& time);
  // True when the next step may begin: what is due of the transfers has arrived or been sent off.
  bool ready() const;
  // A transport call has ended. True when it was one of these transfers.
  bool note(const Done& done, Duration now);
  // The version at which this worker had received the whole state; -1 = not yet.
  int64_t received() const { return received_; }
  // How many void runs the epoch has had, according to the donor of the last part.
  int64_t voids() const { return voids_; }
  // For a new epoch: all calls have ended with the old transport, and received parts are discarded.
  // Requires: the transport is gone
  void start_over();

 private:
  // In front of each part.
  struct Head {
    int64_t version = -1;
    int64_t first = 0, size = 0;  // of the part, bytes
    int64_t total = 0;            // of the state
    int64_t voids = 0;            // void runs of this epoch, see Runner
  };
  // One stage, given or taken.
  struct Transfer {
    WorkerId peer;
    StageId stage;
    bool gives = false;
    int64_t next = 0;     // bytes that have been given or taken
    int64_t total = -1;   // of the state; -1 = not known yet
    int64_t portion = 0;  // bytes of the next part
    Head head;
    std::vector<std::byte> body;
    std::set<Ticket> open;  // calls under way
    Duration begun{};       // of the part under way
    Duration took{};        // how long the part before was under way
    Duration since{};       // when the part before was given
    bool due = false;       // its part of this moment has not begun
    bool in_body = false;   // joiner: the head has arrived
    bool over() const { return total >= 0 && next >= total; }
  };
  // The joiner, the stage that it receives, and the serial of the plan with which that begins.
  using Name = std::tuple<WorkerId, StageId, int64_t>;

  Status give(Transfer& transfer, const TransferMoment& time);
  Status ask(Transfer& transfer, const TransferMoment& time);
  Status take(Transfer& transfer, const TransferMoment& time);

  const PartSizes sizes_;
  std::map<Name, Transfer> transfers_;
  int64_t received_ = -1, voids_ = 0;
  int64_t receives_since_ = -1;  // serial of the plan with which the newest transfer to here began
  Status failed_ = ok();         // not ok: a receive has failed
};

}  // namespace tenuto
