#include "plan/stage_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "base/text.h"
#include "ir/check.h"
#include "sim/price.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Stages with `counts[s]` holders, and `layers` layers each; workers are numbered stage by stage.
std::vector<Stage> stages_with(const std::vector<int32_t>& counts, int32_t layers = 1) {
  std::vector<Stage> stages;
  int32_t worker = 0;
  for (const int32_t count : counts) {
    const auto s = static_cast<int32_t>(stages.size());
    Stage stage{s * layers, (s + 1) * layers, {}};
    for (int32_t h = 0; h < count; ++h) stage.holders.push_back({worker++});
    stages.push_back(std::move(stage));
  }
  return stages;
}

Model equal_layers(int32_t count) {
  Model model;
  model.layers.resize(at(count));
  for (Layer& layer : model.layers) {
    layer.forward = std::chrono::milliseconds(1);
    layer.backward_input = std::chrono::milliseconds(2);
    layer.parameters = {1000};
    layer.activation = {1000};
  }
  return model;
}

int64_t count_of(const Plan& plan, WorkerId worker, OpKind kind) {
  const std::vector<Op>& list = plan.schedule.lists[at(worker.value)];
  return std::count_if(list.begin(), list.end(), [&](const Op& op) { return op.kind == kind; });
}

std::string refusal(const std::vector<Stage>& stages, const StageShape& shape) {
  const auto plan = make_stage_plan(stages, shape);
  return plan.ok() ? "accepted" : plan.error().message;
}

TEST(StagePlan, UnequalStagesShareTheMicroBatches) {
  StageShape shape;
  shape.workers = 8;
  shape.micros = 16;
  shape.evaluation_micros = 4;
  const auto plan = make_stage_plan(stages_with({5, 3}), shape);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  for (int32_t w = 0; w < 8; ++w) {
    const int64_t forwards = count_of(plan.value(), {w}, OpKind::Forward);
    EXPECT_EQ(forwards, w < 5 ? (w == 0 ? 4 : 3) : (w == 5 ? 6 : 5)) << "worker " << w;
    EXPECT_EQ(count_of(plan.value(), {w}, OpKind::Step), 1);
  }
}

TEST(StagePlan, OneHolderAStageIsOneForwardOneBackward) {
  for (const int32_t count : {1, 2, 4, 7}) {
    for (const int32_t micros : {1, 3, 8}) {
      StageShape shape;
      shape.workers = count;
      shape.micros = micros;
      const auto plan = make_stage_plan(stages_with(std::vector<int32_t>(at(count), 1)), shape);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      PriceOptions options;
      options.update = false;
      const auto timeline =
          price(plan.value(), equal_layers(count), uniform_cluster(count, {}), options);
      ASSERT_TRUE(timeline.ok()) << timeline.error().message;
      EXPECT_EQ(timeline.value().makespan, std::chrono::milliseconds(3 * (micros + count - 1)));
    }
  }
}

TEST(StagePlan, AFasterHolderTakesMoreMicroBatches) {
  StageShape shape;
  shape.workers = 4;
  shape.micros = 12;
  shape.speed = {1, 0.5, 1, 1};
  const auto plan = make_stage_plan(stages_with({2, 2}), shape);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(count_of(plan.value(), {0}, OpKind::Forward), 8);
  EXPECT_EQ(count_of(plan.value(), {1}, OpKind::Forward), 4);
  EXPECT_EQ(count_of(plan.value(), {2}, OpKind::Forward), 6);
}

// Random stages, idle workers, limits and update styles: the plan passes check() and can be priced,
// and no stage holds more micro-batches than it may.
TEST(StagePlan, RandomStagesCanBePriced) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const auto count = static_cast<int32_t>(1 + random.below(5));
    std::vector<Stage> stages = stages_with(std::vector<int32_t>(at(count), 1), 2);
    StageShape shape;
    shape.micros = static_cast<int32_t>(1 + random.below(12));
    shape.workers = static_cast<int32_t>(count + random.below(4));
    std::vector<int32_t> workers;
    for (int32_t w = 0; w < shape.workers; ++w) {
      workers.insert(workers.begin() + random.below(w + 1), w);
      shape.speed.push_back(0.5 + random.uniform());
    }
    for (size_t s = 0; s < stages.size(); ++s) {
      stages[s].holders = {{workers[s]}};
      shape.in_flight.push_back(static_cast<int32_t>(1 + random.below(2 * count)));
    }
    for (size_t w = stages.size(); w < workers.size(); ++w) {
      Stage& stage = stages[at(static_cast<int32_t>(random.below(count)))];
      const bool idle = random.below(3) == 0;
      if (!idle && stage.holders.size() < at(shape.micros)) stage.holders.push_back({workers[w]});
    }
    shape.split_backward = random.below(2) == 0;
    shape.staggered = random.below(2) == 0;
    shape.evaluation_micros = static_cast<int32_t>(random.below(4));
    for (int32_t w = 0; w < shape.workers; ++w) {
      shape.fitting.push_back(static_cast<int32_t>(1 + random.below(4)));
    }
    const auto plan = make_stage_plan(stages, shape);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    Cluster cluster = uniform_cluster(shape.workers, {std::chrono::microseconds(50), 1e9});
    const auto timeline = price(plan.value(), equal_layers(2 * count), cluster, {});
    ASSERT_TRUE(timeline.ok()) << timeline.error().message;
    EXPECT_GE(timeline.value().makespan, timeline.value().lower_bound);
    for (size_t s = 0; s < stages.size(); ++s) {
      for (const WorkerId holder : stages[s].holders) {
        const double peak = timeline.value().peak_micros[at(holder.value)];
        EXPECT_LE(peak, std::max(1, shape.in_flight[s]));
        EXPECT_LE(peak, shape.fitting[at(holder.value)]);
      }
    }
  }
}

TEST(StagePlan, RefusesStagesThatCannotBe) {
  StageShape shape;
  shape.workers = 4;
  shape.micros = 4;
  EXPECT_EQ(refusal({}, shape), "a plan needs at least one stage");
  std::vector<Stage> stages = stages_with({2, 2});
  EXPECT_EQ(refusal(stages, shape), "accepted");
  stages[1].layer_first = 2;
  EXPECT_EQ(refusal(stages, shape),
            "stage 1 has layers 2 to 2 (end excluded): expected at least one layer, from 1 on");
  stages = stages_with({2, 2});
  stages[1].holders[0] = {1};
  EXPECT_EQ(refusal(stages, shape), "worker 1 holds stage 0 and stage 1: a worker holds one stage");
  stages[1].holders = {};
  EXPECT_EQ(refusal(stages, shape), "stage 1 has no holder: give it a worker");
  stages[1].holders = {{4}};
  EXPECT_EQ(refusal(stages, shape), "stage 1 is held by worker 4: expected workers 0 to 3");
  shape.micros = 1;
  EXPECT_EQ(refusal(stages_with({2, 2}), shape),
            "stage 0 has 2 holders for 1 micro-batch: a holder without a micro-batch does nothing; "
            "ask for more micro-batches or fewer holders");
}

}  // namespace
}  // namespace tenuto
