// The inputs of the coordinator's logic: one at a time, with the time at which it came.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/unit.h"
#include "control/treatment.h"
#include "ir/layer_move.h"
#include "ir/plan.h"
#include "protocol/report.h"
#include "remedy/choose_remedy.h"
#include "world/fault.h"

namespace tenuto {

// A worker's stream has ended.
struct StreamEnded {
  WorkerId worker;
  int32_t incarnation = 0;
};
// A worker's process has ended: by a signal, or with an exit code.
struct Exited {
  WorkerId worker;
  bool signalled = false;
  int number = 0;          // signal or exit code
  std::string last_words;  // the end of its log, when it ended with an exit code; may be empty
};
// A user's request. Stop: stop because of the signal `number`; 0 = because of a wish, so that the
// run ends well. Checkpoint: save soon. Treat: treat what `key` names as `how` says from now on.
// Fault: inject `fault`; it replaces earlier requests of this kind for the same link or worker, or
// only ends them, see ends_slowness(). Trace: trace the next `number` steps. Signal: send the
// signal `number` to the worker of `fault`, or start a new process if its kind is "start". Hog:
// start the hog `fault`, or end the one of its kind beside its worker if `number` is 0. The
// launcher does these two, and decide() ignores them.
struct Request {
  // What is asked for.
  enum class Kind : uint8_t { Stop, Checkpoint, Treat, Fault, Signal, Hog, Trace };
  Kind kind = Kind::Stop;
  int number = 0;
  tenuto::Fault fault = {};
  TreatmentKey key = TreatmentKey::Mode;
  Treatment how = Treatment::Observe;
};
// The manifest of a checkpoint is on disk, or writing it has failed.
struct Stored {
  int64_t version = 0;
  std::string failure;  // why; empty = it is on disk
};
// The answer to a PlanRequest: a better plan, or none and why.
struct Planned {
  int64_t request = 0;
  std::shared_ptr<const Plan> plan;  // null: the present plan stays
  std::string reason;
  // In an answer to PlanRequest::update: the share of clipped steps up to which `plan` is faster.
  double bearable = 0;
  // Layers that should move; if there are some, `plan` is the plan after the moves.
  std::vector<LayerMove> moves = {};
  // Moves would pay once the cluster has not changed for this many steps; -1 = no moves would pay.
  int64_t pays_after = -1;
  // A better choice that may only be observed: RemedyChoice::observed.
  std::string observed = {};
  // What was compared, and for how many steps the cluster is expected to stay as it is.
  std::vector<Alternative> alternatives = {};
  double expected_steps = 0;
};
// The coordinator's own side cannot go on, for example because the disk is full.
struct Trouble {
  std::string sentence;
};
// Only time has passed.
struct Tick {};

// One input, and when it came (on the coordinator's clock).
struct Input {
  Duration now{};
  std::variant<Report, StreamEnded, Exited, Request, Stored, Planned, Trouble, Tick> what;
};

}  // namespace tenuto
