// Plans with a model and a disturbed cluster, as input of adapt().
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

// The time of one op of an undisturbed worker.
inline constexpr Duration kStepOp = std::chrono::milliseconds(10);

// An undisturbed step: links without delay, no update.
//
// Requires: the order has a plan of this size and memory
Step step_of(const MixtureSize& size, int32_t memory, const std::string& order = "auto");

// Adds one to four random troubles; each stage keeps a live worker.
void disturb(Random& random, Step& it);

// Draws size, op times, memory (little to unlimited), split or whole backward, and troubles. The
// size is at most `most`, with at least two stages and two pipelines.
Step random_step(Random& random, const MixtureSize& most);

}  // namespace tenuto
