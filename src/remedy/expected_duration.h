// How long troubles are expected to go on, learned from those that have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenuto {

// The durations of troubles that have ended, in steps: the newest kMostSeen.
using SeenDurations = std::vector<int64_t>;
inline constexpr size_t kMostSeen = 64;

// For how many more steps a trouble is expected to last that has lasted for `lasted` steps.
//
// Idea:   the mean rest of those that lasted longer, and of one more that lasts as long again as
//         this one has lasted. So before any trouble has ended, and for one that has outlived all
//         others, a change that costs as much as the trouble has cost so far pays. It then costs at
//         most twice what the best decision in hindsight would have (the ski-rental rule).
// Source: Karlin et al., "Competitive snoopy caching", Algorithmica 1988 (ski rental); the learned
//         durations are ours
double expected_rest(const SeenDurations& seen, int64_t lasted);

// The fewest steps, at least `lasted`, that a trouble must have lasted so that its expected rest is
// at least `rest`.
int64_t lasted_for_rest(const SeenDurations& seen, int64_t lasted, double rest);

}  // namespace tenuto
