// Chooses the path of a message between a device's memory and the wire, and the number of slots of
// host memory for it. Pure functions of what a worker knows without asking others.
#pragma once

#include <cstdint>
#include <map>

#include "base/id.h"
#include "base/unit.h"
#include "ir/plan.h"

namespace tenuto {

// The two paths of a message that leaves or enters a device with memory of its own.
enum class Path : uint8_t {
  Direct,  // the wire reads and writes the device's memory
  Staged,  // through pinned memory of the host (runtime/staged.h)
};

// What the job asks for ([network] path).
enum class PathWish : uint8_t { Automatic, Direct, Staged };

// The circumstances that do not change while a job runs.
struct PathRule {
  PathWish wish = PathWish::Automatic;
  bool direct_possible = false;  // the wire can read and write the device's memory
  // True if a message on the direct path blocks the device's queue until the peer has answered, as
  // with NCCL, which sends by a kernel: then a long delay is a reason to leave the path. False for
  // UCX, which the host drives.
  bool direct_waits = false;
  int32_t clean_steps = 20;  // steps in a row without trouble before the direct path is tried again
};

// A link's path at one of its ends.
struct PathState {
  Path path = Path::Staged;
  int32_t clean = 0;  // steps in a row without trouble
  auto operator<=>(const PathState&) const = default;
};

// The errors and times of a link in one step.
struct LinkNews {
  int32_t errors = 0;     // messages that failed, connections that broke
  Duration round_trip{};  // delay there and back; used only if direct_waits
  Duration of_micro{};    // the step's time per micro-batch; used only if direct_waits
};

// The path that a link begins with.
PathState first_path(const PathRule& rule);

// The path of the next step. Automatic leaves the direct path after an error, or, with
// direct_waits, when the round trip is longer than a quarter of a micro-batch's time. After
// `clean_steps` steps without such trouble it returns. A path that the job asks for stays.
PathState next_path(const PathRule& rule, PathState now, const LinkNews& news);

// The slots through which the messages of one kind, between two stages, leave or enter a worker.
struct Ring {
  WorkerId peer;
  bool send = false;
  ValueKind kind = ValueKind::None;  // Activation or Gradient
  StageId stage;                     // the stage that makes the value
  auto operator<=>(const Ring&) const = default;
};

// The rings of `self` and the slots that each needs under the plan.
//
// Let x micro-batches be in flight at the stage before a link, y at the stage behind it, and let D
// be the sum of the link's delays there and back. The period P of the pipeline is at least
// D / (x - y + 1). With ceil(D / P) + 2 slots the link is always busy; that is at most x - y + 3,
// whatever D is. A ring never has more slots than the step has messages in it. If the two ends list
// these messages in different orders, each message has its own slot. Otherwise a message could wait
// for the slot of a message that comes later in the list.
//
// Cost: O(ops of the plan)
std::map<Ring, int32_t> ring_slots(const Plan& plan, WorkerId self);

}  // namespace tenuto
