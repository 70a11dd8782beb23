// Plans for training from a model and a cluster: layouts whose holders take whole micro-batches in
// turn, which is how Tenuto trains.
#pragma once

#include <string>
#include <vector>

#include "adapt/layout/search.h"
#include "base/result.h"
#include "base/watch.h"
#include "ir/plan.h"
#include "plan/stage_plan.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// What a plan is made for.
struct InTurnSettings {
  LayoutSettings layout;
  bool split_backward = false;
  bool tied = false;                // first and last stage share a weight
  std::string all_reduce = "ring";  // see plan/lower.h
  int32_t evaluation_micros = 0;
};

// A plan with its price.
struct InTurnPlan {
  Plan plan;
  Duration step{};         // by price(), from empty, with reductions and update
  Duration lower_bound{};  // no plan of the model on this cluster is faster
  std::string how;         // a few words
  int64_t priced = 0;      // plans that were priced
};

// Makes a plan of each of these layouts, the best ones of search_layout(), prices it, and changes
// the best ones (moves of cuts, other numbers of micro-batches in flight, then adapt()) while this
// shortens the step. In contrast to layouts with split rows, the replicas of a stage do not shorten
// the way of a single micro-batch, and a faster replica takes more micro-batches. Deterministic,
// unless the watch ends it.
//
// Requires: layouts of this model and cluster
// Errors:   Infeasible/Job  no plan fits into the memory
Result<InTurnPlan> plan_in_turn(const Model& model, const Cluster& cluster,
                                const InTurnSettings& settings, const std::vector<Layout>& layouts,
                                Watch* watch = nullptr);

}  // namespace tenuto
