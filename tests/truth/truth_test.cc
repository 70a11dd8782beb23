// Truth: a pipelined, data-parallel run computes what one plain libtorch process computes.
//
// One pipeline, untied head: the same additions in the same order, so the same bits. Several
// pipelines, or a tied weight over several stages: gradients are summed in another order. Each step
// then computes what the plain process would compute with every gradient element moved by at most
// the bound in plain_reference.h. So the run must lie within the spread of plain runs that are
// moved by exactly that bound in random directions, plus the rounding of the results: each run
// rounds a parameter once a step, by at most u |parameter| (u = 2^-24), and a loss once, by at most
// u |loss|.
//
// TENUTO_TRUTH_DEVICE=cuda runs all of it on an accelerator.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "adapt/adapt.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/layer_move.h"
#include "plan/fine_stages.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "plan/routings.h"
#include "sanitized.h"
#include "truth/bound.h"
#include "truth/cluster.h"
#include "truth/plain_reference.h"
#include "world/fault.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// Sanitizers look for wrong uses of memory. More steps would only repeat them.
constexpr int64_t kSteps = kSanitized ? 6 : 20;

// Each test has its own folder, removed at its end.
class Truth : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / cat("tenuto-truth-", getpid());
    fs::create_directories(folder_);
    text_ = folder_ / "text.txt";
    std::ofstream out(text_);
    // Sentences of numbers: enough structure to learn, nothing random.
    for (int i = 0; i < 4000; ++i)
      out << i << " and " << i * 7 % 101 << " make " << i * i % 97 << ".\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  // 8 micro-batches a step whatever the layout.
  Job job(int32_t pipelines, int32_t stages, const std::string& order) const {
    Job job;
    job.steps = kSteps;
    job.seed = 5;
    job.data.paths = {text_.string()};
    job.model.layers = 3;
    job.model.width = 32;
    job.model.heads = 2;
    job.model.sequence = 16;
    job.model.dropout = 0.1;
    job.optimizer.warm_up_steps = 5;
    job.parallel.pipelines = pipelines;
    job.parallel.stages = stages;
    job.parallel.micros = 8 / pipelines;
    job.parallel.micro_rows = 2;
    job.parallel.order = order;
    job.parallel.split_backward = find_card(order)->splits_backward;
    if (const char* device = std::getenv("TENUTO_TRUTH_DEVICE")) job.device.kind = device;
    return job;
  }
  std::string place(const std::string& name) const { return (folder_ / name).string(); }

 private:
  fs::path folder_, text_;
};

void expect_same_bits(const PlainResult& plain, const std::vector<double>& losses,
                      const Parameters& parameters) {
  ASSERT_EQ(plain.losses.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(plain.losses[i], losses[i]) << "step " << i;
  ASSERT_EQ(plain.parameters.size(), parameters.size());
  for (const auto& [name, values] : plain.parameters) {
    ASSERT_TRUE(parameters.contains(name)) << name;
    const std::vector<float>& found = parameters.at(name);
    ASSERT_EQ(values.size(), found.size()) << name;
    EXPECT_EQ(std::memcmp(values.data(), found.data(), values.size() * sizeof(float)), 0) << name;
  }
}

const char* const kOrders[] = {"gpipe", "1f1b", "zb-h1"};

// The model has 5 layers: 4 workers with one stage each, or 2 workers with two.
int32_t workers_of(const OrderCard& card) { return card.chunks == 1 ? 4 : 2; }

TEST_F(Truth, OnePipelineIsBitwiseEqual) {
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  for (const int32_t stages : {1, 4}) {
    for (const char* order : kOrders) {
      SCOPED_TRACE(cat(order, " 1x", stages));
      const ClusterResult run = run_cluster(job(1, stages, order), 0, kSteps, {}, place("one"));
      expect_same_bits(plain, run.losses, read_parameters(run.shards));
    }
  }
}

TEST_F(Truth, EveryOrderIsBitwiseEqual) {
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  for (const OrderCard& card : order_cards()) {
    for (const char* dispatch : {"ready", "listed"}) {
      if (kSanitized && dispatch == std::string_view("listed")) continue;
      SCOPED_TRACE(cat(card.name, " ", dispatch));
      Job own = job(1, workers_of(card), card.name);
      own.parallel.dispatch = dispatch;
      const ClusterResult run = run_cluster(own, 0, kSteps, {}, place("order"));
      expect_same_bits(plain, run.losses, read_parameters(run.shards));
    }
  }
}

// Values that never leave a worker, and workers that a micro-batch visits more than once.
TEST_F(Truth, SeveralStagesOfOneWorkerAreBitwiseEqual) {
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  for (const auto& [stages, chunks, order] :
       {std::tuple{1, 2, "zb-v"}, {1, 5, "interleaved"}, {1, 3, "interleaved-zb"}}) {
    SCOPED_TRACE(cat(order, " 1x", stages, "x", chunks));
    Job own = job(1, stages, order);
    own.parallel.chunks = chunks;
    const ClusterResult run = run_cluster(own, 0, kSteps, {}, place("chunks"));
    expect_same_bits(plain, run.losses, read_parameters(run.shards));
  }
}

// Forwards that run twice, in all stages or in some, with dropout.
TEST_F(Truth, StagesThatRecomputeAreBitwiseEqual) {
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  for (const auto& [stages, chunks, order] :
       {std::tuple{1, 1, "1f1b"}, {4, 1, "gpipe"}, {4, 1, "zb-h1"}, {2, 2, "zb-v"}}) {
    Job own = job(1, stages, order);
    own.parallel.chunks = chunks;
    for (const size_t every : {1U, 2U}) {
      SCOPED_TRACE(cat(order, " 1x", stages, ", one stage of ", every));
      Plan plan = plan_of(own);
      for (size_t s = 0; s < plan.stages.size(); s += every) plan.stages[s].recompute = true;
      const ClusterResult run = run_cluster(own, plan, 0, kSteps, {}, place("again"));
      expect_same_bits(plain, run.losses, read_parameters(run.shards));
    }
  }
}

// The same where there is no plain run with the same bits: as without recomputation.
TEST_F(Truth, RecomputationChangesNoBitOfOtherRuns) {
  Job low = job(1, 2, "1f1b"), low_split = job(2, 2, "zb-h1"), tied = job(2, 2, "1f1b");
  low.device.precision = low_split.device.precision = "bf16";
  tied.model.tied = true;
  Job ahead = job(1, 2, "1f1b");
  ahead.parallel.optimizer = "staggered";
  ahead.optimizer.clip = 0.9;
  for (const Job& own : {low, low_split, tied, ahead}) {
    const Plan plan = plan_of(own);
    Plan again = plan;
    for (Stage& stage : again.stages) stage.recompute = true;
    const ClusterResult keeping = run_cluster(own, plan, 0, kSteps, {}, place("keeping"));
    const Parameters kept = read_parameters(keeping.shards);
    const ClusterResult run = run_cluster(own, again, 0, kSteps, {}, place("again"));
    EXPECT_EQ(run.losses, keeping.losses);
    EXPECT_EQ(read_parameters(run.shards), kept);
  }
}

// Each layer is a stage of its own, also after layers have moved.
TEST_F(Truth, FineStagesAreBitwiseEqual) {
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  for (const char* order : {"1f1b", "zb-v"}) {
    SCOPED_TRACE(order);
    const Job own = job(1, 2, order);
    const Plan fine = with_fine_stages(plan_of(own)).value();
    const ClusterResult run = run_cluster(own, fine, 0, kSteps, {}, place("fine"));
    expect_same_bits(plain, run.losses, read_parameters(run.shards));
    std::vector<std::vector<WorkerId>> holders;
    for (const Stage& stage : fine.stages) holders.push_back(stage.holders);
    holders[1] = {{1 - holders[1].front().value}};
    const Plan moved = with_holders(fine, holders);
    ASSERT_TRUE(check(moved).ok());
    const ClusterResult other = run_cluster(own, moved, 0, kSteps, {}, place("moved"));
    expect_same_bits(plain, other.losses, read_parameters(other.shards));
  }
}

// With reproducible sums: the same bits wherever the layers are, with several holders of each.
TEST_F(Truth, ReproducibleSumsOfFineStages) {
  Job own = job(2, 2, "zb-h1");
  own.model.tied = true;
  own.resilience.numerics = "reproducible";
  const Plan coarse = plan_of(own);
  const ClusterResult first = run_cluster(own, coarse, 0, kSteps, {}, place("coarse"));
  const Plan fine = with_fine_stages(coarse).value();
  std::vector<std::vector<WorkerId>> holders;
  for (const Stage& stage : fine.stages) holders.push_back(stage.holders);
  holders[1] = {{1}, holders[1].back()};
  for (const Plan& plan : {fine, with_holders(fine, holders)}) {
    ASSERT_TRUE(check(plan).ok());
    const ClusterResult run = run_cluster(own, plan, 0, kSteps, {}, place("fine"));
    EXPECT_EQ(run.losses, first.losses);
    EXPECT_EQ(read_parameters(run.shards), read_parameters(first.shards));
  }
}

// So many that a layer's state arrives: each step brings a part of it.
constexpr int64_t kMovingSteps = 20;

// A run in which layers move after some steps, as docs/decisions/070 says: first the receivers take
// part in the updates and get the state in parts, then they run the layers.
std::vector<PlannedSteps> moving(const Plan& plan, const std::vector<LayerMove>& moves) {
  std::vector<std::vector<WorkerId>> receivers(plan.stages.size()), holders;
  for (const LayerMove& move : moves) {
    receivers[static_cast<size_t>(move.stage.value)].push_back(move.to);
  }
  std::vector<Stage> after = plan.stages;
  move_layers(after, moves);
  for (const Stage& stage : after) holders.push_back(stage.holders);
  return {{plan, 0},
          {with_joiners(with_update(plan, false), receivers), kMovingSteps / 4, moves},
          {with_holders(plan, holders), kMovingSteps * 3 / 4}};
}

void expect_right(const std::vector<PlannedSteps>& phases) {
  for (const PlannedSteps& phase : phases) ASSERT_TRUE(check(phase.plan).ok());
}

// One pipeline: the same bits as the plain run, with every optimizer and both kinds of update.
TEST_F(Truth, LayersThatMoveInARunAreBitwiseEqual) {
  for (const char* kind : {"adamw", "sgd"}) {
    Job own = job(1, 2, "zb-h1");
    own.steps = kMovingSteps;
    own.optimizer.kind = kind;
    std::vector<double> norms = run_plain(own).norms;
    std::nth_element(norms.begin(), norms.begin() + kMovingSteps / 2, norms.end());
    own.optimizer.clip = norms[kMovingSteps / 2];
    const PlainResult plain = run_plain(own);
    for (const char* optimizer : {"barrier", "staggered"}) {
      SCOPED_TRACE(cat(kind, " ", optimizer));
      own.parallel.optimizer = optimizer;
      const Plan fine = with_fine_stages(plan_of(own)).value();
      const WorkerId donor = fine.stages[1].holders[0];
      const std::vector<PlannedSteps> phases = moving(fine, {{{1}, donor, {1 - donor.value}}});
      expect_right(phases);
      const ClusterResult run = run_phases(own, phases, kMovingSteps, place("moving"));
      expect_same_bits(plain, run.losses, read_parameters(run.shards));
    }
  }
}

// Several pipelines with reproducible sums: the same bits as the run in which nothing moves. They
// are within the bound around the plain run. Two layers move at once, between three workers.
TEST_F(Truth, ReproducibleSumsWhileLayersMove) {
  Job own = job(2, 3, "1f1b");
  own.steps = kMovingSteps;
  own.model.layers = 6;
  own.resilience.numerics = "reproducible";
  Job alone = own;
  alone.parallel = job(1, 1, "1f1b").parallel;
  const PlainResult plain = run_plain(alone);
  const SumSpread spread = spread_of(alone, plain, 1);
  for (const char* optimizer : {"barrier", "staggered"}) {
    SCOPED_TRACE(optimizer);
    own.parallel.optimizer = optimizer;
    const ClusterResult still = run_cluster(own, 0, kMovingSteps, {}, place("still"));
    const Plan fine = with_fine_stages(plan_of(own)).value();
    const auto last_of = [&](WorkerId worker) { return stages_of(fine.stages, worker).back(); };
    const std::vector<PlannedSteps> phases =
        moving(fine, {{last_of({0}), {0}, {1}}, {last_of({1}), {1}, {2}}});
    expect_right(phases);
    const ClusterResult run = run_phases(own, phases, kMovingSteps, place("moving"));
    EXPECT_EQ(run.losses, still.losses);
    EXPECT_EQ(read_parameters(run.shards), read_parameters(still.shards));
    expect_within(spread, plain, run.losses, read_parameters(run.shards));
  }
}

TEST_F(Truth, MomentumIsBitwiseEqual) {
  Job momentum = job(1, 2, "zb-h1");
  momentum.optimizer.kind = "sgd";
  momentum.optimizer.learning_rate = 0.1;
  const PlainResult plain = run_plain(momentum);
  const ClusterResult run = run_cluster(momentum, 0, kSteps, {}, place("momentum"));
  expect_same_bits(plain, run.losses, read_parameters(run.shards));
}

// Optimizer steps are taken before the norm is known and undone if it is clipped: the same bits as
// with waiting. The clip limit is the median norm, so that some steps are kept and others are not.
TEST_F(Truth, StepsAheadOfTheNormAreBitwiseEqual) {
  for (const char* kind : {"adamw", "sgd"}) {
    Job own = job(1, 1, "1f1b");
    own.optimizer.kind = kind;
    std::vector<double> norms = run_plain(own).norms;
    std::nth_element(norms.begin(), norms.begin() + kSteps / 2, norms.end());
    own.optimizer.clip = norms[kSteps / 2];
    const PlainResult plain = run_plain(own);
    const auto clipped = std::count_if(plain.norms.begin(), plain.norms.end(),
                                       [&](double norm) { return norm > own.optimizer.clip; });
    std::printf("    %s: %td of %zu steps are clipped\n", kind, clipped, plain.norms.size());
    EXPECT_GT(clipped, 0);
    EXPECT_LT(clipped, kSteps);
    own.parallel.optimizer = "staggered";
    for (const auto& [stages, order] : {std::pair{2, "1f1b"}, {4, "zb-h1"}, {2, "zb-v"}}) {
      SCOPED_TRACE(cat(kind, " ", order, " 1x", stages));
      own.parallel.stages = stages;
      own.parallel.order = order;
      own.parallel.split_backward = find_card(order)->splits_backward;
      const ClusterResult run = run_cluster(own, 0, kSteps, {}, place("ahead"));
      expect_same_bits(plain, run.losses, read_parameters(run.shards));
    }
    // Several pipelines, also with one worker missing: the same bits as with the barrier update.
    own.parallel.order = "zb-h1";
    own.parallel.split_backward = true;
    own.parallel.stages = own.parallel.pipelines = 2;
    own.parallel.micros = 4;
    const Plan whole = plan_of(own);
    for (const Plan& plan : {whole, without_workers(whole, {true, true, false, true}).value()}) {
      const ClusterResult run = run_cluster(own, plan, 0, kSteps, {}, place("ahead"));
      const ClusterResult waiting =
          run_cluster(own, with_update(plan, false), 0, kSteps, {}, place("waiting"));
      EXPECT_EQ(run.losses, waiting.losses);
      EXPECT_EQ(read_parameters(run.shards), read_parameters(waiting.shards));
    }
  }
}

TEST_F(Truth, SeveralPipelinesAreWithinTheBound) {
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  const SumSpread spread = spread_of(job(1, 1, "1f1b"), plain, 1);
  const auto run_one = [&](int32_t pipelines, int32_t stages, const std::string& order) {
    SCOPED_TRACE(cat(order, " ", pipelines, "x", stages));
    const Job own = job(pipelines, stages, order);
    const ClusterResult run = run_cluster(own, 0, kSteps, {}, place("several"));
    expect_within(spread, plain, run.losses, read_parameters(run.shards));
  };
  for (const OrderCard& card : order_cards()) run_one(2, workers_of(card), card.name);
  if (kSanitized) return;
  for (const char* order : kOrders) run_one(4, 2, order);
}

// Each all-reduce that a plan can use, with a late member and without: it adds in another order,
// within the same bound. All holders of a stage have the same bits (any of them may write the
// shard), and naming "ring" gives the ring.
TEST_F(Truth, EveryAllReduceIsWithinTheBound) {
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  const SumSpread spread = spread_of(job(1, 1, "1f1b"), plain, 1);
  for (const auto& [pipelines, stages] : {std::pair{4, 1}, {2, 2}, {8, 1}}) {
    if (kSanitized && pipelines != 4) continue;
    Job own = job(pipelines, stages, "1f1b");
    const Plan ring = plan_of(own);
    const ClusterResult by_ring = run_cluster(own, ring, 0, kSteps, {}, place("ring"));
    std::vector<std::pair<std::string, Plan>> plans;
    for (const char* name : {"ring", "halving", "tree", "direct", "late-one", "auto"}) {
      plans.emplace_back(name, with_all_reduce(ring, name));
    }
    plans.emplace_back("late 0",
                       with_summing(plans[5].second, {{0}},
                                    {"late-one", ring.stages[0].holders[0], 3 * pipelines + 1}));
    for (const auto& [name, plan] : plans) {
      SCOPED_TRACE(cat(name, " ", pipelines, "x", stages));
      ASSERT_TRUE(check(plan).ok()) << check(plan).error().message;
      const ClusterResult run = run_cluster(own, plan, 0, kSteps, {}, place("sums"));
      expect_within(spread, plain, run.losses, read_parameters(run.shards));
      if (name != "ring" && name != "auto") continue;
      EXPECT_EQ(run.losses, by_ring.losses);
      EXPECT_EQ(read_parameters(run.shards), read_parameters(by_ring.shards));
    }
  }
}

// Fixed-point sums are the same with every all-reduce.
TEST_F(Truth, ReproducibleSumsByEveryAllReduce) {
  Job own = job(4, 1, "1f1b");
  own.resilience.numerics = "reproducible";
  const Plan ring = plan_of(own);
  const ClusterResult by_ring = run_cluster(own, ring, 0, kSteps, {}, place("ring"));
  for (const char* name : {"halving", "tree", "direct", "late-one"}) {
    SCOPED_TRACE(name);
    const ClusterResult run =
        run_cluster(own, with_all_reduce(ring, name), 0, kSteps, {}, place("sums"));
    EXPECT_EQ(run.losses, by_ring.losses);
    EXPECT_EQ(read_parameters(run.shards), read_parameters(by_ring.shards));
  }
}

// With any absent workers and any routing: each micro-batch has its own data and dropout, and the
// sums include all micro-batches.
TEST_F(Truth, RoutedPlansAreWithinTheBound) {
  Random random(7);
  for (const bool tied : {true, false}) {
    if (kSanitized && !tied) continue;
    Job plain_job = job(1, 1, "1f1b");
    plain_job.model.tied = tied;
    const PlainResult plain = run_plain(plain_job);
    const SumSpread spread = spread_of(plain_job, plain, tied ? 2 : 1);
    for (const auto& [stages, dead] : {std::pair{2, 1}, {3, 4}, {4, 0}}) {
      if (kSanitized && stages == 3) continue;
      Job own = job(2, stages, "zb-h1");
      own.model.tied = tied;
      const Plan fresh = plan_of(own);
      std::vector<bool> alive(static_cast<size_t>(own.worker_count()), true);
      alive[static_cast<size_t>(dead)] = false;
      auto even = without_workers(fresh, alive);
      ASSERT_TRUE(even.ok()) << even.error().message;
      alive.assign(alive.size(), true);
      alive.back() = false;
      Plan uneven = with_work(fresh, draw_work(fresh, alive, random));
      uneven.limits.clear();  // they are warm-up forwards of the old order
      for (const Plan& plan : {even.value(), uneven}) {
        SCOPED_TRACE(cat("2x", stages, tied ? " tied" : ""));
        ASSERT_TRUE(check(plan).ok()) << check(plan).error().message;
        const ClusterResult run = run_cluster(own, plan, 0, kSteps, {}, place("routed"));
        expect_within(spread, plain, run.losses, read_parameters(run.shards));
        const ClusterResult again = run_cluster(own, plan, 0, kSteps, {}, place("again"));
        EXPECT_EQ(run.losses, again.losses);
        EXPECT_EQ(read_parameters(run.shards), read_parameters(again.shards));
      }
    }
  }
}

Fault trouble_of(const char* kind, const char* worker, double speed) {
  Fault fault;
  fault.kind = kind;
  fault.worker = worker;
  fault.speed = speed;
  return fault;
}

// Dead workers, slow workers and slow links: each alone, in pairs, and all at once.
std::vector<std::pair<std::string, std::vector<Fault>>> mixtures() {
  const Fault dead = trouble_of("dead-worker", "0.1", 0);
  const Fault slow = trouble_of("slow-worker", "1.0", 0.5);
  Fault link;  // of pipeline 1
  link.latency_ms = 3;
  return {{"dead", {dead}},
          {"slow", {slow}},
          {"link", {link}},
          {"dead, slow", {dead, slow}},
          {"dead, link", {dead, link}},
          {"slow, link", {slow, link}},
          {"dead, slow, link", {dead, slow, link}}};
}

// The plan that adapt() finds for the job on the cluster with its faults, if ops last a
// millisecond.
Plan adapted_plan(const Job& job) {
  const Plan fresh = plan_of(job);
  Model model;
  model.layers.resize(static_cast<size_t>(fresh.stages.back().layer_end));
  for (const Stage& stage : fresh.stages) {
    Layer& layer = model.layers[static_cast<size_t>(stage.layer_first)];
    layer.forward = layer.backward_input = layer.backward_weight = std::chrono::milliseconds(1);
  }
  const Cluster now = with_faults(cluster_of(job), job.faults, 0, job.parallel.stages);
  const auto adapted = adapt(fresh, model, now);
  EXPECT_TRUE(adapted.ok()) << adapted.error().message;
  EXPECT_TRUE(adapted.value().changed) << adapted.value().reason;
  return adapted.value().plan;
}

// The plans come from the search, and the faults act while they run. Under sanitizers all troubles
// at once on the smaller cluster are enough: the rest takes minutes there.
TEST_F(Truth, MixturesOfTroublesAreWithinTheBound) {
  std::vector<std::pair<int, int>> shapes = {{2, 2}};
  if (!kSanitized) shapes.emplace_back(3, 4);
  for (const auto& [pipelines, stages] : shapes) {
    Job plain_job = job(1, 1, "1f1b");
    plain_job.parallel.micros = 4 * pipelines;
    const PlainResult plain = run_plain(plain_job);
    const SumSpread spread = spread_of(plain_job, plain, 1);
    for (const auto& [name, faults] : mixtures()) {
      if (kSanitized && faults.size() < 3) continue;
      for (const char* order : {"1f1b", "zb-h1"}) {  // the backward whole, and split
        SCOPED_TRACE(cat(pipelines, "x", stages, " ", order, ", ", name));
        Job own = job(pipelines, stages, order);
        own.parallel.micros = 4;
        own.faults = faults;
        for (Fault& fault : own.faults) {
          if (is_of_worker(fault)) continue;
          fault.from = stages;  // from the first to the second stage of pipeline 1
          fault.to = stages + 1;
        }
        const Plan plan = adapted_plan(own);
        ASSERT_TRUE(check(plan).ok()) << check(plan).error().message;
        const ClusterResult run = run_cluster(own, plan, 0, kSteps, {}, place("mixture"));
        expect_within(spread, plain, run.losses, read_parameters(run.shards));
      }
    }
  }
}

// With sums in fixed point no number depends on the layout, the order, or the routing of
// micro-batches.
TEST_F(Truth, ReproducibleSumsHaveTheSameBitsEverywhere) {
  Random random(7);
  Job own = job(1, 1, "1f1b");
  own.resilience.numerics = "reproducible";
  const ClusterResult alone = run_cluster(own, 0, kSteps, {}, place("alone"));
  const Parameters parameters = read_parameters(alone.shards);
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  expect_within(spread_of(own, plain, 1), plain, alone.losses, parameters);
  for (const auto& [pipelines, stages, order] :
       {std::tuple{1, 4, "zb-h1"}, {2, 2, "1f1b"}, {4, 1, "gpipe"}, {2, 4, "zb-h2"}}) {
    SCOPED_TRACE(cat(order, " ", pipelines, "x", stages));
    own.parallel.pipelines = pipelines;
    own.parallel.stages = stages;
    own.parallel.micros = 8 / pipelines;
    own.parallel.order = order;
    own.parallel.split_backward = find_card(order)->splits_backward;
    std::vector<Plan> plans = {plan_of(own)};
    if (pipelines > 1) {
      const std::vector<bool> alive = draw_alive(plans[0], 0.7, random);
      plans.push_back(without_workers(plans[0], alive).value());
      plans.push_back(with_update(plans[1], true));
    }
    for (const Plan& plan : plans) {
      const ClusterResult run = run_cluster(own, plan, 0, kSteps, {}, place("reproducible"));
      EXPECT_EQ(run.losses, alone.losses);
      EXPECT_EQ(read_parameters(run.shards), parameters);
    }
  }
}

// The two gradients of the tied weight are summed separately.
TEST_F(Truth, ReproducibleSumsOfATiedHead) {
  Job own = job(2, 2, "zb-h1");
  own.model.tied = true;
  own.resilience.numerics = "reproducible";
  const Plan whole = plan_of(own);
  const ClusterResult first = run_cluster(own, whole, 0, kSteps, {}, place("tied"));
  const Plan routed = without_workers(whole, {true, true, true, false}).value();
  const ClusterResult second = run_cluster(own, routed, 0, kSteps, {}, place("routed"));
  EXPECT_EQ(second.losses, first.losses);
  EXPECT_EQ(read_parameters(second.shards), read_parameters(first.shards));
}

TEST_F(Truth, TiedHeadIsWithinTheBound) {
  Job tied = job(1, 1, "1f1b");
  tied.model.tied = true;
  const PlainResult plain = run_plain(tied);
  const ClusterResult alone = run_cluster(tied, 0, kSteps, {}, place("tied"));
  const SumSpread spread = spread_of(tied, plain, 2);
  expect_within(spread, plain, alone.losses, read_parameters(alone.shards));
  for (const auto& [pipelines, stages] : {std::pair{1, 4}, {2, 2}, {2, 4}, {4, 2}}) {
    SCOPED_TRACE(cat(pipelines, "x", stages));
    Job own = job(pipelines, stages, "zb-h1");
    own.model.tied = true;
    const ClusterResult run = run_cluster(own, 0, kSteps, {}, place("tied"));
    expect_within(spread, plain, run.losses, read_parameters(run.shards));
  }
}

TEST_F(Truth, ResumedOnAnotherLayoutContinuesWithTheSameNumbers) {
  const PlainResult plain = run_plain(job(1, 1, "1f1b"));
  const ClusterResult first = run_cluster(job(1, 4, "zb-h1"), 0, kSteps / 2, {}, place("first"));
  for (const auto& [stages, order] :
       {std::pair{1, "1f1b"}, {2, "gpipe"}, {4, "1f1b"}, {2, "zb-v"}}) {
    SCOPED_TRACE(cat(order, " 1x", stages));
    const ClusterResult second =
        run_cluster(job(1, stages, order), kSteps / 2, kSteps, first.shards, place("second"));
    std::vector<double> losses = first.losses;
    losses.insert(losses.end(), second.losses.begin(), second.losses.end());
    expect_same_bits(plain, losses, read_parameters(second.shards));
  }
  const SumSpread spread = spread_of(job(1, 1, "1f1b"), plain, 1);
  const ClusterResult wide =
      run_cluster(job(2, 2, "1f1b"), kSteps / 2, kSteps, first.shards, place("wide"));
  std::vector<double> losses = first.losses;
  losses.insert(losses.end(), wide.losses.begin(), wide.losses.end());
  expect_within(spread, plain, losses, read_parameters(wide.shards));
}

}  // namespace
}  // namespace tenuto
