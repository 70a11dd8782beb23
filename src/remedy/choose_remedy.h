// Chooses what to do about the troubles of a cluster: slow workers, slow links and dead workers in
// any mixture.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/layer_move.h"
#include "ir/plan.h"
#include "remedy/forecast.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// Which changes of a plan may be taken, and for how long they are expected to help.
struct RemedyTerms {
  bool routes = false;  // micro-batches may go to other workers
  bool layers = false;  // layers may move to other workers; the plan then has a stage for each
  bool only_observes_layers = false;  // moves of layers are compared, but none is chosen
  KnownTroubles troubles;             // of the run
  int64_t left = 0;                   // steps until the end of the run
  double least_gain = 0.02;           // share by which a step must become shorter
  // The cluster and its plan when all are well; null: nothing is known of the time after the
  // troubles, and layers that have moved are expected to move back.
  std::shared_ptr<const Cluster> healthy = nullptr;
  std::shared_ptr<const Plan> home = nullptr;
};

// One thing that could be done, with its price.
struct Alternative {
  std::string name;
  Duration step{};    // time of a whole step, with its reductions and update
  Duration change{};  // what the change costs, once
  // Of the steps that are looked at (forecast.h), with the change, and after the troubles the way
  // back or the longer steps without it.
  double total_ms = 0;
  bool chosen = false;
  std::shared_ptr<const Plan> plan = nullptr;  // with it
};

// What to do.
struct RemedyChoice {
  std::shared_ptr<const Plan> plan;  // null: the present plan stays
  std::vector<LayerMove> moves;      // of layers, by stage; `plan` is the plan after them
  // Moves of layers would pay once the cluster has been as it is for so many steps. -1: some pay
  // now, or none ever do.
  int64_t pays_after = -1;
  double expected_steps = 0;  // for which the cluster is expected to stay as it is
  std::string reason;         // a sentence
  // With RemedyTerms::only_observes_layers: what moves of layers would be better than what was
  // chosen, a sentence. Empty: none would.
  std::string observed;
  // All that was compared: to keep the plan first, then the others by their total.
  std::vector<Alternative> alternatives;
};

// Compares, on the cluster as it is now: to keep the plan; another order of ops; other routes of
// micro-batches (both with the all-reduces chosen anew, where the plan leaves them open); the plan
// of a healthy cluster; layers at other workers, or back at their first ones; and two workers that
// change places, on top of the best of the first ones. Each is planned (adapt/) and priced
// (sim/price.h), for the cluster as it is and as it will be when the troubles end one after the
// other. An alternative's total is the time of these steps, and what the change costs. The least
// total is taken, and of equal ones the first; if moves of layers are only observed, of the
// others. A pure function of its arguments.
//
// `made_ahead`: a plan that was made for this cluster earlier; it is taken in place of a search for
// orders and routes. Null: there is none.
//
// Requires: check(present) is ok; the model has the plan's layers
// Errors:   as adapt(); Infeasible/Job  neither the present plan nor one that was found can run
Result<RemedyChoice> choose_remedy(const Plan& present, const Model& model, const Cluster& now,
                                   const RemedyTerms& terms,
                                   std::shared_ptr<const Plan> made_ahead = nullptr);

}  // namespace tenuto
