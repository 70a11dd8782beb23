// Changes of a layout by one worker, one pair of workers, one stage.
#pragma once

#include <functional>

#include "adapt/layout/draft.h"
#include "adapt/layout/in_turn_pricer.h"

namespace tenuto {

// Takes a layout; false ends the enumeration.
using TakeLayout = std::function<bool(const Layout&)>;

// The layouts that differ from `layout` by one change: a worker goes to another stage, becomes idle
// or gets a stage; two workers of different stages change places; two neighbouring stages become
// one; a stage becomes two. Of exchangeable devices one is moved. After each change the cuts are
// shifted while this lowers InTurnPricer::least_step(). Every stage keeps a worker and a layer, and
// has no more workers than there are micro-batches.
//
// Cost: with at most 16 stages all pairs of stages; else neighbouring stages only
void each_change(const InTurnPricer& pricer, const DeviceKinds& kinds, const Layout& layout,
                 const TakeLayout& take);

// Shifts cuts by one layer while this lowers InTurnPricer::least_step().
Layout with_lower_cuts(const InTurnPricer& pricer, Layout layout);

}  // namespace tenuto
