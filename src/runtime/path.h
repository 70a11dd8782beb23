// Chooses the path of a message between a device's memory and the wire, and the number of slots of
// host memory for it. Pure functions: the same at every worker, from what each knows by itself.
#pragma once

#include <cstdint>
#include <map>

#include "base/id.h"
#include "base/unit.h"
#include "ir/plan.h"

namespace tenuto {

// The two ways of a message of a device with memory of its own.
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
  // The direct path holds the device's queue until the peer has answered, as a kernel that sends
  // does. UCX is driven by the host and does not; then no delay is a reason to leave the path.
  bool direct_waits = false;
  int32_t clean_steps = 20;  // in a row, until the direct path is tried again
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
  Duration round_trip{};  // delay there and back; read only if the direct path waits
  Duration of_micro{};    // the step's time per micro-batch; likewise
};

// The path that a link begins with.
PathState first_path(const PathRule& rule);

// The path of the next step. Automatic leaves the direct path after an error, or, where it holds
// the device's queue, when the round trip is longer than a quarter of a micro-batch's time; it
// returns after `clean_steps` steps without either. A wish for one path holds.
PathState next_path(const PathRule& rule, PathState now, const LinkNews& news);

// The slots through which the messages of one kind, between two stages, leave or enter a worker.
struct Ring {
  WorkerId peer;
  bool send = false;
  ValueKind kind = ValueKind::None;  // Activation or Gradient
  StageId stage;                     // that makes the value
  auto operator<=>(const Ring&) const = default;
};

// The rings of `self` and the slots that each needs under the plan.
//
// With x micro-batches in flight at the stage before a link and y behind it, the period P of the
// pipeline is at least (the delays there and back) / (x - y + 1); so ceil(delays / P) + 2, what
// keeps the link busy, is at most x - y + 3, whatever the delays are. Never more than the messages
// of a step. Where the two ends name the messages in different orders each message has a slot, so
// that no message can wait for one that stands behind it.
//
// Cost: O(ops of the plan)
std::map<Ring, int32_t> ring_slots(const Plan& plan, WorkerId self);

}  // namespace tenuto
