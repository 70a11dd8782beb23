// Random faults. Which faults happen, and when, depends only on a seed and the size of the job, so
// a run with them can be repeated.
#pragma once

#include <vector>

#include "world/fault.h"

namespace tenuto {

// The faults that a fault of kind "chaos" stands for, in the order of the steps: killed and stopped
// workers that are started again, workers that are paused or cut off for about a third of
// resilience.silence_seconds at most (so they are not declared dead), slow workers, slow links,
// broken connections, wrong clocks, killed coordinators. They begin in the steps [chaos.at_step,
// chaos.until_step), or up to the job's end if until_step is -1; on average there is one every
// chaos.every steps.
//
// A run survives them without losing a step. In each stage, one worker that is drawn at random is
// never killed or stopped for good. With one pipeline, or if the job ends when a worker dies, this
// holds for every worker. If the coordinator's store is in memory, the coordinator is not killed. A
// worker that was started again may be hit while it is still receiving its state.
std::vector<Fault> draw_chaos(const Fault& chaos, const Job& job);

}  // namespace tenuto
