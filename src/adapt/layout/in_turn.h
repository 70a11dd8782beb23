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

// How much a search for a plan that trains may try.
struct InTurnEffort {
  int64_t priced = 600;  // plans, while cuts move; then as many again while workers move, and as
                         // many again with several stages for each worker
  double ops = 40e6;     // of priced plans, in each of these three parts
  bool changes = true;   // no: only cuts move
};

// What a plan is made for.
struct InTurnSettings {
  LayoutSettings layout;
  std::optional<bool> split_backward;  // nothing: whichever is faster
  bool tied = false;                   // first and last stage share a weight
  std::string all_reduce = "ring";     // see plan/lower.h
  int32_t evaluation_micros = 0;
  bool pipelines = false;  // only plans of equal pipelines by fixed lists, none of which runs
                           // micro-batches of another one: what other frameworks can run
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
// the best ones while this shortens the step: cuts move, workers go to other stages or change
// places with others, stages are joined and divided, micro-batches in flight become more, backwards
// are split, workers get several stages each, and adapt() changes the order of ops. In contrast to
// layouts with split rows, the replicas of a stage do not shorten the way of a single micro-batch,
// and a faster replica takes more micro-batches. Deterministic, unless the watch ends it; then it
// returns the best so far.
//
// Requires: layouts of this model and cluster
// Errors:   Infeasible/Job  no plan fits into the memory
Result<InTurnPlan> plan_in_turn(const Model& model, const Cluster& cluster,
                                const InTurnSettings& settings, const std::vector<Layout>& layouts,
                                Watch* watch = nullptr);

}  // namespace tenuto
