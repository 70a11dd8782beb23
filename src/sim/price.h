// The price of a plan: when every op would start and finish on a given cluster.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/plan.h"
#include "ir/stores.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// One op of one worker in time. A Recv lasts from when its message set out to its arrival.
struct Span {
  WorkerId worker;
  Op op;
  Duration start{}, finish{};
  int32_t after = -1;  // index of the span that this op waited for last; -1 = none
};

// The result of price().
struct Timeline {
  std::vector<Span> spans;     // by worker, then start; empty unless asked for
  Duration makespan{};         // of one step from empty
  Duration period{};           // of one step among many; the makespan when steps do not overlap
  Duration lower_bound{};      // on the period: no schedule of the same routing is faster
  double bubble_fraction = 0;  // idle share of the compute lanes during a period
  std::vector<double> peak_micros;  // per worker: micro-batches held at once, at most; a chunk of
                                    // a worker with V of them counts 1/V
  std::vector<Bytes> peak_bytes;    // per worker: activations, gradients, stashes, weight work; a
                                    // message counts from when it sets out
  int64_t ops = 0;
};

// How messages leave a worker. Offloaded: in parallel with the compute lane. Blocking: through the
// device's queue, where later items wait behind them. With a whole backward the messages between
// two compute ops are exchanged together, and the next op waits for them. With a split backward
// each message is an item of the launch queue: an item starts when all before it have started, and
// the two workers of a link move their messages one at a time in one agreed order.
enum class Sending : uint8_t { Offloaded, Blocking };

// How many overlapping steps are priced by default: the first few differ, the rest repeat.
inline constexpr int32_t kStaggeredSteps = 12;

// How many steps of a run are priced if each waits for the norm. From the second one on they are
// equal, or two of them alternate: the price is the mean of the last two.
inline constexpr int32_t kRunSteps = 4;

// What to compute in addition to the makespan, and by which rules.
struct PriceOptions {
  bool spans = false;
  bool lower_bound = true;
  bool update = true;       // no: the clock stops at the last weight gradient; reductions, norm and
                            // Step are left out of makespan, bubble and spans
  bool evaluation = false;  // price the held-out pass instead of the step
  Sending sending = Sending::Offloaded;
  bool staggered = false;   // each worker begins the next step when its own list is done; the norm
                            // is checked later, so Measure and its messages are left out
  bool in_turn = false;     // as staggered, but with Measure and its messages: steps follow each
                            // other as in a run
  Duration per_op{};        // constant cost of every compute op, at any speed
  double weight_share = 1;  // of a micro-batch, held between BackwardInput and BackwardWeight
  bool bytes = false;       // peak_bytes too
  int32_t steps = 0;        // if steps overlap: how many to price; 0 = kStaggeredSteps
  const Stores* stores = nullptr;  // values stored before the lists begin (see check()); requires
                                   // offloaded messages, one step and no lower bound
};

// True when a worker may be in the next step while another is still in this one.
inline bool steps_overlap(const PriceOptions& options) {
  return options.staggered || options.in_turn;
}

// Runs the plan's step on a clock of integer nanoseconds. Deterministic: at each moment all ends
// and arrivals are processed before a compute op is chosen; ties by worker, lane, place. A message
// leaves when its value is made and its receive is posted, occupies its directed link for bytes /
// rate (first come, first served) and arrives a latency later. With half duplex both directions
// share the link. A message begins when all ports on its way are free, too (world/port_sides.h). A
// reduction does not share its links with anything else, and its ports only with other reductions.
//
// Requires: check(plan) is ok, the model has the plan's layers
// Errors:   Infeasible/Job     nothing can move; the sentence lists what each worker waits for
//           Infeasible/Worker  a worker that is not alive, or without speed, has ops
//           Invalid/Call       blocking messages together with overlapping steps, the update or
//                              ports; a step longer than kLongestTime, or 4 EiB at one worker
//           Invalid/Job        a message without its other end
//           Exhausted/Call     the memory for pricing is not available
// Source:   Wu et al., "Attack of the Bubbles", NSDI 2026 (blocking messages: what they cost)
// Cost:     O(n log workers) for n ops; some 80 bytes an op beside the plan
Result<Timeline> price(const Plan& plan, const Model& model, const Cluster& cluster,
                       const PriceOptions& options = {});

// How a run takes its steps: with reductions, norm and update, and each worker begins the next one
// when its own list is done. Everything that says how long a step of a run takes, to people or to a
// decision, is priced so. A single step from empty lasts longer, by up to the delays of the links
// that the norm passes: it ends when the last worker has it.
PriceOptions options_of_run(const Plan& plan);

// The time of one step among many as a run takes it: the period under options_of_run. Errors as
// price().
Result<Duration> whole_step_time(const Plan& plan, const Model& model, const Cluster& cluster);

// The time that the op takes on the compute lane of a worker of speed 1. Only this function knows
// what an unsplit backward costs: BackwardInput takes the time of both gradients, BackwardWeight
// none.
Duration op_time(const Op& op, const Plan& plan, const std::vector<StageCost>& costs);

}  // namespace tenuto
