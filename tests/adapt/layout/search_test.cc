// The search for a layout: its result is consistent, never longer than the step of any other
// planner, and keeps the memory limits. How near it is to the optimum: see exact_layout_test.cc.
#include "adapt/layout/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "adapt/layout/random_chain.h"
#include "base/random.h"
#include "base/text.h"
#include "sanitized.h"
#include "world/cluster_file.h"

namespace tenuto {
namespace {

constexpr double kRounding = 1e-9;  // sums of the same numbers in another order differ by less

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Sizes of a random problem.
struct Sizes {
  int32_t layers = 1, devices = 1, micros = 1;
};

// Nodes of random sizes and rates, some devices slower, some not alive, some links slower.
PlannedChain random_problem(uint64_t seed, Sizes sizes, bool half_duplex) {
  Random random(mix(5, seed));
  const auto between = [&](double low, double high) {
    return low + (high - low) * random.uniform();
  };
  PlannedChain chain;
  for (int32_t l = 0; l < sizes.layers; ++l) {
    Layer layer;
    layer.forward = Duration(std::llround(between(1e6, 10e6)));
    layer.backward_input = Duration(std::llround(between(1e6, 20e6)));
    layer.activation = layer.stash = {std::llround(between(1e5, 3e7))};
    layer.parameters = {std::llround(between(0, 1e8))};
    chain.model.layers.push_back(layer);
  }
  chain.model.step = Duration(100'000);
  chain.cluster.workers.resize(at(sizes.devices));
  constexpr size_t kClasses = 4;
  chain.cluster.between.assign(kClasses, std::vector<Link>(kClasses));
  for (size_t one = 0; one < kClasses; ++one) {
    for (size_t other = 0; other < kClasses; ++other) {
      chain.cluster.between[one][other].bytes_per_second =
          one == other ? between(10e9, 50e9) : between(1e9, 10e9);
    }
  }
  for (Worker& worker : chain.cluster.workers) {
    chain.cluster.place.push_back(static_cast<int32_t>(random.below(kClasses)));
    if (random.below(4) == 0) worker.speed = between(0.4, 1.0);
    worker.alive = random.below(6) > 0;
  }
  chain.cluster.workers[0].alive = true;
  chain.cluster.exceptions[{WorkerId{0}, WorkerId{sizes.devices - 1}}].bytes_per_second = 0.5e9;
  chain.settings.micros = sizes.micros;
  chain.cluster.half_duplex = half_duplex;
  return chain;
}

Sizes random_sizes(uint64_t seed) {
  Random random(mix(6, seed));
  return {static_cast<int32_t>(2 + random.below(18)), static_cast<int32_t>(2 + random.below(9)),
          static_cast<int32_t>(1 + random.below(16))};
}

LayoutProblem problem_of(const PlannedChain& chain) {
  return {chain.model, chain.cluster, chain.settings};
}

// Less than the default, so that the tests are quick.
LayoutEffort small_effort() {
  LayoutEffort effort;
  effort.blocks = kSanitized ? 500'000 : 4'000'000;
  effort.layouts = 20'000;
  return effort;
}

// The layers are covered in order, and each device is alive and in one stage at most.
void expect_layout(const PlannedChain& chain, const Layout& layout) {
  int32_t next = 0;
  std::set<WorkerId> used;
  for (const Stage& stage : layout) {
    EXPECT_EQ(stage.layer_first, next);
    EXPECT_GT(stage.layer_end, stage.layer_first);
    next = stage.layer_end;
    EXPECT_FALSE(stage.holders.empty());
    for (const WorkerId holder : stage.holders) {
      EXPECT_TRUE(used.insert(holder).second) << "worker " << holder.value << " twice";
      EXPECT_TRUE(chain.cluster.workers[at(holder.value)].alive) << "worker " << holder.value;
    }
  }
  EXPECT_EQ(next, static_cast<int32_t>(chain.model.layers.size()));
}

// Loads and step are those of the layout and its order, within memory.
void expect_priced(const LayoutProblem& problem, const PricedLayout& priced) {
  const LayoutLoads loads = row_split_loads(problem, priced.layout);
  ASSERT_EQ(loads.stages.size(), priced.loads.stages.size());
  for (size_t n = 0; n < loads.stages.size(); ++n) {
    EXPECT_EQ(loads.stages[n].forward, priced.loads.stages[n].forward);
    EXPECT_EQ(loads.stages[n].backward, priced.loads.stages[n].backward);
    EXPECT_EQ(loads.stages[n].reduction, priced.loads.stages[n].reduction);
  }
  ASSERT_EQ(loads.links.size(), priced.loads.links.size());
  for (size_t n = 0; n < loads.links.size(); ++n) {
    EXPECT_EQ(loads.links[n].forward, priced.loads.links[n].forward);
  }
  const auto replayed = replay_blocks(loads, priced.schedule.order, priced.schedule.link_order);
  ASSERT_TRUE(replayed.has_value());
  EXPECT_NEAR(replayed->makespan, priced.schedule.makespan, kRounding * replayed->makespan);
  EXPECT_GE(priced.schedule.makespan, least_makespan(loads) * (1 - kRounding));
  for (size_t n = 0; n < priced.layout.size(); ++n) {
    const double need = stage_memory(problem, priced.layout[n], priced.schedule.in_flight[n]);
    for (const WorkerId holder : priced.layout[n].holders) {
      EXPECT_LE(need, problem.memory(problem.device(holder))) << "stage " << n;
    }
  }
}

void expect_found(const PlannedChain& chain, const LayoutSearch& found) {
  const LayoutProblem problem = problem_of(chain);
  expect_layout(chain, found.best.layout);
  expect_priced(problem, found.best);
  EXPECT_LE(found.lower_bound, found.best.schedule.makespan * (1 + kRounding));
  EXPECT_FALSE(found.how.empty());
  EXPECT_GT(found.priced, 0);
  ASSERT_FALSE(found.shapes.empty());
  EXPECT_EQ(found.shapes.front(), found.best.layout);
  for (const Layout& layout : found.shapes) expect_layout(chain, layout);
  if (!found.runner_up) return;
  expect_layout(chain, found.runner_up->layout);
  expect_priced(problem, *found.runner_up);
  EXPECT_GE(found.runner_up->schedule.makespan, found.best.schedule.makespan);
  EXPECT_NE(found.runner_up->layout, found.best.layout);
}

TEST(LayoutSearch, IsConsistentAndNeverAboveAnyOtherPlanner) {
  for (uint64_t seed = 0; seed < (kSanitized ? 6 : 40); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    const PlannedChain chain = random_problem(seed, random_sizes(seed), seed % 3 == 0);
    const LayoutProblem problem = problem_of(chain);
    const Result<LayoutSearch> found = search_layout(problem, small_effort());
    ASSERT_TRUE(found.ok());
    expect_found(chain, found.value());
    for (const PlannerCard& card : planner_cards()) {
      if (card.planner == Planner::Tenuto) continue;
      const Result<PricedLayout> baseline = baseline_layout(problem, card.planner);
      ASSERT_TRUE(baseline.ok()) << card.name;
      EXPECT_LE(found.value().best.schedule.makespan,
                baseline.value().schedule.makespan * (1 + kRounding))
          << card.name;
    }
  }
}

TEST(LayoutSearch, GivesTheSameForTheSame) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const PlannedChain chain = random_problem(seed, {14, 9, 8}, false);
    const Result<LayoutSearch> first = search_layout(problem_of(chain), small_effort());
    const Result<LayoutSearch> second = search_layout(problem_of(chain), small_effort());
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first.value().best.layout, second.value().best.layout) << "seed " << seed;
    EXPECT_EQ(first.value().best.schedule.order, second.value().best.schedule.order);
    EXPECT_EQ(first.value().priced, second.value().priced);
    EXPECT_EQ(first.value().shapes, second.value().shapes);
  }
}

TEST(LayoutSearch, ReturnsALayoutWhenItsTimeIsOverAtOnce) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    const PlannedChain chain = random_problem(seed, {20, 10, 8}, seed % 2 == 0);
    Watch watch;
    watch.end();
    const Result<LayoutSearch> found = search_layout(problem_of(chain), {}, &watch);
    ASSERT_TRUE(found.ok());
    expect_found(chain, found.value());
    EXPECT_TRUE(watch.was_heeded());
    EXPECT_LE(found.value().priced, 2);
  }
}

// Layers that are all alike, and devices with links of 1 GB/s.
PlannedChain equal_layers(int32_t layers, int32_t devices, Bytes activation, Bytes parameters) {
  PlannedChain chain;
  Layer layer;
  layer.forward = layer.backward_input = std::chrono::milliseconds(1);
  layer.activation = layer.stash = activation;
  layer.parameters = parameters;
  chain.model.layers.assign(at(layers), layer);
  chain.cluster = uniform_cluster(devices, {{}, 1e9});
  chain.settings.micros = 32;
  return chain;
}

TEST(LayoutSearch, GivesAFastDeviceMoreLayers) {
  // Reductions would take hours, so each stage has one device.
  PlannedChain chain = equal_layers(12, 3, Bytes{1}, Bytes{1'000'000'000'000});
  chain.cluster.workers[1].speed = 4;
  const Result<LayoutSearch> found = search_layout(problem_of(chain), small_effort());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found.value().best.layout.size(), 3U);
  for (const Stage& stage : found.value().best.layout) {
    ASSERT_EQ(stage.holders.size(), 1U);
    EXPECT_EQ(stage.layer_end - stage.layer_first, stage.holders[0] == WorkerId{1} ? 8 : 2);
  }
}

TEST(LayoutSearch, LeavesADeviceIdleThatWouldOnlySlowOthersDown) {
  // Without reductions and with slow links, all devices make one stage; but not with this one.
  PlannedChain chain = equal_layers(6, 5, Bytes{1'000'000'000}, Bytes{0});
  chain.cluster.workers[2].speed = 0.1;
  const Result<LayoutSearch> found = search_layout(problem_of(chain), small_effort());
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found.value().best.layout.size(), 1U);
  const std::vector<WorkerId> fast = {WorkerId{0}, WorkerId{1}, WorkerId{3}, WorkerId{4}};
  EXPECT_EQ(found.value().best.layout[0].holders, fast);
}

// Whether some layout fits, by trying all: each device has a stage, or none; each stage recomputes,
// or does not.
class AnyLayoutFits {
 public:
  AnyLayoutFits(const LayoutProblem& problem, bool recomputes)
      : problem_(problem), recomputes_(recomputes) {}

  bool answer() {
    stage_of_.assign(at(problem_.device_count()), -1);
    const int32_t most = std::min(problem_.layer_count(), problem_.device_count());
    for (int32_t stages = 1; stages <= most; ++stages) {
      if (with_devices(0, stages)) return true;
    }
    return false;
  }

 private:
  bool with_devices(int32_t device, int32_t stages) {
    if (device == problem_.device_count()) return with_cuts({0}, stages);
    for (int32_t stage = -1; stage < stages; ++stage) {
      stage_of_[at(device)] = stage;
      if (with_devices(device + 1, stages)) return true;
    }
    return false;
  }

  bool with_cuts(std::vector<int32_t> cuts, int32_t stages) const {
    if (static_cast<int32_t>(cuts.size()) == stages) {
      cuts.push_back(problem_.layer_count());
      return fits(cuts, stages);
    }
    for (int32_t cut = cuts.back() + 1; cut < problem_.layer_count(); ++cut) {
      std::vector<int32_t> more = cuts;
      more.push_back(cut);
      if (with_cuts(std::move(more), stages)) return true;
    }
    return false;
  }

  bool fits(const std::vector<int32_t>& cuts, int32_t stages) const {
    for (int32_t n = 0; n < stages; ++n) {
      const Layers layers{cuts[at(n)], cuts[at(n) + 1]};
      double replicas = 0, memory = std::numeric_limits<double>::infinity();
      for (int32_t device = 0; device < problem_.device_count(); ++device) {
        if (stage_of_[at(device)] != n) continue;
        ++replicas;
        memory = std::min(memory, problem_.memory(device));
      }
      if (replicas == 0) return false;
      const double in_flight = std::min(problem_.settings().micros, stages - n);
      const double left = memory - problem_.settings().state_share * problem_.parameters(layers);
      const double stash = problem_.stash(layers);
      const bool keeps = in_flight * stash / replicas <= left;
      const bool again = (in_flight * problem_.cut(layers.first) + stash) / replicas <= left;
      if (!keeps && !(recomputes_ && again)) return false;
    }
    return true;
  }

  const LayoutProblem& problem_;
  const bool recomputes_;
  std::vector<int32_t> stage_of_;  // of each device; -1 = idle
};

TEST(LayoutSearch, FindsALayoutWithinMemoryWheneverThereIsOne) {
  int fitting = 0, recomputing_count = 0;
  const int count = kSanitized ? 60 : 400;
  for (int seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(7, static_cast<uint64_t>(seed)));
    const Sizes sizes{static_cast<int32_t>(1 + random.below(5)),
                      static_cast<int32_t>(1 + random.below(4)),
                      static_cast<int32_t>(1 + random.below(6))};
    PlannedChain chain = random_problem(static_cast<uint64_t>(seed), sizes, false);
    for (Worker& worker : chain.cluster.workers) worker.memory = {random.below(900'000'000) + 1};
    for (Layer& layer : chain.model.layers) layer.stash.count *= 1 + random.below(8);
    const LayoutProblem problem = problem_of(chain);
    const Result<LayoutSearch> found = search_layout(problem, small_effort());
    ASSERT_EQ(found.ok(), AnyLayoutFits(problem, true).answer());
    if (!found.ok()) {
      EXPECT_EQ(found.error().code, Code::Infeasible);
      continue;
    }
    ++fitting;
    expect_found(chain, found.value());
    const bool needed = !AnyLayoutFits(problem, false).answer();
    recomputing_count += needed;
    EXPECT_EQ(!recomputing(found.value().best.layout).empty(), needed);
  }
  EXPECT_GT(recomputing_count, count / 50);
  EXPECT_GT(fitting, count / 4);
  EXPECT_LT(fitting, count * 3 / 4);
}

// Too many layouts to try all.
TEST(LayoutSearch, KeepsTheMemoryOfManyDevices) {
  int fitting = 0;
  for (uint64_t seed = 0; seed < (kSanitized ? 2 : 12); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    PlannedChain chain = random_problem(seed, {24, 12, 12}, seed % 2 == 0);
    Random random(mix(8, seed));
    for (Worker& worker : chain.cluster.workers) {
      worker.memory = {500'000'000 + random.below(900'000'000)};
    }
    const Result<LayoutSearch> found = search_layout(problem_of(chain), small_effort());
    if (!found.ok()) continue;
    ++fitting;
    expect_found(chain, found.value());
  }
  EXPECT_GE(fitting, kSanitized ? 1 : 6);
}

TEST(LayoutSearch, SaysWhatIsMissingWhenNothingFits) {
  PlannedChain chain = equal_layers(4, 2, Bytes{100}, Bytes{1000});
  chain.cluster.workers[0].memory = chain.cluster.workers[1].memory = {8000};
  const Result<LayoutSearch> found = search_layout(problem_of(chain), small_effort());
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Code::Infeasible);
  EXPECT_EQ(found.error().reach, Reach::Job);
  EXPECT_EQ(found.error().message,
            "no layout fits into memory, not even with stages that run their forwards again before "
            "their backwards: in the layout that lacks least, stage 0 of 2 (layers 0 to 1 on 1 "
            "device) needs "
            "200 bytes more than device 0 has");
}

// Too many devices for all layouts: equally many for each stage, and two orders of them.
TEST(LayoutSearch, LetsStagesOfManyDevicesRecompute) {
  // N equal stages hold 48,000 / N bytes of state, and without recomputation the first one 12,000 N
  // bytes of stashes: 48,000 bytes are needed at least.
  PlannedChain chain = equal_layers(120, 40, Bytes{4000}, Bytes{100});
  const auto with_memory = [&](int64_t bytes) {
    for (Worker& worker : chain.cluster.workers) worker.memory = {bytes};
    return search_layout(problem_of(chain), small_effort());
  };
  const Result<LayoutSearch> plain = with_memory(60'000);
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(recomputing(plain.value().best.layout).empty());
  const Result<LayoutSearch> found = with_memory(35'000);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_FALSE(recomputing(found.value().best.layout).empty());
  expect_found(chain, found.value());
  EXPECT_FALSE(with_memory(12'000).ok());
}

TEST(LayoutSearch, FindsLayoutsOfAnyCluster) {
  // One layer, one device, many devices in nodes with a broken one, unlimited rates.
  struct Case {
    int32_t layers, devices, per_node;
  };
  for (const auto& [layers, devices, per_node] :
       {Case{1, 1, 1}, Case{1, 6, 2}, Case{9, 1, 1}, Case{3, 40, 40}, Case{30, 264, 8}}) {
    SCOPED_TRACE(cat(layers, " layers, ", devices, " devices"));
    PlannedChain chain = equal_layers(layers, devices, Bytes{1'000'000}, Bytes{2'000'000});
    const int32_t nodes = devices / per_node;
    chain.cluster.between.assign(at(nodes), std::vector<Link>(at(nodes), Link{{}, 1e9}));
    chain.cluster.place.clear();
    for (int32_t node = 0; node < nodes; ++node) {
      chain.cluster.between[at(node)][at(node)].bytes_per_second = node == 0 ? 0 : 8e9;
    }
    for (int32_t d = 0; d < devices; ++d) chain.cluster.place.push_back(d / per_node);
    if (devices > 1) chain.cluster.workers[1].alive = false;
    const Result<LayoutSearch> found = search_layout(problem_of(chain), small_effort());
    ASSERT_TRUE(found.ok());
    expect_found(chain, found.value());
  }
}

// With very many nodes, a search whose time is over has a layout at once, and no part of it counts
// the pairs of devices one by one.
TEST(LayoutSearch, EndsInTimeWithVeryManyNodes) {
  constexpr int32_t kDevices = kSanitized ? 4096 : 16'384;
  const auto cluster = cluster_from_json(
      cat("{\"devices\": ", kDevices,
          ", \"bandwidth_gbps\": {\"inside\": 25, \"between\": 3, \"per_node\": 2}}"),
      "cluster");
  ASSERT_TRUE(cluster.ok());
  Model model;
  for (int32_t l = 0; l < 18; ++l) {
    Layer layer;
    layer.forward = layer.backward_input = std::chrono::milliseconds(3 + l % 4);
    layer.activation = layer.stash = layer.parameters = {1'000'000};
    model.layers.push_back(layer);
  }
  LayoutSettings settings;
  settings.micros = 16;
  Watch watch;
  watch.end();
  const auto found = search_layout(LayoutProblem(model, cluster.value(), settings), {}, &watch);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value().priced, 1);
  EXPECT_GE(found.value().best.schedule.makespan, found.value().lower_bound);
  EXPECT_TRUE(watch.was_heeded());
}

}  // namespace
}  // namespace tenuto
