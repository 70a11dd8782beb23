// Finds a better plan for the cluster as it is now.
#pragma once

#include <optional>
#include <string>

#include "adapt/order.h"
#include "adapt/route.h"
#include "adapt/spread.h"
#include "base/result.h"
#include "base/watch.h"
#include "ir/plan.h"
#include "sim/price.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// What an adapted plan is worth.
struct Adapted {
  Plan plan;
  Duration price{};        // makespan of a step, or the period
  Duration lower_bound{};  // no order of ops is faster with this routing and these memory limits;
                           // if `routed`, no order is faster with any routing
  Duration before{};       // price of the given plan on the same cluster; 0 when it cannot run
  bool changed = false;    // no: `plan` is the given one
  bool routed = false;     // other routings were tried
  std::string reason;
  std::vector<StageMove> moves{};  // live workers that hold another stage than in the given plan
};

// How to search, and how much better a plan must be to be taken.
struct AdaptOptions {
  PriceOptions price;         // how plans are priced; spans, bytes and lower_bound are ignored
  Effort effort;              // of the search, for each pipeline that differs
  double least_gain = 0.02;   // share of the present price by which a new plan must be faster
  double listed_gain = 0.02;  // share by which fixed lists must beat ready dispatch, which
                              // follows messages that come earlier or later than estimated
  std::optional<Dispatch> dispatch;  // only plans with this dispatch
  bool routing = true;               // no: who runs which micro-batch stays
  RouteEffort route_effort;          // of the search for it
  bool moves = false;                // live workers may change to stages that miss too many holders
                                     // (adapt/spread.h); only for a run that begins, since their
                                     // state is not copied
  double move_gain = 0.02;           // share by which a step must be faster for that
  bool steps_in_turn = false;        // sums are chosen for the steps of a run (options_of_run), not
                                     // for a single one
  Watch* watch = nullptr;  // gets the progress and can end the searches; the result is then the
                           // best plan found so far
};

// Finds the order of every pipeline's ops that absorbs the delays of its links and, when a worker
// is dead or slow or a link has a delay of its own, who runs which micro-batch (adapt/route.h). A
// routing is priced together with its orders. The result is the faster of two plans, one with the
// old and one with a new routing; on a tie the one with the old routing. The result passes check()
// and is never priced above the given plan; given its own result on the same cluster it returns
// that. Copies of stages (plan/copies.h) stay where they are and get no work. Then it chooses how
// groups sum, if the plan leaves that open (adapt/sums.h); price and bound include that only when
// `price` counts the update. Deterministic, unless the watch ends it.
//
// Requires: check(plan) is ok; the model has the plan's layers
// Errors:   Infeasible/Worker  a worker that is not alive has ops, and no other worker can take
//                              them: `routing` is false, there is one pipeline, or a worker holds
//                              several stages
//           Infeasible/Job     no live worker holds a stage; with moves, fewer live than stages
//           Exhausted/Worker   a worker's memory limit is below one micro-batch
//           Invalid/Call       steps that may last longer than kLongestTime
// Cost:     some 1 ms for 8 stages x 32 micro-batches if all fit into memory, 100 ms if few do; for
//           a routing see search_route, and some 1 us an op for its price
Result<Adapted> adapt(const Plan& plan, const Model& model, const Cluster& now,
                      const AdaptOptions& options = {});

// True when a worker or a link differs from the others, so that pipelines may differ. Dead workers
// count even if the plan runs nothing on them: then the live ones have unequal work.
bool is_disturbed(const Plan& plan, const Cluster& now);

// A lower bound on the step, over all routings among the live holders and all orders; nothing when
// there is no choice: one pipeline, or workers with several stages.
//
// Errors: as mesh_of
Result<std::optional<Duration>> bound_of_routings(const Plan& plan, const Model& model,
                                                  const Cluster& now, const PriceOptions& options);

}  // namespace tenuto
