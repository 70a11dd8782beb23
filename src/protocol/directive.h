// What the coordinator tells all workers about the run: which steps are final, and whether steps
// run.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"

namespace tenuto {

// Whether workers wait, run steps, or leave the run.
enum class Phase : uint8_t { Frozen, Running, Out };

// What the coordinator tells the workers. It is a state, repeated until a newer one replaces it,
// never an event.
//
// How far a worker may run ahead of the committed version is in ir/version.h: it may run the ops of
// the step that it is in, except its Step op, before it hears of a commit.
struct Directive {
  int64_t term = 0;        // of the coordinator
  int64_t epoch = 0;       // of the membership
  int64_t committed = 0;   // this version is final: every member has it
  int64_t first_step = 0;  // the first step of the run
  int64_t stop_at = -1;    // the version to stop at; -1 = none
  Phase phase = Phase::Frozen;
  std::vector<WorkerId> members;
  auto operator<=>(const Directive&) const = default;
};

}  // namespace tenuto
