// When a worker is lost, the others need not do the whole step again: what each of them has says
// what is left of it (adapt/salvage.h). Parts of decide.h.
#pragma once

#include <string>

#include "control/decide.h"

namespace tenuto {

// Once all that are left have said what they have of the step after the committed version: what is
// left of it goes to state.recovery.rest, when that is cheaper by price than to do it again, and
// when all can go on with it. Returns the sentence of it; nothing when nobody has anything.
//
// Requires: all_have_frozen(out.state)
std::string find_rest(Decision& out);

}  // namespace tenuto
