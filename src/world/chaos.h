// Faults drawn at random: which happen when follows from a seed and the size of the job alone, so
// that whatever they lead to can be had again.
#pragma once

#include <vector>

#include "world/fault.h"

namespace tenuto {

// What a fault of kind "chaos" comes to: killed and stopped workers that are started again, workers
// that stand still or are cut off for less than a third of the time after which they are expelled,
// slow workers, slow links, broken connections, wrong clocks, killed coordinators, from its at_step
// on and before its until_step (the job's end when that is -1), one every `every` steps in the
// mean, in the order of the steps.
//
// A run can be asked to lose nothing by them: in each stage one worker, drawn too, neither dies nor
// stops for good; with one pipeline, or where the death of a worker ends the run, nobody does;
// without a store the coordinator lives. A worker that was started again may be hit while it
// learns.
std::vector<Fault> draw_chaos(const Fault& chaos, const Job& job);

}  // namespace tenuto
