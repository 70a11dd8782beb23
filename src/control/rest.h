// When a worker is lost, the others need not do the whole step again: from what each of them still
// holds follows what is left of it (adapt/salvage.h). Parts of decide.h.
#pragma once

#include <string>

#include "control/decide.h"

namespace tenuto {

// Computes what is left of the step after the committed version, from what all survivors reported
// to hold of it. Puts it into out.state.recovery.rest if all can go on with it and its price is
// below that of doing the step again. Returns the sentence about it; nothing when no worker holds
// anything of the step.
//
// Requires: all_have_frozen(out.state)
std::string find_rest(Decision& out);

}  // namespace tenuto
