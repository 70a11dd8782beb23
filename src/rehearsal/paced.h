// The paced device: real tensors, real messages, tiny real mathematics, but each op lasts as long
// as the job says; meanwhile the host's core is free, as with a GPU. So two cores can rehearse
// eight devices.
//
// Virtual clock: the device keeps its own time T. An op starts at s = max(T, when its inputs were
// here on the virtual clock), sleeps until the absolute moment s + d, and sets T = s + d, so that a
// late wake-up shortens the next sleep instead of delaying the pipeline. The virtual clock hides
// real stalls; therefore the lag (real finish - virtual finish) of every op that takes time is
// recorded, and a run whose 99th percentile of lags exceeds a fifth of a typical op is declared
// invalid. Real clock: an op starts when start() is called; its lag is the time by which it lasts
// too long, and the step's time includes it. There the worker wakes up before the op ends, by a
// hundredth of the op and 100 us at most, and waits awake: no accelerator is late by the time that
// a sleeping thread of its host takes to wake up.
//
// A paced device has no thread. The worker computes the op's mathematics when it starts the op, and
// its mailbox reports the op's end at the moment when it is due (QueueMailbox::post_at).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "ir/plan.h"
#include "rehearsal/lag.h"
#include "runtime/device.h"
#include "world/job.h"
#include "world/model.h"

namespace tenuto {

// A Device that also tells its lag.
class PacedDevice : public Device {
 public:
  // Over the ops since construction, the last million of them.
  virtual Lag lag() const = 0;
  // Whether ops that end from here on count for the lag: in a step in which peers are expected to
  // be late, lags do not show how busy the host is.
  virtual void count_lag(bool counts) = 0;
  // Virtual clock: it shows `moment` at the next begin, so that several devices start a rehearsal
  // together. Without it a device starts at the moment of its first begin.
  virtual void set_clock(Duration moment) = 0;
  // The weights of its stages, one after the other, as they are between two steps: to compare with
  // a plain run.
  virtual std::vector<float> weights() const = 0;
};

// Options for tests: clip gradients, and make some of them not finite.
struct PacedOptions {
  double clip = 0;  // to this norm; 0 = never, whatever the job's optimizer says
  std::function<bool(int64_t step, StageId stage)> bad = nullptr;  // not finite there; empty: never
};

// A paced device that holds `stages` of `job`, one or several. Its ops last as long as job_model()
// (world/job_model.h) says, divided by its speed. Its numbers are those of
// paced_math.h; a message has job.device.message_bytes (64 at least), of which the first elements
// name its value: a message that holds another value ends the op with Corrupt/Link. A pause between
// two steps that is longer than a forward (set-up, a checkpoint) sets the virtual clock of a device
// that holds the first stage to the present moment; the clocks of the others follow with the
// messages. A pause before the rest of a step does so at every device.
//
// Requires: at least one stage, all of them the plan's and of one worker; the mailbox is a
//           QueueMailbox
std::unique_ptr<PacedDevice> make_paced(const Job& job, const Plan& plan,
                                        const std::vector<StageId>& stages, const Clock& clock,
                                        Mailbox& mailbox, const PacedOptions& options = {});

// How long an op of a stage with this cost takes at speed 1. A backward that is not split takes as
// long as both of its halves.
Duration paced_length(const StageCost& cost, bool split_backward, OpKind kind);

}  // namespace tenuto
