// Layouts to begin a search with: what the dynamic programs find on several orders of devices, and
// what other rules make.
#pragma once

#include <optional>

#include "adapt/layout/baseline.h"
#include "adapt/layout/draft.h"
#include "adapt/layout/draft_pricer.h"
#include "base/watch.h"

namespace tenuto {

// Gives candidates to the pricer until it has counted `until` blocks, but the most important ones
// in any case, unless the watch ends it. How many it makes, and how fine, depends on how much work
// one of them is.
//
// Returns: the layout of the best of the other rules, with its own order of ops; nothing when none
//          of them fits into memory
std::optional<PricedLayout> price_candidates(const DraftTable& table, DraftPricer& pricer,
                                             double until, Watch* watch);

}  // namespace tenuto
