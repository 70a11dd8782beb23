// How long troubles are expected to go on, learned from those that have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tenuto {

// The durations of troubles that have ended, in steps: the newest kMostSeen.
using SeenDurations = std::vector<int64_t>;
inline constexpr size_t kMostSeen = 64;

// What is thought of a trouble before any has ended: it lasts for so many steps, some minutes.
//
// Source: Wu et al., "Falcon", arXiv 2410.12588 (slow workers last 10 minutes on average, slow
// links
//         24); any number from 30 to 100 is as good in `tenuto bench remedies`
inline constexpr int64_t kUsualSteps = 40;

// For how many more steps a trouble is expected to last that has lasted for `lasted` steps.
//
// Idea:   the mean rest of those that lasted longer, and of one more that lasts kUsualSteps or, if
//         this one has lasted for more than half of that, as long again. So for a trouble that
//         has outlived all others, a change that costs as much as the trouble has cost so far pays.
//         It then costs at most twice what the best decision in hindsight would have (the
//         ski-rental rule).
// Source: Karlin et al., "Competitive snoopy caching", Algorithmica 1988 (ski rental); the learned
//         durations are ours
double expected_rest(const SeenDurations& seen, int64_t lasted);

// The fewest steps, at least `lasted`, that a trouble must have lasted so that its expected rest is
// at least `rest`.
int64_t lasted_for_rest(const SeenDurations& seen, int64_t lasted, double rest);

}  // namespace tenuto
