// Random faults. Which faults happen, and when, depends only on a seed and the size of the job, so
// a run with them can be repeated.
#pragma once

#include <vector>

#include "world/fault.h"

namespace tenuto {

// The faults that a fault of kind "chaos" stands for, in the order of the steps: killed and stopped
// workers that are started again, workers that are paused or cut off for less than a third of the
// time after which they are expelled, slow workers, slow links, broken connections, wrong clocks,
// killed coordinators. They begin in steps from its at_step up to, not including, its until_step
// (the job's end when that is -1), one every `every` steps on average.
//
// A run survives them without a loss: one worker of each stage, drawn at random, neither dies nor
// stops for good; with one pipeline, or where the death of a worker ends the run, no worker does;
// without a durable store the coordinator is not killed. A worker that was started again may be hit
// while it is still receiving its state.
std::vector<Fault> draw_chaos(const Fault& chaos, const Job& job);

}  // namespace tenuto
