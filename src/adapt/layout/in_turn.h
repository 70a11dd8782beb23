// Plans for training from a model and a cluster: layouts whose holders take whole micro-batches in
// turn, which is how Tenuto trains.
#pragma once

#include <optional>
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

// Limits for the search for a plan that trains.
struct InTurnEffort {
  int64_t priced = 600;  // plans priced while cuts move; the same number again while workers move,
                         // and again for equal pipelines
  double ops = 40e6;     // ops of all priced plans, in each of these three parts
  bool changes = true;   // false: workers do not move; pipelines only if the settings ask for them
};

// What a plan is made for.
struct InTurnSettings {
  LayoutSettings layout;
  std::optional<bool> split_backward;  // no value: the faster of the two
  bool tied = false;                   // the first and the last stage share a weight
  std::string all_reduce = "ring";     // see plan/lower.h
  int32_t evaluation_micros = 0;
  bool pipelines = false;  // only equal pipelines that run fixed lists, each with its own
                           // micro-batches: plans that other frameworks can run
  InTurnEffort effort;
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
// the best ones while this shortens the step. The changes are: moving cuts, moving workers between
// stages, joining and dividing stages, recomputation, more micro-batches in flight, split
// backwards, several stages on each worker, and another order of ops from adapt(). Unlike in
// layouts with split rows, replicas of a stage do not make a single micro-batch faster; but a
// faster replica takes more micro-batches. Deterministic, unless the watch ends it: then it returns
// the best plan so far.
//
// Requires: layouts of this model and cluster
// Errors:   Invalid/Call    equal pipelines for more than 512 devices
//           Infeasible/Job  no plan fits into the memory
Result<InTurnPlan> plan_in_turn(const Model& model, const Cluster& cluster,
                                const InTurnSettings& settings, const std::vector<Layout>& layouts,
                                Watch* watch = nullptr);

}  // namespace tenuto
