// Plans and losses drawn by seed for the cluster of hashes (hash_cluster.h).
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "adapt/hash_cluster.h"
#include "ir/plan.h"

namespace tenuto {

// A plan of that shape, with a split or a whole backward.
Plan plan_of(int32_t stages, int32_t pipelines, int32_t micros, bool split = true);

// Draws plans and kills; returns how many of `count` runs failed, and the first failure.
std::pair<int32_t, std::string> random_runs(int32_t count, Broken broken, bool keep = true);

}  // namespace tenuto
