// tenuto plan --plan: the plan that trains a chain of layers on a cluster, whole micro-batches in
// turn.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "adapt/layout/in_turn.h"
#include "adapt/report/figures.h"
#include "base/result.h"
#include "base/watch.h"
#include "world/cluster.h"
#include "world/layer_chain.h"

namespace tenuto {

// Finds the plan from the layouts of a search. Errors: plan_in_turn's
Result<InTurnPlan> training_plan(const LayerChain& chain, const Cluster& cluster,
                                 const InTurnSettings& settings, const LayoutSearch& search,
                                 Watch& watch);

// A fact that names the stages that recompute; empty if none does.
std::vector<Fact> recomputing_facts(const std::vector<Stage>& stages);
// The same as a line of text, or empty.
std::string recomputing_text(const std::vector<Stage>& stages);

// The report of the plan for people: its step, its stages, and its step divided by the step of the
// layout that splits rows, which takes `rows_split` nanoseconds. `path`: the file with the plan,
// which parallel.plan and `tenuto simulate` read.
std::vector<Fact> training_facts(const InTurnPlan& plan, const std::string& path,
                                 double rows_split);

// The same for programs.
nlohmann::ordered_json training_json(const InTurnPlan& plan, const std::string& path);

}  // namespace tenuto
