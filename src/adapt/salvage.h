// The rest of a step in which workers were lost: the ops whose results are needed and that no live
// worker has.
//
// Idea:   values have names, so there is no need to make a value again that a survivor has. The
//         search goes backwards from the sums: a micro-batch whose weight gradient is in no live
//         sum needs its backward, which needs a gradient and a stash, and these need the ops that
//         make them, until a live worker has the value. This also finds the ops that had not begun
//         yet, so the answer is the whole rest of the step; if no value is alive it is the step
//         itself: abandon and replay.
// Right:  check() verifies the result with the given stores. The same search serves when neighbours
//         or both ends of a link are lost, and, on new inventories, when one more worker is lost
//         while the rest runs.
// Not taken: moving work that a worker has begun to a peer with less to do. A survivor keeps its
//         work; only that of lost workers is dealt out, as evenly as in later steps.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/inventory.h"
#include "ir/plan.h"
#include "ir/stores.h"
#include "sim/price.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// One Step that is undone: with the parameters from before the Step, the worker makes the outputs
// that others need; then it takes the Step again with the total that it kept, bit for bit.
struct TakenBack {
  WorkerId worker;
  StageId stage;
  auto operator<=>(const TakenBack&) const = default;
};

// The rest of a step.
struct Rest {
  Plan plan;      // workers that are not alive have no list; ready dispatch
  Stores stores;  // the part of its inventory that each worker begins with; the rest is not needed
  std::vector<TakenBack> back;
  int32_t ops = 0;         // forwards, input gradients and weight gradients in the lists
  int32_t sent_again = 0;  // activations and gradients sent from where they are kept
  int32_t totals_copied = 0;
};

// The rest of a step of `plan` for the workers that are `alive`. Deterministic. If the lists have a
// backward without its BackwardWeight, its weight gradient must not be added to any sum: it only
// makes an output for other workers. `losses`: micro-batches whose loss was lost with a worker;
// their forward runs again at the last stage.
//
// Requires: check(plan) is ok; a flag and an inventory for each worker, those of the dead unused;
//           each partial is in one inventory only; each total comes from a reduction to which all
//           holders had contributed their partials
// Errors:   Infeasible/Job   a stage has no live holder
//           Infeasible/Call  a staggered plan with anything in an inventory: the clip decision in
//                            its lists is on the previous step, so it can only be replayed
// Cost:     O(stages x micro-batches x holders of a stage)
Result<Rest> salvage(const Plan& plan, const std::vector<Inventory>& inventories,
                     const std::vector<bool>& alive, const std::vector<MicroId>& losses = {});

// The cheaper way to the end of a step.
struct Remedy {
  Rest rest;
  bool replayed = false;  // the step is abandoned: stores emptied, Steps taken so far undone
  Duration price{};       // from now to the end of the step
  Duration replay{};      // the same for abandon and replay
  std::string reason;
};

// Salvages what the inventories have, or abandons the step if that is no slower by price() or the
// rest does not pass check().
//
// Requires: as salvage(); the model has the plan's layers
// Errors:   Infeasible/Job  a stage has no live holder
Result<Remedy> recover(const Plan& plan, const std::vector<Inventory>& inventories,
                       const std::vector<bool>& alive, const Model& model, const Cluster& cluster,
                       const std::vector<MicroId>& losses = {});

}  // namespace tenuto
