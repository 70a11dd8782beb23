// Clusters of engines in one process.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "engine/engine.h"
#include "plan/make_plan.h"
#include "runtime/test_cluster.h"
#include "world/fit.h"

namespace tenuto {

// The plan of a job's shape for its model.
inline Plan plan_of_model(const Job& job) {
  Shape shape;
  shape.stages = job.parallel.stages;
  shape.chunks = job.parallel.chunks;
  shape.pipelines = job.parallel.pipelines;
  shape.micros = job.parallel.micros;
  shape.layers = cut_layers(job.model);
  shape.order = job.parallel.order;
  shape.split_backward = job.parallel.split_backward;
  shape.recompute = job.parallel.recompute == "all";
  shape.tied = job.model.tied;
  auto plan = make_plan(shape);
  CHECK(plan.ok(), plan.error().message);
  return std::move(plan).value();
}

// Makes the engines of a cluster.
inline TestCluster::MakeDevice engines(const Job& job, const Plan& plan,
                                       bool separate_memory = false) {
  return [&job, &plan, separate_memory](const std::vector<StageId>& stages, Mailbox& mailbox) {
    auto made = make_engine(job, plan, stages, mailbox, {.separate_memory = separate_memory});
    CHECK(made.ok(), made.error().message);
    return std::move(made).value();
  };
}

// Parameters and optimizer state, by stage; all live holders of a stage have the same.
using State = std::map<int32_t, std::vector<std::byte>>;

inline State state_of(TestCluster& cluster, int64_t version) {
  State all;
  for (int32_t w = 0; w < cluster.size(); ++w) {
    for (const StageId stage : cluster.stages_of(w)) {
      Device& engine = cluster.compute(w);
      EXPECT_EQ(engine.version(), version) << "worker " << w;
      std::vector<std::byte> state(static_cast<size_t>(engine.state_bytes(stage)));
      EXPECT_TRUE(engine.read_state(stage, 0, state).ok());
      const auto [other, fresh] = all.try_emplace(stage.value, state);
      EXPECT_TRUE(fresh || other->second == state) << "stage " << stage.value << " of worker " << w;
    }
  }
  return all;
}

}  // namespace tenuto
