// The coordinator's logic as one pure function: from its state and one input to the next state, the
// instruction for all workers, and the reason for it.
//
// A run goes through five situations. Gathering: workers report where they listen, and connect; a
// worker that dies may be started again, and then all connect anew in the next epoch. Running:
// steps are committed. Recovering: a worker is lost; the others agree on the version from which
// they go on without it (recover.h). Salvaging: the run cannot go on without a lost worker, or a
// worker has failed; the step is abandoned and the newest version that every stage still has is
// saved. Ended: all workers are told to leave.
//
// Version v is committed when all its keepers have reported it (commit.h), with all the losses of
// its step. A worker that is to save v reports v once its shard is written, or copied with
// Rules::saves_later. A version is saved when all of its shards are reported and its manifest is
// written: with Rules::saves_later, and for the version to stop at, this may be after its commit.
#pragma once

#include <optional>
#include <string>

#include "control/decision_part.h"
#include "control/input.h"
#include "control/query.h"
#include "control/state.h"
#include "protocol/report.h"

namespace tenuto {

// What follows from an input. `state` is the next one: the state before with `edits` applied in
// turn.
struct Decision : DecisionPart {
  State state;
  std::optional<Instruction> instruction;  // to be sent to all workers now; none = nothing new
  bool new_plan = false;  // `instruction` is the first one with state.planning.present
};

// The next state, and what is to be sent and written because of it. Deterministic.
//
// Requires: state came from begin(), take_up.h or decide()
Decision decide(State state, const Input& input);

}  // namespace tenuto
