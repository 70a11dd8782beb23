// Tries all layouts of a small problem.
#pragma once

#include "adapt/layout/draft.h"
#include "adapt/layout/draft_pricer.h"

namespace tenuto {

// The number of drafts of a problem, idle devices included; or a number above `most`, if there are
// more.
//
// Source: inclusion and exclusion of stages without devices
// Cost:   O(N^2 K) for K kinds of devices and stages up to N, with which there are more than `most`
double draft_count(const DraftTable& table, double most);

// Prices all drafts whose lower bound is below the best step, by the schedules of the pricer's
// effort. Bounds on partly made drafts leave out most of the others. Gives up when it has made
// `most` of these.
//
// Returns: whether it has seen all
bool search_all_drafts(const DraftTable& table, DraftPricer& pricer, int64_t most);

}  // namespace tenuto
