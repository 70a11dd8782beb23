// The lower bound on the step of every layout, compared with the best of all layouts of tiny
// problems, and with published bounds and layouts of larger ones.
#include "adapt/layout/layout_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "adapt/layout/baseline.h"
#include "adapt/layout/chain_data.h"
#include "adapt/layout/exact_layout.h"
#include "adapt/layout/random_chain.h"
#include "base/random.h"
#include "sanitized.h"

namespace tenuto {
namespace {

constexpr double kRounding = 1e-9;

double bound_of(const PlannedChain& chain) {
  return least_step(LayoutProblem(chain.model, chain.cluster, chain.settings));
}

double best_of(const PlannedChain& chain) {
  return exact_layout(chain.model, chain.cluster, chain.settings).makespan;
}

void draw_speeds(Cluster& cluster, uint64_t seed) {
  Random random(mix(seed, 1));
  for (Worker& worker : cluster.workers) {
    worker.speed = 0.25 * static_cast<double>(1 + random.below(4));
  }
}

// All devices work all the time, without a transfer.
double work_bound(const PlannedChain& chain) {
  const LayoutProblem problem(chain.model, chain.cluster, chain.settings);
  const Layers all{0, problem.layer_count()};
  double speed = 0;
  for (int32_t device = 0; device < problem.device_count(); ++device) {
    speed += problem.speed(device);
  }
  return chain.settings.micros * (problem.forward(all) + problem.backward(all)) / speed;
}

// How the bound compares with the best layouts of many problems.
struct Comparison {
  double sum = 0, worst = 1;
  int count = 0, equal = 0;
  double mean() const { return sum / count; }
};

Comparison compare(bool half_duplex, bool speeds, bool constants, uint64_t count) {
  Comparison result;
  for (uint64_t seed = 0; seed < count; ++seed) {
    PlannedChain chain = random_chain(seed, half_duplex);
    if (speeds) draw_speeds(chain.cluster, seed);
    if (constants) chain = with_constants(std::move(chain), seed);
    const double best = best_of(chain), bound = bound_of(chain);
    EXPECT_LE(bound, best * (1 + kRounding)) << "seed " << seed;
    EXPECT_GE(bound, work_bound(chain) * (1 - kRounding)) << "seed " << seed;
    const double ratio = bound / best;
    result.sum += ratio;
    result.worst = std::min(result.worst, ratio);
    result.equal += ratio > 1 - 1e-6 ? 1 : 0;
    ++result.count;
  }
  std::printf("%s duplex, %s speeds%s: %.3f of the best step, the worst %.3f, equal in %d of %d\n",
              half_duplex ? "half" : "full", speeds ? "unequal" : "equal",
              constants ? ", with constants" : "", result.mean(), result.worst, result.equal,
              result.count);
  return result;
}

TEST(LeastStep, IsNearlyTheBestStepOfTinyProblems) {
  const uint64_t count = kSanitized ? 200 : 2'000;
  for (const bool half_duplex : {false, true}) {
    const Comparison equal = compare(half_duplex, false, false, count);
    EXPECT_GE(equal.mean(), 0.96);
    EXPECT_GE(equal.equal, equal.count / 3);
    EXPECT_GE(compare(half_duplex, true, false, count).mean(), 0.85);
    // Constants of passes, and updates.
    EXPECT_GE(compare(half_duplex, false, true, count / 2).mean(), 0.95);
    EXPECT_GE(compare(half_duplex, true, true, count / 2).mean(), 0.85);
  }
}

// Devices and layers that no layout can use with profit. They leave the best step as it is, but the
// bound takes a form that is meant for larger problems.
PlannedChain padded(PlannedChain chain, int32_t layers, int32_t devices) {
  Cluster& cluster = chain.cluster;
  const Link useless{Duration{}, 1};
  for (int32_t i = 0; i < devices; ++i) {
    Worker worker;
    worker.speed = 1e-9;
    cluster.place.push_back(static_cast<int32_t>(cluster.between.size()));
    for (std::vector<Link>& row : cluster.between) row.push_back(useless);
    cluster.between.emplace_back(cluster.between.size() + 1, useless);
    cluster.workers.push_back(worker);
  }
  Layer empty;
  empty.activation = Bytes{1'000'000'000'000};
  chain.model.layers.insert(chain.model.layers.end(), static_cast<size_t>(layers), empty);
  return chain;
}

TEST(LeastStep, IsABoundInItsFormsForLargerProblems) {
  struct Padding {
    int32_t layers = 0, devices = 0;
    uint64_t count = 0;     // of problems
    double least_mean = 0;  // of bound / best step
  };
  for (const Padding& padding :
       {Padding{60, 0, 100, 0.95}, Padding{150, 30, 5, 0.8}, Padding{0, 66, 200, 0.65},
        Padding{900, 66, 20, 0.65}, Padding{6000, 0, 20, 0.65}}) {
    double sum = 0;
    const uint64_t count = kSanitized ? padding.count / 10 + 1 : padding.count;
    for (uint64_t seed = 0; seed < count; ++seed) {
      PlannedChain chain = random_chain(seed, seed % 2 == 1);
      if (seed % 4 >= 2) chain = with_constants(std::move(chain), seed);
      ASSERT_FALSE(chain.cluster.place.empty()) << "each device needs a place of its own";
      const double best = best_of(chain);
      const PlannedChain larger = padded(chain, padding.layers, padding.devices);
      const double bound = bound_of(larger);
      EXPECT_LE(bound, best * (1 + kRounding))
          << "seed " << seed << ", " << padding.layers << " layers and " << padding.devices
          << " devices more";
      EXPECT_GE(bound, work_bound(larger) * (1 - kRounding)) << "seed " << seed;
      sum += bound / best;
    }
    std::printf("%d layers, %d devices more: %.3f of the best step\n", padding.layers,
                padding.devices, sum / static_cast<double>(count));
    EXPECT_GE(sum / static_cast<double>(count), kSanitized ? 0.5 : padding.least_mean);
  }
}

// The published bound is the least bottleneck of all layouts, when any devices of a number are as
// well connected as the best ones of that number. Ours includes this, and the time to fill and to
// drain the pipeline.
TEST(LeastStep, IsAtOrAboveThePublishedBound) {
  for (const std::string& table : expected_tables()) {
    const std::vector<ExpectedRow> rows = expected_table(table);
    if (rows.empty()) GTEST_SKIP() << "the shared data is absent: table " << table;
    for (const ExpectedRow& row : rows) {
      const std::optional<Model> model = shared_chain(row.chain);
      const std::optional<Cluster> cluster = shared_topology(topology_of(table));
      ASSERT_TRUE(model && cluster) << row.chain << ", " << table;
      LayoutSettings settings;
      settings.micros = micros_of(table);
      const double bound = least_step(LayoutProblem(*model, *cluster, settings)) / 1e6;
      EXPECT_GE(bound, row.bound_ms - 0.051) << row.chain << ", " << table;
      const double known = row.bound_ms * std::min({row.data_parallel, row.dapple, row.searched});
      EXPECT_LE(bound, known * 1.002) << row.chain << ", " << table;
    }
  }
}

// Larger problems in nodes: no baseline is below the bound.
TEST(LeastStep, IsNotAboveAnyBaseline) {
  for (const int32_t devices : {8, 24, 72}) {
    for (const int32_t layers : {12, 60}) {
      Random random(mix(static_cast<uint64_t>(devices), static_cast<uint64_t>(layers)));
      PlannedChain chain;
      for (int32_t i = 0; i < layers; ++i) {
        Layer layer;
        layer.forward = std::chrono::microseconds(100 + random.below(900));
        layer.backward_input = 2 * layer.forward;
        layer.activation = {random.below(4'000'000)};
        layer.parameters = {random.below(20'000'000)};
        chain.model.layers.push_back(layer);
      }
      chain.cluster = uniform_cluster(devices, {{}, 20e9});
      const auto nodes = static_cast<size_t>(devices / 4);
      chain.cluster.between.assign(nodes, std::vector<Link>(nodes, Link{Duration{}, 2e9}));
      for (size_t i = 0; i < nodes; ++i) chain.cluster.between[i][i].bytes_per_second = 20e9;
      for (int32_t i = 0; i < devices; ++i) chain.cluster.place.push_back(i / 4);
      chain.settings.micros = 16;
      for (const bool speeds : {false, true}) {
        if (speeds) draw_speeds(chain.cluster, 5);
        const LayoutProblem problem(chain.model, chain.cluster, chain.settings);
        const double bound = least_step(problem);
        for (const PlannerCard& card : planner_cards()) {
          if (card.planner == Planner::Tenuto) continue;
          const Result<PricedLayout> priced = baseline_layout(problem, card.planner);
          ASSERT_TRUE(priced.ok()) << card.name;
          EXPECT_LE(bound, priced.value().schedule.makespan * (1 + kRounding)) << card.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenuto
