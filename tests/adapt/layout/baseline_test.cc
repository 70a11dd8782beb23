// The baselines compared with the published tables, with all layouts of small problems, and at the
// limits of memory.
#include "adapt/layout/baseline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <set>

#include "adapt/layout/all_layouts.h"
#include "adapt/layout/chain_data.h"
#include "adapt/layout/program.h"
#include "adapt/layout/random_chain.h"
#include "adapt/layout/rule_layouts.h"
#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

// Tables have three decimals, their lower bound one.
constexpr double kTableTolerance = 0.002;
constexpr double kRounding = 1e-9;

LayoutProblem problem_of(const PlannedChain& chain) {
  return LayoutProblem(chain.model, chain.cluster, chain.settings);
}

// The baselines that users may ask for.
std::vector<PlannerCard> baseline_cards() {
  std::vector<PlannerCard> cards;
  for (const PlannerCard& card : planner_cards()) {
    if (card.planner != Planner::Tenuto) cards.push_back(card);
  }
  return cards;
}

// ---- the published tables ---------------------------------------------------------------------

struct TableCase {
  std::string table;
  ExpectedRow row;
  LayoutProblem problem;
  std::string name() const { return cat(row.chain, " in table ", table); }
};

// Empty when the shared data is absent.
std::vector<TableCase> table_cases() {
  std::vector<TableCase> cases;
  for (const std::string& table : expected_tables()) {
    for (const ExpectedRow& row : expected_table(table)) {
      const std::optional<Model> model = shared_chain(row.chain);
      const std::optional<Cluster> cluster = shared_topology(topology_of(table));
      if (!model || !cluster) continue;
      LayoutSettings settings;
      settings.micros = micros_of(table);
      cases.push_back({table, row, LayoutProblem(*model, *cluster, settings)});
    }
  }
  return cases;
}

// A column of the tables, and how its step is found here, in nanoseconds.
struct Column {
  std::string name;
  double ExpectedRow::*ratio;
  std::function<double(const LayoutProblem&)> step;
  // Rows in which many layouts are equally good by the rule, because the layers are equal; the
  // table has another one of them, with a step that differs by at most 4 %.
  std::set<std::string> tied;
};

std::function<double(const LayoutProblem&)> step_by(Planner planner) {
  return [planner](const LayoutProblem& problem) {
    return baseline_layout(problem, planner).value().schedule.makespan;
  };
}

// The best by four policies. The fifth one, periodic, decided no step of the tables; here it makes
// some of them shorter.
double step_by_four_policies(const LayoutProblem& problem, const DeviceOrder& order) {
  const UnitOrder units(problem, order, 1, all_counts(problem.device_count()));
  double best = std::numeric_limits<double>::infinity();
  for (const std::optional<BottleneckLayout>& found : least_bottlenecks(problem, units)) {
    if (!found) continue;
    for (const BlockPolicy policy : {BlockPolicy::OneForwardOneBackward, BlockPolicy::WithTransfers,
                                     BlockPolicy::BackwardFirst, BlockPolicy::ForwardsFirst}) {
      const LayoutLoads loads = row_split_loads(problem, found->layout);
      best = std::min(best, schedule_blocks(loads, policy).makespan);
    }
  }
  return best;
}

std::vector<Column> columns() {
  return {
      {"DP", &ExpectedRow::data_parallel, step_by(Planner::DataParallel), {}},
      {"GPipe", &ExpectedRow::gpipe, step_by(Planner::Gpipe), {}},
      {"1F1Bu", &ExpectedRow::one_f_one_b, step_by(Planner::OneFOneB), {}},
      {"PDream",
       &ExpectedRow::pipedream,
       step_by(Planner::PipeDream),
       {"dappl_bert-24-pbs-6 in table 4x4mixs_16"}},
      {"DAPPLE", &ExpectedRow::dapple, step_by(Planner::Dapple), {}},
      {"SPPnat",
       &ExpectedRow::natural_order,
       [](const LayoutProblem& problem) {
         return step_by_four_policies(problem, natural_order(problem));
       },
       {"dappl_bert-24-pbs-6 in table 4x2pcie10s_32"}},
      {"SPP",
       &ExpectedRow::min_cut,
       [](const LayoutProblem& problem) {
         return step_by_four_policies(problem, min_cut_order(problem));
       },
       {}},
  };
}

TEST(Baselines, HaveTheStepsOfTheTables) {
  const std::vector<TableCase> cases = table_cases();
  if (cases.empty()) GTEST_SKIP() << "the shared data is absent: planner/expected";
  EXPECT_EQ(cases.size(), 63U);
  for (const Column& column : columns()) {
    double furthest = 0;
    for (const TableCase& each : cases) {
      const double expected = each.row.bound_ms * 1e6 * each.row.*column.ratio;
      const double difference = std::abs(column.step(each.problem) / expected - 1);
      const bool tied = column.tied.count(each.name()) > 0;
      EXPECT_LE(difference, tied ? 0.04 : kTableTolerance) << column.name << ", " << each.name();
      if (!tied) furthest = std::max(furthest, difference);
    }
    std::printf("%-7s %zu rows, %.2f %% from the table at most\n", column.name.c_str(),
                cases.size() - column.tied.size(), 100 * furthest);
  }
}

// With the periodic policy as well, some steps are shorter than in the tables, and none is longer.
TEST(Baselines, MinCutIsNeverSlowerThanInTheTables) {
  const std::vector<TableCase> cases = table_cases();
  if (cases.empty()) GTEST_SKIP() << "the shared data is absent: planner/expected";
  int shorter = 0;
  for (const TableCase& each : cases) {
    const double expected = each.row.bound_ms * 1e6 * each.row.min_cut;
    const double step = step_by(Planner::MinCut)(each.problem);
    EXPECT_LE(step, expected * (1 + kTableTolerance)) << each.name();
    shorter += step < expected * (1 - kTableTolerance) ? 1 : 0;
  }
  std::printf("%d of %zu steps are shorter\n", shorter, cases.size());
}

TEST(Baselines, MinCutTakesOneStageWhereGradientsAreSmall) {
  const std::optional<Model> model = shared_chain("piped_resnet50");
  const std::optional<Cluster> cluster = shared_topology("2x4nv50");
  if (!model || !cluster) GTEST_SKIP() << "the shared data is absent: piped_resnet50, 2x4nv50";
  for (const int32_t micros : {8, 32}) {
    LayoutSettings settings;
    settings.micros = micros;
    const LayoutProblem problem(*model, *cluster, settings);
    const Layout layout = baseline_layout(problem, Planner::MinCut).value().layout;
    ASSERT_EQ(layout.size(), 1U) << micros << " micro-batches";
    EXPECT_EQ(layout[0].holders.size(), 8U);
  }
}

// ---- each rule against all layouts ------------------------------------------------------------

// All layouts that use all devices in their natural order.
std::vector<Layout> natural_layouts(const LayoutProblem& problem) {
  LayoutSpace space;
  space.layers = problem.layer_count();
  space.counts = all_counts(problem.device_count());
  for (int32_t device = 0; device < problem.device_count(); ++device) {
    space.order.push_back(problem.worker(device));
  }
  return all_layouts(space);
}

LayoutProblem small_problem(uint64_t seed, bool speeds) {
  PlannedChain chain = random_chain(seed, false);
  Random random(mix(seed, 3));
  for (Worker& worker : chain.cluster.workers) {
    if (speeds) worker.speed = 0.25 * static_cast<double>(1 + random.below(4));
  }
  return problem_of(chain);
}

double least_of(const std::vector<Layout>& layouts,
                const std::function<double(const Layout&)>& value) {
  double least = std::numeric_limits<double>::infinity();
  for (const Layout& layout : layouts) least = std::min(least, value(layout));
  return least;
}

// What exposed_reduction_layout() minimizes, from the loads; infinite for more than four stages.
double with_exposed_reductions(const LayoutLoads& loads) {
  if (loads.stages.size() > 4) return std::numeric_limits<double>::infinity();
  double way = 0, busiest = 0, backward = 0, exposed = 0;
  for (size_t n = 0; n < loads.stages.size(); ++n) {
    const StageLoad& stage = loads.stages[n];
    exposed = std::max(exposed, stage.reduction - backward);
    way += stage.both();
    busiest = std::max(busiest, stage.both());
    backward += stage.backward;
    if (n == loads.links.size()) break;
    way += loads.links[n].both();
    busiest = std::max(busiest, loads.links[n].both());
    backward += loads.links[n].backward;
  }
  return way + (loads.micros - 1) * busiest + exposed;
}

TEST(RuleLayouts, ExposedReductionsAreLeast) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const LayoutProblem problem = small_problem(seed, seed % 2 == 1);
    const auto value = [&](const Layout& layout) {
      return with_exposed_reductions(row_split_loads(problem, layout));
    };
    const double found = value(exposed_reduction_layout(problem, false).value());
    const double least = least_of(natural_layouts(problem), value);
    EXPECT_NEAR(found, least, least * kRounding) << "seed " << seed;
  }
}

TEST(RuleLayouts, ExposedReductionsAreLeastOfTheLayoutsThatFit) {
  int fitting = 0, refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    PlannedChain chain = random_chain(seed, false);
    Random random(mix(seed, 4));
    for (Layer& layer : chain.model.layers) layer.stash = layer.activation;
    // About what half of the layers need on one device.
    for (Worker& worker : chain.cluster.workers) {
      worker.memory = Bytes{50'000'000'000 + random.below(200'000'000'000)};
    }
    const LayoutProblem problem = problem_of(chain);
    const auto value = [&](const Layout& layout) {
      if (memory_shortage(problem, layout).stage >= 0) {
        return std::numeric_limits<double>::infinity();
      }
      return with_exposed_reductions(row_split_loads(problem, layout));
    };
    const double least = least_of(natural_layouts(problem), value);
    const std::optional<Layout> found = exposed_reduction_layout(problem, true);
    ASSERT_EQ(found.has_value(), std::isfinite(least)) << "seed " << seed;
    ++(found ? fitting : refused);
    if (!found) continue;
    EXPECT_NEAR(value(*found), least, least * kRounding) << "seed " << seed;
  }
  EXPECT_GE(fitting, 50);
  EXPECT_GE(refused, 50);
}

// What flat_rate_layout() minimizes.
double slowest_with_flat_rate(const LayoutProblem& problem, const Layout& layout) {
  double rate = std::numeric_limits<double>::infinity(), slowest = 0;
  for (int32_t one = 0; one < problem.device_count(); ++one) {
    for (int32_t other = 0; other < one; ++other) {
      rate = std::min(rate, problem.rate(one, other));
    }
  }
  for (const Stage& stage : layout) {
    const Layers layers{stage.layer_first, stage.layer_end};
    const auto replicas = static_cast<double>(stage.holders.size());
    const double work = problem.forward(layers) + problem.backward(layers);
    const double reduction =
        4 * (replicas - 1) * problem.parameters(layers) / (replicas * replicas * rate);
    slowest = std::max({slowest, work / replicas + reduction,
                        2 * problem.cut(stage.layer_first) / (rate * replicas)});
  }
  return slowest;
}

TEST(RuleLayouts, TheSlowestStageWithAFlatRateIsFastest) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const LayoutProblem problem = small_problem(seed, false);
    const auto value = [&](const Layout& layout) {
      return slowest_with_flat_rate(problem, layout);
    };
    const double least = least_of(natural_layouts(problem), value);
    EXPECT_NEAR(value(flat_rate_layout(problem)), least, least * kRounding) << "seed " << seed;
  }
}

// One layer for each of these times, and a device for each speed.
LayoutProblem unequal_chain(const std::vector<int64_t>& times, const std::vector<double>& speeds) {
  Model model;
  for (const int64_t time : times) {
    Layer layer;
    layer.forward = Duration(time);
    model.layers.push_back(layer);
  }
  Cluster cluster = uniform_cluster(static_cast<int32_t>(speeds.size()), {});
  for (size_t i = 0; i < speeds.size(); ++i) cluster.workers[i].speed = speeds[i];
  return LayoutProblem(model, cluster, {});
}

std::vector<int32_t> ends_of(const Layout& layout) {
  std::vector<int32_t> ends;
  for (const Stage& stage : layout) ends.push_back(stage.layer_end);
  return ends;
}

// The cuts by definition: the best one of all, which ends its last stages as early as possible.
std::vector<int32_t> balanced_by_trial(const std::vector<int64_t>& times, int32_t stages) {
  const auto layers = static_cast<int32_t>(times.size());
  const auto sum = [&](int32_t first, int32_t end) {
    int64_t all = 0;
    for (int32_t i = first; i < end; ++i) all += times[static_cast<size_t>(i)];
    return all;
  };
  // The best of the first layers in so many stages, and how.
  const std::function<std::pair<int64_t, std::vector<int32_t>>(int32_t, int32_t)> best =
      [&](int32_t end, int32_t count) -> std::pair<int64_t, std::vector<int32_t>> {
    if (count == 1) return {sum(0, end), {end}};
    std::pair<int64_t, std::vector<int32_t>> found{std::numeric_limits<int64_t>::max(), {}};
    for (int32_t first = count - 1; first < end; ++first) {
      auto [busiest, ends] = best(first, count - 1);
      busiest = std::max(busiest, sum(first, end));
      if (busiest >= found.first) continue;
      ends.push_back(end);
      found = {busiest, ends};
    }
    return found;
  };
  return best(layers, stages).second;
}

TEST(RuleLayouts, BalancedCutsAreThoseOfATrialOfAll) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    std::vector<int64_t> times;
    const int64_t layers = 1 + random.below(9), devices = 1 + random.below(9);
    for (int64_t i = 0; i < layers; ++i) times.push_back(random.below(6));
    const LayoutProblem problem =
        unequal_chain(times, std::vector<double>(static_cast<size_t>(devices), 1.0));
    const auto stages = static_cast<int32_t>(std::min(layers, devices));
    EXPECT_EQ(ends_of(balanced_layout(problem)), balanced_by_trial(times, stages))
        << "seed " << seed;
  }
}

TEST(RuleLayouts, EvenCutsRoundDown) {
  const LayoutProblem problem =
      unequal_chain(std::vector<int64_t>(11, 1), std::vector<double>(4, 1.0));
  EXPECT_EQ(ends_of(even_layout(problem)), (std::vector<int32_t>{2, 5, 8, 11}));
}

TEST(RuleLayouts, VirtualWorkersHaveEqualMixesOfSpeeds) {
  const LayoutProblem problem =
      unequal_chain(std::vector<int64_t>(12, 1), {0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1});
  const DeviceOrder order = speed_order(problem);
  // Four virtual workers: a fast device, then a slow one, with twice as many layers for the fast.
  const Layout two = virtual_worker_layout(problem, order, 4).value();
  EXPECT_EQ(ends_of(two), (std::vector<int32_t>{8, 12}));
  for (const WorkerId holder : two[0].holders) EXPECT_EQ(holder.value % 2, 1);
  for (const WorkerId holder : two[1].holders) EXPECT_EQ(holder.value % 2, 0);
  // Two of them: two fast and two slow devices each.
  EXPECT_EQ(ends_of(virtual_worker_layout(problem, order, 2).value()),
            (std::vector<int32_t>{4, 8, 10, 12}));
  EXPECT_FALSE(virtual_worker_layout(problem, order, 3).has_value()) << "3 does not divide 8";
}

// With half of the devices at half the speed, and slow links, nothing that takes them as equal is
// as fast.
TEST(Baselines, VirtualWorkersUseUnequalSpeeds) {
  PlannedChain chain;
  Layer layer;
  layer.forward = std::chrono::milliseconds(1);
  layer.backward_input = std::chrono::milliseconds(2);
  layer.activation = Bytes{1'000'000};
  layer.parameters = Bytes{100'000'000};
  chain.model.layers.assign(24, layer);
  chain.cluster = uniform_cluster(8, {Duration{}, 10e9});
  for (size_t i = 0; i < 8; i += 2) chain.cluster.workers[i].speed = 0.5;
  chain.settings.micros = 32;
  const LayoutProblem problem = problem_of(chain);
  const double step = step_by(Planner::HetPipe)(problem);
  for (const Planner planner : {Planner::Gpipe, Planner::OneFOneB, Planner::PipeDream,
                                Planner::DataParallel, Planner::Dapple}) {
    EXPECT_LT(step, step_by(planner)(problem));
  }
}

// ---- memory -----------------------------------------------------------------------------------

PlannedChain with_memory(PlannedChain chain, int64_t bytes) {
  for (Worker& worker : chain.cluster.workers) worker.memory = Bytes{bytes};
  return chain;
}

// True when every device holds what its stage keeps in flight.
bool fits(const LayoutProblem& problem, const PricedLayout& priced) {
  for (size_t n = 0; n < priced.layout.size(); ++n) {
    const Stage& stage = priced.layout[n];
    const double need = stage_memory(problem, stage, priced.schedule.in_flight[n]);
    for (const WorkerId holder : stage.holders) {
      if (need > problem.memory(problem.device(holder))) return false;
    }
  }
  return true;
}

TEST(Baselines, RefuseOneByteLessThanTheyNeed) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    PlannedChain chain = random_chain(seed, false);
    for (Layer& layer : chain.model.layers) layer.stash = layer.activation;
    for (const PlannerCard& card : baseline_cards()) {
      SCOPED_TRACE(cat(card.name, ", seed ", seed));
      const auto plan = [&](int64_t bytes) {
        return baseline_layout(problem_of(with_memory(chain, bytes)), card.planner);
      };
      int64_t low = 1, high = int64_t{1} << 50;
      ASSERT_FALSE(plan(low).ok());
      ASSERT_TRUE(plan(high).ok());
      while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (plan(middle).ok() ? high : low) = middle;
      }
      EXPECT_TRUE(fits(problem_of(with_memory(chain, high)), plan(high).value()));
      const Error error = plan(low).error();
      EXPECT_EQ(error.code, Code::Infeasible);
      EXPECT_EQ(error.reach, Reach::Job);
      EXPECT_NE(error.message.find(cat("no layout of planner ", card.name, " fits")),
                std::string::npos)
          << error.message;
    }
  }
}

TEST(Baselines, SayWhatIsMissingAndWhere) {
  const LayoutProblem problem = [] {
    PlannedChain chain;
    Layer layer;
    layer.forward = layer.backward_input = std::chrono::milliseconds(1);
    layer.parameters = Bytes{1'000};
    layer.stash = Bytes{100};
    chain.model.layers.assign(6, layer);
    chain.cluster = uniform_cluster(3, {Duration{}, 1e9});
    chain.cluster.workers[0].alive = false;  // the devices are workers 1 and 2
    chain.cluster.workers[2].memory = Bytes{12'000};
    chain.settings.micros = 4;
    return problem_of(chain);
  }();
  // Three layers: 4 x 3,000 bytes of state; in the last stage one micro-batch of 300 bytes.
  EXPECT_EQ(baseline_layout(problem, Planner::OneFOneB).error().message,
            "no layout of planner 1f1b fits into memory: stage 1 of 2 (layers 3 to 5 on 1 device) "
            "needs 300 bytes more than device 2 has");
  // All forwards first: four micro-batches.
  EXPECT_EQ(baseline_layout(problem, Planner::Gpipe).error().message,
            "no layout of planner gpipe fits into memory: stage 1 of 2 (layers 3 to 5 on 1 device) "
            "needs 1200 bytes more than device 2 has");
  // Two layers for the second stage fit.
  EXPECT_TRUE(baseline_layout(problem, Planner::MinCut).ok());
  EXPECT_TRUE(baseline_layout(problem, Planner::Dapple).ok());
}

// ---- all planners -----------------------------------------------------------------------------

// Stages have layers and live devices once each, all layers, and the loads and the schedule that
// belong to them.
void expect_whole(const LayoutProblem& problem, const PricedLayout& priced) {
  int32_t layer = 0;
  std::set<int32_t> used;
  for (const Stage& stage : priced.layout) {
    EXPECT_EQ(stage.layer_first, layer);
    EXPECT_LT(stage.layer_first, stage.layer_end);
    layer = stage.layer_end;
    EXPECT_FALSE(stage.holders.empty());
    for (const WorkerId holder : stage.holders) {
      EXPECT_TRUE(used.insert(problem.device(holder)).second) << "worker " << holder.value;
    }
  }
  EXPECT_EQ(layer, problem.layer_count());
  EXPECT_EQ(bottleneck(priced.loads), bottleneck(row_split_loads(problem, priced.layout)));
  const std::optional<BlockSchedule> again =
      replay_blocks(priced.loads, priced.schedule.order, priced.schedule.link_order);
  ASSERT_TRUE(again.has_value());
  EXPECT_LE(again->makespan, priced.schedule.makespan * (1 + kRounding));
  EXPECT_GE(priced.schedule.makespan, least_makespan(priced.loads) * (1 - kRounding));
}

TEST(Baselines, MakeWholeLayoutsOfManyDevicesAndLayers) {
  struct Size {
    int32_t layers = 0, devices = 0;
  };
  for (const Size& size : {Size{3, 5}, Size{40, 7}, Size{150, 67}, Size{12, 131}, Size{300, 96}}) {
    Random random(static_cast<uint64_t>(size.layers));
    PlannedChain chain;
    for (int32_t i = 0; i < size.layers; ++i) {
      Layer layer;
      layer.forward = layer.backward_input = std::chrono::microseconds(random.below(500));
      layer.activation = layer.stash = Bytes{random.below(1'000'000)};
      layer.parameters = Bytes{random.below(10'000'000)};
      chain.model.layers.push_back(layer);
    }
    chain.cluster = uniform_cluster(size.devices + 1, {Duration{}, 10e9});
    chain.cluster.workers[1].alive = false;
    chain.settings.micros = 8;
    const LayoutProblem problem = problem_of(chain);
    for (const PlannerCard& card : baseline_cards()) {
      SCOPED_TRACE(cat(card.name, ", ", size.layers, " layers, ", size.devices, " devices"));
      const Result<PricedLayout> priced = baseline_layout(problem, card.planner);
      ASSERT_TRUE(priced.ok());
      expect_whole(problem, priced.value());
    }
  }
}

TEST(PlannerCards, AreFoundByName) {
  std::set<Planner> planners;
  for (const PlannerCard& card : planner_cards()) {
    EXPECT_TRUE(planners.insert(card.planner).second) << card.name;
    EXPECT_EQ(find_planner(card.name).value().planner, card.planner);
    // Two sentences.
    EXPECT_EQ(card.summary.back(), '.');
    EXPECT_NE(card.summary.find(". "), std::string::npos) << card.summary;
    EXPECT_EQ(card.summary.find(". "), card.summary.rfind(". ")) << card.summary;
    EXPECT_FALSE(card.source.empty());
  }
  EXPECT_EQ(planners.size(), 8U);
  EXPECT_EQ(find_planner("gpip").error().message,
            "there is no planner \"gpip\": did you mean gpipe?");
  EXPECT_EQ(find_planner("everything").error().message,
            "there is no planner \"everything\": take one of tenuto, spp, dapple, pipedream, "
            "gpipe, 1f1b, data-parallel, hetpipe");
}

}  // namespace
}  // namespace tenuto
