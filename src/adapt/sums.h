// By which collective each group of holders sums, chosen for the cluster as it is now.
#pragma once

#include <string>

#include "base/result.h"
#include "ir/plan.h"
#include "sim/price.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// A plan with its sums chosen.
struct ChosenSums {
  Plan plan;
  Duration price{};   // of a step, with its update
  Duration before{};  // the same of the given plan
  bool changed = false;
  std::string reason;  // a sentence for each group that sums otherwise now; empty = none does
};

// Chooses for each group whose plan leaves it open (Schedule::all_reduce auto: ring, halving, or
// late-one with the member that comes last; late-one: who is late, and the chunks) how it sums.
//
// Idea:   the starts of a group's sums are known from the price of the step. The sums alone say
//         which count of chunks is the best for each algorithm; the price of the whole step then
//         says which algorithm is, since it knows what else waits for them. A group changes only
//         when the step is faster by more than `least_gain`. Groups come by what they gain alone,
//         and after kMostSumTrials whole prices what is left stays as it is.
//
// Requires: check(plan) is ok; the model has the plan's layers
// Errors:   as price()
Result<ChosenSums> choose_sums(const Plan& plan, const Model& model, const Cluster& now,
                               const PriceOptions& pricing, double least_gain);

// Whole prices of one choice at most.
inline constexpr int32_t kMostSumTrials = 32;

}  // namespace tenuto
