#include "plan/looped_plan.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "ir/check.h"
#include "plan/make_plan.h"
#include "sim/price.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// One layer a stage; pipeline p's worker i is worker numbers[p S + i].
std::vector<Stage> loop(int32_t workers, int32_t chunks, const std::vector<int32_t>& numbers) {
  std::vector<Stage> stages;
  for (int32_t s = 0; s < workers * chunks; ++s) {
    Stage stage{s, s + 1, {}};
    for (size_t p = 0; p * at(workers) < numbers.size(); ++p) {
      stage.holders.push_back({numbers[p * at(workers) + at(s % workers)]});
    }
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
  }
  return model;
}

// On any workers the step is that of the named order, and idle workers do nothing.
TEST(LoopedPlan, IsTheNamedOrderOnOtherWorkers) {
  for (const int32_t chunks : {1, 2, 3}) {
    for (const bool wide : {false, true}) {
      SCOPED_TRACE(cat(chunks, " chunks, ", wide));
      StageShape shape;
      shape.workers = 7;
      shape.micros = 12;
      shape.evaluation_micros = 2;
      const std::vector<int32_t> numbers =
          wide ? std::vector<int32_t>{6, 2, 0, 1, 3, 4} : std::vector<int32_t>{5, 1, 3};
      const auto made = make_looped_plan(loop(3, chunks, numbers), chunks, Dispatch::Listed, shape);
      const auto ready = make_looped_plan(loop(3, chunks, numbers), chunks, Dispatch::Ready, shape);
      EXPECT_TRUE(ready.ok() && check(ready.value()).ok());
      ASSERT_TRUE(made.ok()) << made.error().message;
      EXPECT_TRUE(check(made.value()).ok());
      EXPECT_EQ(made.value().evaluation.micro_count, 2);
      EXPECT_TRUE(made.value().schedule.lists[wide ? 5 : 6].empty());
      EXPECT_EQ(stages_of(made.value().stages, {wide ? 6 : 5}).size(), at(chunks));
      const Model model = equal_layers(3 * chunks);
      const auto timeline = price(made.value(), model, uniform_cluster(7, {}));
      ASSERT_TRUE(timeline.ok()) << timeline.error().message;
      Shape named;
      named.stages = 3;
      named.pipelines = wide ? 2 : 1;
      named.micros = wide ? 6 : 12;
      named.chunks = chunks;
      named.order = chunks > 1 ? "interleaved" : "1f1b";
      const auto plain = make_plan(named);
      ASSERT_TRUE(plain.ok()) << plain.error().message;
      const auto wanted = price(plain.value(), model, uniform_cluster(6, {}));
      ASSERT_TRUE(wanted.ok());
      EXPECT_EQ(timeline.value().makespan, wanted.value().makespan);
    }
  }
}

TEST(LoopedPlan, RefusesPipelinesThatDoNotDivideTheMicroBatches) {
  StageShape shape;
  shape.workers = 4;
  shape.micros = 5;
  const auto refused = make_looped_plan(loop(2, 2, {0, 1, 2, 3}), 2, Dispatch::Ready, shape);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "2 pipelines for 5 micro-batches: expected a number that divides them");
}

}  // namespace
}  // namespace tenuto
