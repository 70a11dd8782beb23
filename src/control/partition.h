// Links that are cut while both ends live. Parts of decide.h.
//
// Two workers that cannot reach each other both report it. A step needs both, so the coordinator
// leaves one out, by a rule that does not depend on which of the two reports comes first. If the
// coordinator hears none of its workers, its own link is cut: the workers wait for it, and it waits
// for them.
#pragma once

#include <optional>
#include <string>

#include "control/decision_part.h"
#include "control/state.h"

namespace tenuto {

// The worker left out because of a cut link, and why: the end of a sentence that begins with its
// name.
struct LeftOut {
  WorkerId worker;
  std::string fate;
  // No other worker can do its work: the steps cannot go on, and the live workers save what they
  // have.
  bool needed = false;
};

// The worker to leave out because of a cut link; none while no lost link has been reported for long
// enough. Every link that both ends report as lost counts as cut; if there is no such link, the one
// whose loss was reported first counts as cut. The worker with the most cut links is left out; on a
// tie a worker whose work others can do, and on a further tie the highest number.
std::optional<LeftOut> find_left_out(const State& state, Duration now);

// When the coordinator no longer hears any worker, and when it hears one again, notes this and says
// so in a sentence. `silence`: how long one worker may say nothing.
DecisionPart watch_own_link(const State& state, Duration now, Duration silence);

// True while the coordinator hears none of its workers and still waits for them
// (Rules::cut_off_limit).
bool is_cut_off(const State& state, Duration now);

}  // namespace tenuto
