// A step of all pipelines, as the search for a routing needs it: stages, the workers that can run
// each, and the links between them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "ir/plan.h"
#include "sim/price.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// A live worker that keeps the weights of a stage, and of no other.
struct Holder {
  WorkerId worker;
  int32_t pipeline = 0;  // whose micro-batches it runs on an undisturbed cluster
  Duration forward{}, backward{}, weight{};  // of one micro-batch
  Duration update{};                         // of the stage, once a step
  MemoryLimit memory;
};

// Both directions between a holder and one of the next stage: latencies, and how long a message
// occupies its link.
struct Way {
  Duration down{}, up{}, down_busy{}, up_busy{};

  // From the end of a forward to the start of the next stage's, and back.
  Duration there() const { return down + down_busy; }
  Duration back() const { return up + up_busy; }
};

// How steps follow one another, and which time counts: the makespan of a step, or the period, which
// is the mean time from one step to the next.
enum class Pace : uint8_t {
  Barrier,  // all workers begin a step together: the makespan counts
  Joint,    // the workers of a stage begin a step together, after its update: the period counts
  Apart,    // each worker begins a step when its own list is done: the period counts
};

// The layered network. Micro-batch m is at home in pipeline m mod `pipelines`.
struct Mesh {
  int32_t pipelines = 1;
  int32_t micros = 0;  // of a step, over all pipelines
  std::vector<std::vector<Holder>> stages;
  std::vector<std::vector<Way>> ways;  // ways[s][i * width(s + 1) + j]: from i of s to j of s + 1
  Pace pace = Pace::Barrier;
  bool split_backward = true;  // no: BackwardInput also computes the weight gradient

  // Number of stages.
  int32_t depth() const { return static_cast<int32_t>(stages.size()); }
  // Number of holders of a stage.
  int32_t width(int32_t stage) const {
    return static_cast<int32_t>(stages[static_cast<size_t>(stage)].size());
  }
  // The holder `index` of a stage.
  const Holder& holder(int32_t stage, int32_t index) const {
    return stages[static_cast<size_t>(stage)][static_cast<size_t>(index)];
  }
  // From holder `from` of a stage to holder `to` of the next one.
  const Way& way(int32_t stage, int32_t from, int32_t to) const {
    return ways[static_cast<size_t>(stage)][static_cast<size_t>(from * width(stage + 1) + to)];
  }
};

// Who runs which micro-batch: routing[stage][micro] = index of the stage's holder.
using Routing = std::vector<std::vector<int32_t>>;

// The mesh of a plan on a cluster as it is now, with the live holders of each stage.
//
// Requires: no worker holds two stages
// Errors:   Infeasible/Job     a stage has no live holder
//           Exhausted/Worker   a worker's memory limit is below one micro-batch
Result<Mesh> mesh_of(const Plan& plan, const Model& model, const Cluster& cluster,
                     const PriceOptions& options);

// Exhausted/Worker: a worker's memory limit is below one micro-batch of its stage.
Error too_little_memory(WorkerId worker, int32_t stage, const MemoryLimit& memory);

// True when no worker of the plan holds more than one stage.
bool holds_apart(const Plan& plan);

}  // namespace tenuto
