#include "adapt/layout/in_turn.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "adapt/layout/all_layouts.h"
#include "adapt/layout/random_chain.h"
#include "base/longest_time.h"
#include "base/random.h"
#include "base/text.h"
#include "ir/check.h"
#include "plan/make_plan.h"
#include "plan/stage_plan.h"
#include "sim/price.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

Model random_model(Random& random, int32_t layers) {
  Model model;
  model.layers.resize(at(layers));
  for (Layer& layer : model.layers) {
    layer.forward = std::chrono::microseconds(200 + random.below(2000));
    layer.backward_input = 2 * layer.forward;
    layer.activation = layer.stash = {1000 + random.below(200'000)};
    layer.parameters = {random.below(400'000)};
  }
  model.step = std::chrono::microseconds(random.below(300));
  return model;
}

// Two nodes, a fast link within and a slow one between; workers have random speeds.
Cluster random_cluster(Random& random, int32_t workers) {
  Cluster cluster = uniform_cluster(workers, {});
  const Link fast{std::chrono::microseconds(5), 5e9}, slow{std::chrono::microseconds(40), 4e8};
  cluster.between = {{fast, slow}, {slow, fast}};
  for (int32_t w = 0; w < workers; ++w) {
    cluster.place.push_back(static_cast<int32_t>(random.below(2)));
    cluster.workers[at(w)].speed = random.below(3) == 0 ? 0.5 : 1;
  }
  return cluster;
}

// The plan of the best layouts.
Result<InTurnPlan> plan_of(const Model& model, const Cluster& cluster,
                           const InTurnSettings& settings) {
  const LayoutProblem problem(model, cluster, settings.layout);
  const auto search = search_layout(problem);
  if (!search.ok()) return search.error();
  return plan_in_turn(model, cluster, settings, search.value().shapes);
}

TEST(InTurn, PlansAreRightAndPricedAsTheySay) {
  for (uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const Model model = random_model(random, static_cast<int32_t>(3 + random.below(8)));
    const auto workers = static_cast<int32_t>(2 + random.below(5));
    Cluster cluster = random_cluster(random, workers);
    const bool dead = workers > 2 && random.below(3) == 0;
    if (dead) cluster.workers[1].alive = false;
    InTurnSettings settings;
    settings.layout.micros = static_cast<int32_t>(4 + random.below(12));
    if (random.below(3) != 0) settings.split_backward = random.below(2) == 0;
    settings.pipelines = random.below(4) == 0;
    settings.evaluation_micros = 2;
    const auto made = plan_of(model, cluster, settings);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const Plan& plan = made.value().plan;
    const Status right = check(plan);
    EXPECT_TRUE(right.ok()) << right.error().message;
    const auto timeline = price(plan, model, cluster);
    ASSERT_TRUE(timeline.ok()) << timeline.error().message;
    EXPECT_EQ(timeline.value().makespan, made.value().step);
    EXPECT_LE(made.value().lower_bound, made.value().step);
    EXPECT_EQ(plan.stages.back().layer_end, static_cast<int32_t>(model.layers.size()));
    EXPECT_EQ(plan.schedule.micro_count, settings.layout.micros);
    EXPECT_EQ(plan.evaluation.micro_count, 2);
    for (const Stage& stage : plan.stages) {
      for (const WorkerId holder : stage.holders) EXPECT_FALSE(dead && holder.value == 1);
    }
    const auto again = plan_of(model, cluster, settings);
    EXPECT_EQ(again.value().plan, plan);
  }
}

// A model of which each layer's weight gradient has a time of its own.
Model split_model(Random& random, int32_t layers) {
  Model model = random_model(random, layers);
  for (Layer& layer : model.layers) layer.backward_input = layer.backward_weight = layer.forward;
  return model;
}

TEST(InTurn, MoreChangesAreNeverWorse) {
  int shorter = 0;
  for (uint64_t seed = 100; seed < 130; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(seed);
    const auto layers = static_cast<int32_t>(3 + random.below(8));
    const Model model = seed % 2 == 0 ? random_model(random, layers) : split_model(random, layers);
    const Cluster cluster = random_cluster(random, static_cast<int32_t>(2 + random.below(6)));
    InTurnSettings settings;
    settings.layout.micros = static_cast<int32_t>(4 + random.below(12));
    const auto all = plan_of(model, cluster, settings);
    settings.effort.changes = false;
    const auto cuts = plan_of(model, cluster, settings);
    settings.split_backward = false;
    const auto whole = plan_of(model, cluster, settings);
    ASSERT_TRUE(all.ok() && cuts.ok() && whole.ok());
    EXPECT_LE(all.value().step, cuts.value().step);
    shorter += all.value().step < cuts.value().step ? 1 : 0;
    settings.pipelines = true;
    settings.split_backward = std::nullopt;
    const auto pipelines = plan_of(model, cluster, settings);
    if (!pipelines.ok()) continue;
    for (const Stage& stage : pipelines.value().plan.stages) {
      EXPECT_EQ(stage.holders.size(), pipelines.value().plan.stages.front().holders.size());
    }
  }
  EXPECT_GT(shorter, 5);
}

// All layouts on all orders of so few devices, each with every number of micro-batches in flight.
Duration best_of_all(const PlannedChain& it) {
  std::vector<WorkerId> order;
  for (int32_t w = 0; w < static_cast<int32_t>(it.cluster.workers.size()); ++w) {
    order.push_back({w});
  }
  std::vector<int32_t> counts;
  for (size_t n = 1; n <= order.size(); ++n) counts.push_back(static_cast<int32_t>(n));
  Duration best = kLongestTime;
  do {
    const LayoutSpace space{static_cast<int32_t>(it.model.layers.size()), order, 1, counts, true};
    for (const Layout& layout : all_layouts(space)) {
      for (int32_t most = 1; most <= it.settings.micros; ++most) {
        StageShape shape;
        shape.workers = static_cast<int32_t>(order.size());
        shape.micros = it.settings.micros;
        shape.in_flight.assign(layout.size(), most);
        const auto plan = make_stage_plan(layout, shape);
        if (!plan.ok()) continue;
        const auto timeline = price(plan.value(), it.model, it.cluster);
        if (timeline.ok()) best = std::min(best, timeline.value().makespan);
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(InTurn, FindsTheBestOfSmallProblems) {
  double sum = 0;
  int count = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    const PlannedChain it = random_chain(seed, false);
    if (it.cluster.workers.size() > 3) continue;
    InTurnSettings settings;
    settings.layout = it.settings;
    const auto made = plan_of(it.model, it.cluster, settings);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const Duration best = best_of_all(it);
    EXPECT_LE(made.value().lower_bound, best);
    const double ratio = to_milliseconds(made.value().step) / to_milliseconds(best);
    EXPECT_LE(ratio, 1.1);
    sum += ratio;
    ++count;
  }
  ASSERT_GT(count, 20);
  EXPECT_LE(sum / count, 1.005);
}

// With few micro-batches and links that cost nothing, several stages for each worker are faster.
TEST(InTurn, WorkersHoldSeveralStagesWhereThatIsFaster) {
  Model model;
  model.layers.resize(8);
  for (Layer& layer : model.layers) {
    layer.forward = std::chrono::milliseconds(1);
    layer.backward_input = std::chrono::milliseconds(2);
    layer.activation = layer.stash = {1000};
    layer.parameters = {1'000'000'000};
  }
  Cluster cluster = uniform_cluster(4, {std::chrono::microseconds(1), 1e9});
  InTurnSettings settings;
  settings.layout.micros = 4;
  const auto made = plan_of(model, cluster, settings);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made.value().plan.stages.size(), 8U);
  EXPECT_EQ(stages_of(made.value().plan.stages, {0}).size(), 2U);
  // 4 micro-batches of 6 ms each, and 3/2 of them to fill and drain.
  EXPECT_LT(made.value().step, std::chrono::milliseconds(34));
  // Two stages of a worker hold more micro-batches than one.
  for (Worker& worker : cluster.workers) worker.memory = {8'000'000'000 + 12'000};
  const auto limited = plan_of(model, cluster, settings);
  ASSERT_TRUE(limited.ok()) << limited.error().message;
  EXPECT_GE(limited.value().step, made.value().step);
}

TEST(InTurn, WeightGradientsThatHaveATimeAreSplit) {
  Model model;
  model.layers.resize(4);
  for (Layer& layer : model.layers) {
    layer.forward = layer.backward_input = layer.backward_weight = std::chrono::milliseconds(1);
    layer.activation = layer.stash = {1000};
    layer.parameters = {1'000'000'000};
  }
  const Cluster cluster = uniform_cluster(4, {std::chrono::microseconds(1), 1e9});
  InTurnSettings settings;
  settings.layout.micros = 8;
  const auto made = plan_of(model, cluster, settings);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(made.value().plan.split_backward);
  settings.split_backward = false;
  const auto whole = plan_of(model, cluster, settings);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_LT(made.value().step, whole.value().step);
}

// A large layer at the end needs more workers than the others have together.
TEST(InTurn, UnequalLayersGetUnequalNumbersOfWorkers) {
  Model model;
  model.layers.resize(4);
  for (Layer& layer : model.layers) {
    layer.forward = std::chrono::milliseconds(1);
    layer.backward_input = std::chrono::milliseconds(2);
    layer.activation = {1000};
    layer.parameters = {40'000'000};
  }
  model.layers.back().forward *= 9;
  model.layers.back().backward_input *= 9;
  model.layers.back().parameters = {1000};
  const Cluster cluster = uniform_cluster(4, {std::chrono::microseconds(1), 2e9});
  InTurnSettings settings;
  settings.layout.micros = 24;
  const auto made = plan_of(model, cluster, settings);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made.value().plan.stages.size(), 2U);
  EXPECT_EQ(made.value().plan.stages[0].holders.size(), 1U);
  EXPECT_EQ(made.value().plan.stages[1].holders.size(), 3U);
  Shape uniform;
  uniform.stages = 4;
  uniform.micros = 24;
  const auto plain = make_plan(uniform);
  ASSERT_TRUE(plain.ok());
  const auto timeline = price(plain.value(), model, cluster);
  ASSERT_TRUE(timeline.ok());
  EXPECT_LT(2 * made.value().step, timeline.value().makespan);
}

TEST(InTurn, MemoryIsKeptOrRefused) {
  Model model;
  model.layers.resize(4);
  for (Layer& layer : model.layers) {
    layer.forward = layer.backward_input = std::chrono::milliseconds(1);
    layer.activation = layer.stash = {1000};
    layer.parameters = {1000};
  }
  Cluster cluster = uniform_cluster(4, {});
  InTurnSettings settings;
  settings.layout.micros = 8;
  for (Worker& worker : cluster.workers) worker.memory = {4500};
  const auto refused = plan_of(model, cluster, settings);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("memory"), std::string::npos) << refused.error().message;
  for (Worker& worker : cluster.workers) worker.memory = {8000};
  const auto made = plan_of(model, cluster, settings);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto timeline = price(made.value().plan, model, cluster);
  ASSERT_TRUE(timeline.ok());
  for (size_t s = 0; s < made.value().plan.stages.size(); ++s) {
    const Stage& stage = made.value().plan.stages[s];
    const int32_t layers = stage.layer_end - stage.layer_first;
    for (const WorkerId holder : stage.holders) {
      const double held = timeline.value().peak_micros[at(holder.value)];
      const double input = s == 0 ? 0 : 1000;
      EXPECT_LE(
          4000 * layers + (stage.recompute ? input * held + 1000 * layers : 1000 * layers * held),
          8000);
    }
  }
}

TEST(InTurn, EqualPipelinesOfManyDevicesAreRefused) {
  Model model;
  model.layers.resize(2);
  for (Layer& layer : model.layers) layer.forward = layer.backward_input = Duration(1000);
  InTurnSettings settings;
  settings.pipelines = true;
  const auto made = plan_in_turn(model, uniform_cluster(513, {}), settings, {});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "plans of equal pipelines are searched for 512 devices at most, found 513");
}

// Eight layers whose stash is ten times their output, with memory for two stashes of a stage: more
// micro-batches in flight are worth the forwards that run twice, or they are not.
TEST(InTurn, StagesRecomputeWhereThatShortensTheStep) {
  Model model;
  model.layers.resize(8);
  for (Layer& layer : model.layers) {
    layer.forward = std::chrono::milliseconds(1);
    layer.backward_input = std::chrono::milliseconds(4);
    layer.activation = {1000};
    layer.stash = {10'000};
    layer.parameters = {10};
  }
  Cluster cluster = uniform_cluster(4, {std::chrono::microseconds(50), 1e9});
  InTurnSettings settings;
  settings.layout.micros = 16;
  const Layout line = {{0, 2, {{0}}}, {2, 4, {{1}}}, {4, 6, {{2}}}, {6, 8, {{3}}}};
  const auto plan_with = [&](int64_t memory) {
    for (Worker& worker : cluster.workers) worker.memory = {memory};
    return plan_in_turn(model, cluster, settings, {line});
  };
  const auto roomy = plan_with(0);  // unlimited
  const auto tight = plan_with(45'000);
  ASSERT_TRUE(roomy.ok() && tight.ok());
  EXPECT_TRUE(recomputing(roomy.value().plan.stages).empty());
  EXPECT_FALSE(recomputing(tight.value().plan.stages).empty());
  EXPECT_LT(roomy.value().step, tight.value().step);
  PriceOptions options;
  options.bytes = true;
  options.weight_share = 0;  // a backward that is not split leaves nothing to keep
  const auto timeline = price(tight.value().plan, model, cluster, options);
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(timeline.value().makespan, tight.value().step);
  // Beside these bytes there are messages that arrive and leave.
  for (const Bytes peak : timeline.value().peak_bytes) EXPECT_LE(peak.count, 45'000 + 4 * 1000);
  // Without recomputation, each stage has as many micro-batches in flight as fit: two.
  StageShape shape;
  shape.workers = 4;
  shape.micros = 16;
  shape.in_flight = {2, 2, 2, 2};
  const auto keeping = make_stage_plan(line, shape);
  ASSERT_TRUE(keeping.ok());
  const auto longer = price(keeping.value(), model, cluster);
  ASSERT_TRUE(longer.ok());
  EXPECT_LT(tight.value().step, longer.value().makespan);
  // The same is found without a layout that fits.
  const auto alone = plan_in_turn(model, cluster, settings, {{{0, 8, {{0}, {1}, {2}, {3}}}}});
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  EXPECT_LE(alone.value().step, longer.value().makespan);
}

}  // namespace
}  // namespace tenuto
