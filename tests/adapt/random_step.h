// Plans with a model and a cluster that is not well: what adapt() is asked.
#pragma once

#include <string>

#include "adapt/mixture.h"
#include "ir/plan.h"
#include "sim/price.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// A plan with a model and a cluster.
struct Step {
  Plan plan;
  Model model;
  Cluster cluster;
  PriceOptions options;
};

// One op of a worker with nothing the matter.
inline constexpr Duration kStepOp = std::chrono::milliseconds(10);

// Everybody well; links without delay, no update.
//
// Requires: the order has such a plan
Step step_of(const MixtureSize& size, int32_t memory, const std::string& order = "auto");

// One to four random troubles, each stage keeping a worker.
void disturb(Random& random, Step& it);

// Size, op times, memory from little to unlimited, split or whole backward and troubles at random;
// up to `most`, and at least two stages and two pipelines.
Step random_step(Random& random, const MixtureSize& most);

}  // namespace tenuto
