// Lists the layouts that one small change makes of a given layout.
#pragma once

#include <functional>

#include "adapt/layout/draft.h"
#include "adapt/layout/in_turn_pricer.h"

namespace tenuto {

// Receives a layout. Returns false to end the enumeration.
using TakeLayout = std::function<bool(const Layout&)>;

// Enumerates the layouts that differ from `layout` by one change: a worker goes to another stage,
// becomes idle or gets a stage; a worker changes places with one of another stage or an idle one;
// two neighbouring stages become one; a stage becomes two. Of several equal devices one is
// moved. After each change, cuts are shifted while this lowers InTurnPricer::least_step(). Every
// stage keeps a worker and a layer, and has no more workers than there are micro-batches.
//
// Cost: with at most 16 stages, it tries all pairs of stages; with more, neighbours only
void each_change(const InTurnPricer& pricer, const DeviceKinds& kinds, const Layout& layout,
                 const TakeLayout& take);

// Shifts cuts by one layer while this lowers InTurnPricer::least_step().
Layout with_lower_cuts(const InTurnPricer& pricer, Layout layout);

}  // namespace tenuto
