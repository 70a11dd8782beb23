// The interface through which a rehearsal gives the ops of a step the times of a virtual clock
// (rehearsal/), instead of those at which they really run. A real run has no pacer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/mailbox.h"
#include "base/result.h"
#include "base/unit.h"
#include "transport/transport.h"

namespace tenuto {

struct ReductionCall;
struct StepState;

// Gives the calls of one run their times, and writes them into the rows of its StepState. The
// worker's thread calls it; ops are named by their place in the list.
class CallPacer {
 public:
  virtual ~CallPacer() = default;
  // A compute op, receive or reduction starts. Returns when its inputs were there.
  virtual Duration start(int32_t index) = 0;
  // A send starts: the stamp of its message.
  virtual Stamp send(int32_t index, const Tag& tag) = 0;
  // The buffer of the note that the receiver of a message sends to its sender
  // (rehearsal/queued_messages.h); empty = no note.
  virtual std::span<std::byte> note(int32_t index) = 0;
  // The call of the note has ended.
  virtual void take_note(int32_t index) = 0;
  // The call of the op has ended, at `now`. True when the op has ended with it.
  virtual bool ended(int32_t index, Duration now, const Done& done) = 0;

  // A message of a reduction is sent by call number `call`: its stamp.
  virtual Stamp send_part(int32_t call, const ReductionCall& part, const Tag& tag) = 0;
  // When the call of such a message ended; the report says `now`.
  virtual Duration part_end(int32_t call, Duration now) = 0;
  // A reduction has ended `at`.
  virtual void reduced(Duration at) = 0;
};

// Also decides when the ops of the run start and end.
class StepPacer : public CallPacer {
 public:
  // The device has begun the step: no op starts before `at`.
  virtual Status begin(Duration at) = 0;
  // A round begins: the loop goes once through the ops that could start.
  virtual void begin_round() = 0;
  // An op that ends now, though the report of its call came earlier.
  virtual std::optional<int32_t> next_end() = 0;
  // Whether an op that the walk lets start may start now.
  virtual bool may_start(int32_t index) = 0;
  // The next op that starts now, though may_start() refused it, or the next receive that is posted
  // already and whose note is to be sent now; none = no more.
  virtual std::optional<int32_t> next_start() = 0;
  // No op has ended in this round, and none was refused: may move the pacer's own time on. True
  // when it has moved.
  virtual bool move_on() = 0;
  // On the machine's clock, when to look again without a report; zero = no reason to.
  virtual Duration wake_at() const = 0;
};

// Makes the pacers of a worker, one for each run.
class Pacer {
 public:
  virtual ~Pacer() = default;
  // The state must outlive the pacer.
  //
  // Errors: Invalid/Job  the plan cannot be run this way
  virtual Result<std::unique_ptr<StepPacer>> pace(StepState& state) = 0;
};

}  // namespace tenuto
