// Every way in which a small plan can run: all orders in which ops can start and messages arrive.
#pragma once

#include <cstdint>
#include <string>

#include "ir/walk.h"

namespace tenuto {

// How messages find a place at their receiver.
struct Arrivals {
  int32_t receives_ahead = kReceivesAhead;  // of a lane, by name and in list order
  // Buffers of a worker that all lanes share and that whichever message comes first takes; 0 = none
  // are shared. This breaks the rule of arrivals on purpose.
  int32_t first_come = 0;
};

// What can become of a plan.
struct Endings {
  bool ends = false;          // some way leads to the end
  bool stands_still = false;  // some way leads to where nothing can move
  bool send_waits = false;    // on some way a message waits for its receive to be posted
  bool complete = true;       // no: there were more states than asked for
  int64_t states = 0;         // different ones
  std::string where;          // the ops that wait at the first standstill
};

// Runs the compute ops and messages of a plan's step in every order that its Walks allow. A worker
// may start an op as soon as it can or any time later; a message takes any time. Ops that only the
// update needs are left out, but for validation: no op of a micro-batch waits for them.
//
// Cost: some 2 us a state and way on
Endings search_all(const Plan& plan, const Arrivals& arrivals = {},
                   int64_t most_states = 1'000'000);

}  // namespace tenuto
