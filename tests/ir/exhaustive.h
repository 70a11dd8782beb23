// Every way in which a small plan can run: all orders in which ops can start and messages arrive.
#pragma once

#include <cstdint>
#include <string>

#include "ir/walk.h"

namespace tenuto {

// How arriving messages get buffers at their receiver.
struct Arrivals {
  int32_t receives_ahead = kReceivesAhead;  // of a lane, by name and in list order
  // Buffers of a worker that all its lanes share: the message that comes first takes one. 0 = none
  // are shared. Shared buffers break the rule of arrivals on purpose.
  int32_t first_come = 0;
};

// How a plan can end.
struct Endings {
  bool ends = false;          // some order of events leads to the end
  bool stands_still = false;  // some order of events leads to a deadlock
  bool send_waits = false;    // in some order a message waits for its receive to be posted
  bool complete = true;       // no: there are more states than the limit
  int64_t states = 0;         // different ones
  std::string where;          // the ops that wait at the first deadlock
};

// Runs the compute ops and messages of a plan's step in every order that its Walks allow. A worker
// may start an op as soon as it can or any time later; a message takes any time. Ops that only the
// update needs are left out, except validation, because no op of a micro-batch waits for them.
//
// Cost: some 2 us for each state and each event that is possible in it
Endings search_all(const Plan& plan, const Arrivals& arrivals = {},
                   int64_t most_states = 1'000'000);

}  // namespace tenuto
