// The paced device: real tensors, real messages, tiny real mathematics, but each op lasts the time
// it is given, as a GPU would while its host waits. With it eight devices are rehearsed on two
// cores.
//
// Nominal clock: the device keeps its own time T. An op starts at s = max(T, when its inputs were
// here nominally), sleeps until the absolute moment s + d, and sets T = s + d, so that a late
// wake-up shortens the next sleep instead of delaying the pipeline. It hides real stalls; therefore
// the lag (real finish - nominal finish) of every op is recorded, and a run whose 99th percentile
// exceeds a fifth of an op is declared invalid. Real clock: an op starts when it is started.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "ir/plan.h"
#include "runtime/compute.h"
#include "world/job.h"

namespace tenuto {

// How far behind its nominal clock a device was.
struct Lag {
  Duration median{}, p99{}, worst{};
  Duration typical_op{};
  // False when p99 exceeds a fifth of a typical op: the run's times mean nothing.
  bool valid() const { return p99 * 5 <= typical_op; }
};

// A Compute that also tells its lag.
class PacedCompute : public Compute {
 public:
  // Over all ops since construction.
  virtual Lag lag() const = 0;
};

// A paced device that holds stage `stage` of `job`.
std::unique_ptr<PacedCompute> make_paced(const Job& job, const Plan& plan, StageId stage,
                                         const Clock& clock, Mailbox& mailbox);

}  // namespace tenuto
