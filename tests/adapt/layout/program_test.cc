// The dynamic programs, compared with all layouts on the order.
#include "adapt/layout/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>

#include "adapt/layout/all_layouts.h"
#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

constexpr uint64_t kProblems = 3'000;
constexpr double kNone = std::numeric_limits<double>::infinity();
// A unit of time is a millisecond, and a unit of size a million bytes.
constexpr double kNanoseconds = 1e6, kBytes = 1e6;
constexpr double kStateShare = 4;

// What a random problem has.
struct Traits {
  int32_t least_layers = 1, most_layers = 6;
  int32_t most_units = 5;
  bool memory = false;
};

// A problem with an order of its devices.
struct Ordered {
  Ordered(const Model& model, const Cluster& cluster, int32_t micros, DeviceOrder order,
          int32_t unit, std::vector<int32_t> counts)
      : problem(model, cluster, {micros, kStateShare}),
        units(problem, std::move(order), unit, std::move(counts)) {}
  Ordered(const Ordered&) = delete;

  LayoutSpace space(bool idle) const {
    return {problem.layer_count(), units.workers(0, units.unit_count()), units.unit(),
            units.counts(), idle};
  }

  LayoutProblem problem;
  UnitOrder units;
};

double uniform(Random& random, double least, double most) {
  return least + (most - least) * random.uniform();
}
int32_t between(Random& random, int32_t least, int32_t most) {
  return least + static_cast<int32_t>(random.below(most - least + 1));
}
Duration time(double units) { return Duration(std::llround(units * kNanoseconds)); }
Bytes size(double units) { return {std::llround(units * kBytes)}; }

Model random_model(Random& random, const Traits& traits) {
  Model model;
  if (random.below(2) == 0) model.step = time(uniform(random, 0, 10));
  model.layers.resize(
      static_cast<size_t>(between(random, traits.least_layers, traits.most_layers)));
  const double zeros = random.below(20) == 0 ? 1 : 0.1;  // share of layers without work
  for (Layer& layer : model.layers) {
    const double forward = random.uniform() < zeros ? 0 : uniform(random, 1, 10);
    const auto sometimes_more = [&] { return random.below(4) == 0 ? 3.0 : 1.0; };
    layer.forward = time(forward);
    layer.backward_input = time(forward * uniform(random, 0.7, 2.5));
    layer.activation = size(uniform(random, 0.05, 8) * sometimes_more());
    layer.parameters = size(uniform(random, 0, 30) * sometimes_more());
    layer.stash = size(uniform(random, 1, 40));
  }
  return model;
}

// Every device has a class of its own.
Cluster random_cluster(Random& random, int32_t devices, const Traits& traits) {
  Cluster cluster;
  cluster.workers.resize(static_cast<size_t>(devices));
  cluster.place.resize(cluster.workers.size());
  std::iota(cluster.place.begin(), cluster.place.end(), 0);
  const bool speeds = random.below(2) == 0;
  const double memory = uniform(random, 50, 700);
  for (Worker& worker : cluster.workers) {
    if (speeds) worker.speed = uniform(random, 0.3, 1.5);
    // Some devices are not limited.
    if (traits.memory && random.below(8) != 0) {
      worker.memory = size(memory * uniform(random, 0.7, 1.3));
    }
  }
  cluster.between.assign(cluster.workers.size(), std::vector<Link>(cluster.workers.size()));
  for (size_t row = 0; row < cluster.workers.size(); ++row) {
    for (size_t column = 0; column < row; ++column) {
      // A unit of size takes a unit of time at a rate of 1.
      const double rate = std::exp(uniform(random, std::log(0.4), std::log(8.0)));
      cluster.between[row][column].bytes_per_second = rate * kBytes / kNanoseconds * 1e9;
      cluster.between[column][row] = cluster.between[row][column];
    }
  }
  return cluster;
}

// A third of the problems have units of two devices; a third leave out some numbers of units.
Ordered random_problem(uint64_t seed, const Traits& traits) {
  Random random(
      mix(seed, static_cast<uint64_t>(traits.memory), static_cast<uint64_t>(traits.most_layers)));
  Model model = random_model(random, traits);
  // Half of the problems have constants of passes and updates of layers, too.
  if (Random more(mix(seed, 20)); more.below(2) == 0) {
    model.op = time(uniform(more, 0, 5));
    for (Layer& layer : model.layers) layer.update = time(uniform(more, 0, 10));
  }
  const int32_t unit = random.below(3) == 0 ? 2 : 1;
  const int32_t most = unit == 1 ? traits.most_units : traits.most_units * 3 / 5;
  const int32_t units = between(random, 1, most);
  const Cluster cluster = random_cluster(random, units * unit, traits);
  DeviceOrder order(cluster.workers.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  std::vector<int32_t> counts = all_counts(units);
  if (random.below(3) == 0) {
    counts.clear();
    for (int32_t count = 1; count <= units; ++count) {
      if (random.below(2) == 0 || (count == units && counts.empty())) counts.push_back(count);
    }
  }
  return Ordered(model, cluster, between(random, 1, 6), std::move(order), unit, std::move(counts));
}

bool fits(const LayoutProblem& problem, const Layout& layout) {
  return memory_shortage(problem, layout).stage < 0;
}

bool is_one_of(const Layout& layout, const std::vector<Layout>& layouts) {
  return std::find(layouts.begin(), layouts.end(), layout) != layouts.end();
}

void expect_near(double value, double expected) { EXPECT_NEAR(value, expected, 1e-9 * expected); }

// The least bottlenecks by number of stages, from all layouts.
std::vector<double> exact_bottlenecks(const LayoutProblem& problem,
                                      const std::vector<Layout>& layouts, size_t stages) {
  std::vector<double> least(stages, kNone);
  for (const Layout& layout : layouts) {
    if (!fits(problem, layout)) continue;
    double& best = least[layout.size() - 1];
    best = std::min(best, bottleneck(row_split_loads(problem, layout)));
  }
  return least;
}

// Compares with all layouts, for every number of stages. Counts those that have a layout, and those
// that have one only where memory is not limited.
struct Verdicts {
  int fit = 0, too_large = 0;
};
void compare_bottlenecks(const Ordered& it, bool idle, Verdicts& verdicts) {
  const std::vector<Layout> layouts = all_layouts(it.space(idle));
  const auto found = least_bottlenecks(it.problem, it.units, idle);
  ASSERT_EQ(found.size(),
            static_cast<size_t>(std::min(it.problem.layer_count(), it.units.unit_count())));
  const std::vector<double> exact = exact_bottlenecks(it.problem, layouts, found.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].has_value(), exact[i] < kNone) << i + 1 << " stages";
    if (found[i]) {
      ++verdicts.fit;
      expect_near(found[i]->bottleneck, exact[i]);
      expect_near(bottleneck(row_split_loads(it.problem, found[i]->layout)), exact[i]);
      EXPECT_EQ(found[i]->layout.size(), i + 1);
      EXPECT_TRUE(is_one_of(found[i]->layout, layouts));
      EXPECT_TRUE(fits(it.problem, found[i]->layout));
    } else if (std::any_of(layouts.begin(), layouts.end(),
                           [&](const Layout& layout) { return layout.size() == i + 1; })) {
      ++verdicts.too_large;
    }
  }
}

TEST(LeastBottlenecks, AreThoseOfAllLayouts) {
  Verdicts verdicts;
  for (uint64_t seed = 0; seed < kProblems && !HasFailure(); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    compare_bottlenecks(random_problem(seed, {}), seed % 2 == 0, verdicts);
  }
  EXPECT_EQ(verdicts.too_large, 0);
}

TEST(LeastBottlenecks, KnowWhatFitsIntoMemory) {
  Verdicts verdicts;
  Traits traits;
  traits.memory = true;
  for (uint64_t seed = 0; seed < kProblems && !HasFailure(); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    compare_bottlenecks(random_problem(seed, traits), seed % 2 == 0, verdicts);
  }
  std::printf("%d numbers of stages fit into memory, %d do not\n", verdicts.fit,
              verdicts.too_large);
  EXPECT_GE(verdicts.fit, 2'000);
  EXPECT_GE(verdicts.too_large, 2'000);
}

// The largest load that counts towards a limit.
double load(const LayoutLoads& loads, const Threshold& threshold) {
  double most = 0;
  for (const StageLoad& stage : loads.stages) {
    const double reduction = threshold.reductions ? stage.reduction / loads.micros : 0;
    most = std::max(most, stage.both() + reduction);
  }
  for (const LinkLoad& link : loads.links) {
    most =
        std::max(most, threshold.both_ways ? link.both() : std::max(link.forward, link.backward));
  }
  return most;
}

// Of a single micro-batch.
double latency(const LayoutLoads& loads) {
  double sum = 0;
  for (const StageLoad& stage : loads.stages) sum += stage.both();
  for (const LinkLoad& link : loads.links) sum += link.both();
  return sum;
}

// All combinations of what counts.
std::vector<Threshold> thresholds() {
  return {{0, true, true}, {0, true, false}, {0, false, true}, {0, false, false}};
}

TEST(LeastLimit, IsTheLeastBottleneckOfAnyNumberOfStages) {
  for (uint64_t seed = 0; seed < kProblems && !HasFailure(); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Traits traits;
    traits.memory = seed % 3 == 0;
    const Ordered it = random_problem(seed, traits);
    double least = kNone;
    for (const auto& found : least_bottlenecks(it.problem, it.units, true)) {
      if (found) least = std::min(least, found->bottleneck);
    }
    const auto found = ThresholdProgram(it.problem, it.units).least_limit({0, true, true});
    ASSERT_EQ(found.has_value(), least < kNone);
    if (found) expect_near(found->bottleneck * it.problem.settings().micros, least);
  }
}

TEST(LeastLimit, IsThatOfAllLayouts) {
  for (uint64_t seed = 0; seed < kProblems && !HasFailure(); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Traits traits;
    traits.memory = seed % 2 == 0;
    const Ordered it = random_problem(seed, traits);
    const std::vector<Layout> layouts = all_layouts(it.space(true));
    const Threshold threshold = thresholds()[seed / 2 % 4];
    double least = kNone;
    for (const Layout& layout : layouts) {
      if (!fits(it.problem, layout)) continue;
      least = std::min(least, load(row_split_loads(it.problem, layout), threshold));
    }
    const auto found = ThresholdProgram(it.problem, it.units).least_limit(threshold);
    ASSERT_EQ(found.has_value(), least < kNone);
    if (!found) continue;
    expect_near(found->bottleneck, least);
    expect_near(load(row_split_loads(it.problem, found->layout), threshold), least);
    EXPECT_TRUE(is_one_of(found->layout, layouts));
    EXPECT_TRUE(fits(it.problem, found->layout));
  }
}

// The limit is drawn so that some layouts are within it. Half of the limits are loads of layouts.
double random_limit(Random& random, const std::vector<double>& loads) {
  const double limit = loads[static_cast<size_t>(random.below(static_cast<int64_t>(loads.size())))];
  return random.below(2) == 0 ? limit : limit * uniform(random, 0.5, 1.5);
}

// Compares with all layouts under a random limit; returns whether there is a layout.
bool compare_latency(const Ordered& it, Threshold threshold, Random& random) {
  const std::vector<Layout> layouts = all_layouts(it.space(true));
  std::vector<double> most;  // load of each layout
  for (const Layout& layout : layouts) {
    most.push_back(load(row_split_loads(it.problem, layout), threshold));
  }
  threshold.limit = random_limit(random, most);
  double least = kNone;
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (most[i] > threshold.limit || !fits(it.problem, layouts[i])) continue;
    least = std::min(least, latency(row_split_loads(it.problem, layouts[i])));
  }
  const auto found = ThresholdProgram(it.problem, it.units).least_latency(threshold);
  EXPECT_EQ(found.has_value(), least < kNone);
  if (!found) return false;
  const LayoutLoads loads = row_split_loads(it.problem, *found);
  expect_near(latency(loads), least);
  EXPECT_LE(load(loads, threshold), threshold.limit * (1 + 1e-9));
  EXPECT_TRUE(is_one_of(*found, layouts));
  EXPECT_TRUE(fits(it.problem, *found));
  return true;
}

TEST(LeastLatency, IsThatOfAllLayoutsWithinTheLimit) {
  for (const bool memory : {false, true}) {
    Traits traits;
    traits.memory = memory;
    int found = 0, none = 0;
    for (uint64_t seed = 0; seed < kProblems && !HasFailure(); ++seed) {
      SCOPED_TRACE(cat("seed ", seed, memory ? ", memory limited" : ""));
      Random random(mix(seed, 5));
      const Ordered it = random_problem(seed, traits);
      (compare_latency(it, thresholds()[seed % 4], random) ? found : none) += 1;
    }
    std::printf("%d limits have a layout, %d do not\n", found, none);
    EXPECT_GE(found, 1'000);
    EXPECT_GE(none, 300);
  }
}

// Larger problems, of which not all layouts can be made.
TEST(LeastLatency, ExistsFromTheLeastLimitOn) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Traits traits{20, 60, 24, seed % 2 == 0};
    const Ordered it = random_problem(seed, traits);
    const ThresholdProgram program(it.problem, it.units);
    Threshold threshold = thresholds()[seed / 2 % 4];
    const auto least = program.least_limit(threshold);
    if (!least) continue;
    ++compared;
    expect_near(load(row_split_loads(it.problem, least->layout), threshold), least->bottleneck);
    double shorter = kNone;
    for (const double times : {1.0, 1.1, 1.5, 3.0}) {
      threshold.limit = least->bottleneck * times;
      const auto layout = program.least_latency(threshold);
      ASSERT_TRUE(layout.has_value()) << times;
      const LayoutLoads loads = row_split_loads(it.problem, *layout);
      EXPECT_LE(load(loads, threshold), threshold.limit * (1 + 1e-9));
      EXPECT_TRUE(fits(it.problem, *layout));
      EXPECT_LE(latency(loads), shorter * (1 + 1e-9));
      shorter = latency(loads);
    }
    if (least->bottleneck == 0) continue;  // layers without work
    threshold.limit = least->bottleneck * (1 - 1e-9);
    EXPECT_FALSE(program.least_latency(threshold).has_value());
  }
  EXPECT_GE(compared, 100);
}

}  // namespace
}  // namespace tenuto
