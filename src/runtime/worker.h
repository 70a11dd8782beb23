// One worker's step: the loop that walks a list, starts ops on compute, wire and reduction, and
// waits at its mailbox, nowhere else.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "ir/plan.h"
#include "runtime/compute.h"
#include "transport/transport.h"
#include "world/event.h"

namespace tenuto {

// What a worker runs on. All of it must outlive the steps.
struct Machine {
  Transport* transport = nullptr;
  Compute* compute = nullptr;
  Mailbox* mailbox = nullptr;
  const Clock* clock = nullptr;
};

// What control says at this moment; read whenever the mailbox reports news from control.
struct Standing {
  int64_t committed = 0;  // the Step op of step i waits for committed >= i
  bool abandon = false;   // stop in the middle of the step
};

// One step's circumstances.
struct StepInput {
  const Plan* plan = nullptr;
  bool evaluation = false;  // run plan->evaluation instead of plan->schedule
  WorkerId self;
  int64_t epoch = 0, step = 0;
  Duration silence_limit{};            // without any report for so long the step has failed
  std::function<Standing()> standing;  // asked at start and on news from control
};

// Runs one step. The events are in the order in which ops finished.
//
// Errors: Cancelled/Call       standing said abandon
//         Disconnected/Worker  a peer was lost; the sentence names worker, stage, peer
//         Timeout/Worker       nothing happened within the limit; the sentence shows the list with
//         an
//                              arrow at each waiting op
//         others as compute and wire report them
Result<std::vector<Event>> run_step(const StepInput& input, const Machine& machine);

// The tag of a value on the wire.
Tag tag_of(const Value& value, int64_t epoch, int64_t step);

}  // namespace tenuto
