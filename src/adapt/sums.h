// Chooses the collective of each group of holders for the cluster as it is now.
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
  std::string reason;  // a sentence for each group whose sum has changed; empty = none
};

// Chooses how each group sums, as far as the plan leaves that open. With Schedule::all_reduce auto:
// ring, halving, or late-one with the member that comes last. With late-one: the late member and
// the count of chunks.
//
// Idea:   the price of the step tells when each member starts its sum. The price of the sums alone
//         shows which ways are promising and with how many chunks; then the price of the whole
//         step, with all that waits for the sums, decides. A change must gain `least_gain` of a
//         step. All groups are tried together, then single ones, up to kMostSumTrials times.
// Not taken: ports that the links of a member share. In price() links are independent, so ways in
//         which a member talks with many others gain more than they do over a shared port.
//
// Requires: check(plan) is ok; the model has the plan's layers
// Errors:   as price()
Result<ChosenSums> choose_sums(const Plan& plan, const Model& model, const Cluster& now,
                               const PriceOptions& pricing, double least_gain);

// How often, at most, the whole step is priced to change the sum of a single group.
inline constexpr int32_t kMostSumTrials = 32;

}  // namespace tenuto
