// What is left of a step when workers are lost in it: the ops whose results are needed and nowhere
// alive.
//
// Idea:   values have names, so what the survivors have says what need not be made again. From the
//         sums backwards: a micro-batch whose weight gradient is in no live sum needs its backward,
//         that needs a gradient and a stash, and these whatever made them, until something is
//         alive. Ops that nobody had come to yet come out as well, so the answer is the whole rest
//         of the step, and with nothing alive it is the step itself: abandon and replay.
// Right:  by check(), with what is in the stores as given. Losses of neighbours, of both ends of a
//         link, or while this is under way need no further case: the inventories are read again.
// Not taken: moving what a worker has begun to a peer with less to do. A survivor keeps its work;
//         only that of the lost is dealt out, as evenly as in the steps after.
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

// One Step that is taken back: its output for others is made on the parameters before, then it is
// taken again with the total that was kept, bit for bit.
struct TakenBack {
  WorkerId worker;
  StageId stage;
  auto operator<=>(const TakenBack&) const = default;
};

// The rest of a step.
struct Rest {
  Plan plan;      // who is not alive has no list; ready dispatch
  Stores stores;  // what of its inventory each worker begins with; the rest is of no use
  std::vector<TakenBack> back;
  int32_t ops = 0;         // forwards, input gradients and weight gradients in the lists
  int32_t sent_again = 0;  // activations and gradients sent from where they are kept
  int32_t totals_copied = 0;
};

// The rest of a step of `plan` for the workers that are `alive`. Deterministic. A weight gradient
// whose BackwardWeight is not in the lists is not to be added to any sum: its backward makes an
// output for others alone. `losses`: micro-batches whose loss went with the lost; their forward
// runs again at the last stage.
//
// Requires: check(plan) is ok; a flag and an inventory for each worker, those of the dead unused; a
//           partial is in one inventory, and totals come from reductions that all had brought
//           their partials to
// Errors:   Infeasible/Job   nobody who lives holds a stage
//           Infeasible/Call  a staggered plan with anything in an inventory: its verdict is on the
//                            step before, which only a replay leaves as it is
// Cost:     O(stages x micro-batches x holders of a stage)
Result<Rest> salvage(const Plan& plan, const std::vector<Inventory>& inventories,
                     const std::vector<bool>& alive, const std::vector<MicroId>& losses = {});

// The cheaper way to the end of a step.
struct Remedy {
  Rest rest;
  bool replayed = false;  // the step is abandoned: stores emptied, early Steps taken back
  Duration price{};       // from now to the end of the step
  Duration replay{};      // the same for abandon and replay
  std::string reason;
};

// Salvages what the inventories have, or abandons the step when that is cheaper by price() or what
// is left does not pass check().
//
// Requires: as salvage(); the model has the plan's layers
// Errors:   Infeasible/Job  nobody who lives holds a stage
Result<Remedy> recover(const Plan& plan, const std::vector<Inventory>& inventories,
                       const std::vector<bool>& alive, const Model& model, const Cluster& cluster,
                       const std::vector<MicroId>& losses = {});

}  // namespace tenuto
