// What one worker says of one step, small enough to travel every step: how long messages took to
// come here, and how long ops lasted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "base/unit.h"
#include "ir/op.h"
#include "world/event.h"

namespace tenuto {

// The messages that came over one link in one direction during one step. A delay is the arrival on
// the receiver's clock less the stamp on the sender's, so it contains the difference of the two
// clocks and may be negative: only the sum of both directions means anything, and differences
// within one direction.
struct LinkSample {
  WorkerId from, to;
  int32_t messages = 0;
  Duration least{}, median{}, upper{};   // of the delays; upper: 75 % are below
  Bytes smallest, largest;               // of the messages
  Duration of_smallest{}, of_largest{};  // least delay among the messages of that size
};

// The ops of one kind of one stage that one worker ran during one step.
struct OpSample {
  WorkerId worker;
  StageId stage;
  OpKind kind = OpKind::Forward;  // Forward, BackwardInput or BackwardWeight
  int32_t ops = 0;
  Duration median{};
};

// What one worker says of one step.
struct StepSample {
  WorkerId worker;
  int64_t step = 0;
  std::vector<LinkSample> links;  // by sender; `to` is the worker
  std::vector<OpSample> ops;      // by stage, then kind
};

// The samples of the workers and steps that `events` speak of, by worker, then step. Activations
// and gradients that carry a sender's stamp and the three compute ops count; other messages (norm,
// verdict) and ops (reductions, updates, the held-out pass) wait for others and are left out.
//
// Cost: O(n log n) for n events
std::vector<StepSample> make_samples(std::span<const Event> events);

}  // namespace tenuto
