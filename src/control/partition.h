// Links that are cut while their ends live. Parts of decide.h.
//
// Two workers that cannot reach each other both tell the coordinator so. None of them is at fault,
// but a step needs both, so one is left out, by a rule that does not depend on who tells first. And
// where the coordinator hears none of its workers, its own link is cut: they wait for it, and it
// waits for them.
#pragma once

#include <optional>
#include <string>

#include "control/decide.h"

namespace tenuto {

// Who is left out because of a cut link, and why: the end of a sentence that begins with its name.
struct LeftOut {
  WorkerId worker;
  std::string fate;
  // Nobody else can do its work: the steps cannot go on, and all that live save what they have.
  bool needed = false;
};

// Notes which peers a worker has lost in this epoch, and since when.
void note_lost_peers(State& state, const Report& report, Duration now);

// Whom a cut link makes unusable; none: no link is known to be cut, or it has been known for too
// short a time to say so. Of several cut links those count that both ends tell of; without any, the
// one that was told of first. Out of their ends goes who has the most of them, then somebody whose
// work others can do, then the higher number.
std::optional<LeftOut> find_left_out(const State& state, Duration now);

// Whether the coordinator has been heard by, and hears, none of its workers, and still waits for
// them. Notes when that begins and ends, in out.state and as a sentence.
//
// `silence`: how long one worker may say nothing.
bool hears_nobody(Decision& out, Duration now, Duration silence);

}  // namespace tenuto
