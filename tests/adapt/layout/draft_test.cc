// Drafts: loads that are kept up to date are those of the layout, whatever is changed; devices of a
// kind are equal; and all drafts of small problems are counted and searched.
#include "adapt/layout/draft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "adapt/layout/complete_search.h"
#include "adapt/layout/draft_move.h"
#include "adapt/layout/draft_pricer.h"
#include "adapt/layout/exact_layout.h"
#include "adapt/layout/random_chain.h"
#include "base/random.h"
#include "base/text.h"
#include "sanitized.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Layers that differ, on nodes of some devices, of which one is slower than the others.
PlannedChain node_chain(int32_t layers, int32_t nodes, int32_t per_node) {
  PlannedChain chain;
  for (int32_t l = 0; l < layers; ++l) {
    Layer layer;
    layer.forward = Duration(1'000'003 * (l + 1));
    layer.backward_input = Duration(1'700'001 * (l % 3 + 1));
    layer.activation = layer.stash = {1'000'001 * (l % 5 + 1)};
    layer.parameters = {900'007 * (l % 4 + 1)};
    layer.update = Duration(300'007 * (l % 2 + 1));
    chain.model.layers.push_back(layer);
  }
  chain.model.op = Duration(500'009);
  chain.cluster.workers.resize(at(nodes * per_node));
  chain.cluster.workers[2].speed = 0.7;
  chain.cluster.between.assign(at(nodes), std::vector<Link>(at(nodes), Link{{}, 3e9}));
  for (int32_t node = 0; node < nodes; ++node) {
    chain.cluster.between[at(node)][at(node)].bytes_per_second = 20e9;
    for (int32_t d = 0; d < per_node; ++d) chain.cluster.place.push_back(node);
  }
  chain.settings.micros = 4;
  return chain;
}

LayoutProblem problem_of(const PlannedChain& chain) {
  return {chain.model, chain.cluster, chain.settings};
}

void expect_loads(const LayoutProblem& problem, const DraftTable& table, const Draft& draft) {
  const LayoutLoads loads = row_split_loads(problem, table.layout(draft));
  ASSERT_EQ(loads.stages.size(), draft.loads.stages.size());
  ASSERT_EQ(loads.links.size(), draft.loads.links.size());
  for (size_t n = 0; n < loads.stages.size(); ++n) {
    ASSERT_EQ(loads.stages[n].forward, draft.loads.stages[n].forward);
    ASSERT_EQ(loads.stages[n].backward, draft.loads.stages[n].backward);
    ASSERT_EQ(loads.stages[n].reduction, draft.loads.stages[n].reduction);
    if (n == 0) continue;
    ASSERT_EQ(loads.links[n - 1].forward, draft.loads.links[n - 1].forward);
    ASSERT_EQ(loads.links[n - 1].backward, draft.loads.links[n - 1].backward);
  }
}

TEST(DeviceKinds, AreDevicesThatCanBeExchanged) {
  PlannedChain chain = node_chain(3, 2, 4);
  {
    const LayoutProblem problem = problem_of(chain);
    const DeviceKinds kinds(problem);
    ASSERT_EQ(kinds.count(), 3);
    EXPECT_EQ(kinds.devices(0), (std::vector<int32_t>{0, 1, 3}));
    EXPECT_EQ(kinds.devices(1), std::vector<int32_t>{2});
    EXPECT_EQ(kinds.devices(2), (std::vector<int32_t>{4, 5, 6, 7}));
    EXPECT_EQ(kinds.rate(0, 0), 20);
    EXPECT_EQ(kinds.rate(0, 2), 3);
  }
  // A slow link, a memory limit and a dead worker make devices differ.
  chain.cluster.exceptions[{WorkerId{4}, WorkerId{0}}] = {{}, 1e9};
  chain.cluster.workers[5].memory = {1'000'000};
  chain.cluster.workers[7].alive = false;
  const LayoutProblem problem = problem_of(chain);
  EXPECT_EQ(DeviceKinds(problem).count(), 6);  // 0; 1 and 3; 2; 4; 5; 6
}

// Devices in random classes, with exceptions from the rates of the classes.
PlannedChain scattered_chain(Random& random, int32_t devices) {
  PlannedChain chain = node_chain(3, 1 + static_cast<int32_t>(random.below(4)), 4);
  const auto classes = static_cast<int64_t>(chain.cluster.between.size());
  chain.cluster.workers.assign(at(devices), {});
  chain.cluster.place.clear();
  for (int32_t w = 0; w < devices; ++w) {
    chain.cluster.place.push_back(static_cast<int32_t>(random.below(classes)));
  }
  for (std::vector<Link>& row : chain.cluster.between) {
    for (Link& link : row) link.bytes_per_second = static_cast<double>(1 + random.below(4)) * 1e9;
  }
  const auto one_of = [&] { return WorkerId{static_cast<int32_t>(random.below(devices))}; };
  for (int64_t i = random.below(2 * devices); i > 0; --i) {
    chain.cluster.exceptions[{one_of(), one_of()}] = {
        {}, static_cast<double>(1 + random.below(6)) * 5e8};
  }
  return chain;
}

// Cards of single devices, and hosts.
void add_ports(Random& random, Cluster& cluster) {
  const auto devices = static_cast<int64_t>(cluster.workers.size());
  for (int64_t i = random.below(8); i >= 0; --i) {
    Port port;
    const int64_t first = random.below(devices), most = random.below(2) == 0 ? 1 : devices - first;
    for (int64_t k = random.below(most); k >= 0; --k) {
      port.devices.push_back({static_cast<int32_t>(first + k)});
    }
    std::reverse(port.devices.begin(), port.devices.end());
    port.bytes_per_second = static_cast<double>(1 + random.below(6)) * 4e8;
    port.inside = random.below(3) == 0;
    cluster.ports.push_back(std::move(port));
  }
}

TEST(LayoutProblem, SlowestRatesAgreeWithAllPairs) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(5, seed));
    const auto devices = static_cast<int32_t>(2 + random.below(150));
    PlannedChain chain = scattered_chain(random, devices);
    if (seed % 2 == 1) add_ports(random, chain.cluster);
    const LayoutProblem problem = problem_of(chain);
    std::vector<int32_t> sets[2];
    std::vector<double> rates;
    double inside = std::numeric_limits<double>::infinity(), between = inside;
    for (int32_t device = 0; device < devices; ++device) {
      sets[random.below(2)].push_back(device);
      problem.rates_from(device, rates);
      for (int32_t other = 0; other < devices; ++other) {
        if (other == device) continue;
        EXPECT_EQ(rates[at(other)], problem.rate(device, other));
        const WorkerId from = problem.worker(device), to = problem.worker(other);
        EXPECT_EQ(rates[at(other)], std::min(chain.cluster.link(from, to).bytes_per_second,
                                             chain.cluster.link(to, from).bytes_per_second) /
                                        1e9);
      }
    }
    for (const int32_t one : sets[0]) {
      for (const int32_t other : sets[0]) {
        if (one != other) inside = std::min(inside, problem.rate(one, other));
      }
      for (const int32_t other : sets[1]) between = std::min(between, problem.rate(one, other));
    }
    EXPECT_EQ(slowest_inside(problem, sets[0]), inside);
    EXPECT_EQ(slowest_between(problem, sets[0], sets[1]), between);
  }
}

TEST(DeviceKinds, AreExchangeableByEveryRate) {
  int32_t joined = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(6, seed));
    const PlannedChain chain = scattered_chain(random, static_cast<int32_t>(2 + random.below(30)));
    const LayoutProblem problem = problem_of(chain);
    const DeviceKinds kinds(problem);
    for (int32_t one = 0; one < problem.device_count(); ++one) {
      for (int32_t other = 0; other < one; ++other) {
        bool equal = true;
        for (int32_t third = 0; third < problem.device_count(); ++third) {
          if (third == one || third == other) continue;
          equal = equal && problem.rate(one, third) == problem.rate(other, third);
        }
        if (kinds.kind(one) == kinds.kind(other)) {
          ++joined;
          EXPECT_TRUE(equal) << one << " and " << other;
        }
      }
    }
  }
  EXPECT_GT(joined, 100);
}

// A stage of very many kinds of devices has the loads that its layout has.
TEST(Draft, CountsManyKinds) {
  PlannedChain chain = node_chain(4, 90, 2);
  for (int32_t device = 0; device < 180; device += 7) {
    chain.cluster.exceptions[{WorkerId{device}, WorkerId{179 - device}}] = {{}, 2e9};
  }
  const LayoutProblem problem = problem_of(chain);
  const DraftTable table(problem);
  Layout layout = {{0, 1, {}}, {1, 4, {}}};
  for (int32_t device = 0; device < 180; ++device) {
    layout[device % 3 == 0 ? 0 : 1].holders.push_back(WorkerId{device});
  }
  const Draft draft = table.draft(layout);
  EXPECT_GT(draft.stages[1].devices.size(), 64u);
  expect_loads(problem, table, draft);
}

TEST(Draft, KeepsTheLoadsOfItsLayoutWhateverMoves) {
  for (uint64_t seed = 0; seed < (kSanitized ? 4 : 20); ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(3, seed));
    const PlannedChain chain =
        seed % 2 == 0 ? node_chain(9, 3, 3) : random_chain(seed, seed % 4 == 1);
    const LayoutProblem problem = problem_of(chain);
    const DraftTable table(problem);
    Draft draft = table.draft({{0, problem.layer_count(), {problem.worker(0)}}});
    std::set<DraftMoveKind> kinds;
    for (int step = 0; step < 200; ++step) {
      std::vector<DraftMove> moves = device_moves(draft, step % 3 == 0 ? 0 : 10'000, 10, random);
      const std::vector<DraftMove> cuts = cut_moves(draft);
      moves.insert(moves.end(), cuts.begin(), cuts.end());
      if (moves.empty()) continue;  // no random move was possible
      const DraftMove& move =
          moves[static_cast<size_t>(random.below(static_cast<int64_t>(moves.size())))];
      make_move(table, move, draft);
      kinds.insert(move.kind);
      expect_loads(problem, table, draft);
      const double guess = guess_of(draft.loads);
      if (step % 5 == 0) balance_cuts(table, 0, problem.layer_count(), draft);
      EXPECT_LE(guess_of(draft.loads), guess);
      expect_loads(problem, table, draft);
      EXPECT_EQ(key_of(draft.loads), key_of(table.draft(table.layout(draft)).loads));
    }
    if (seed % 2 == 0) {
      EXPECT_EQ(kinds.size(), 6U) << "some kind of move was never made";
    }
  }
}

TEST(Draft, CountsAllDrafts) {
  constexpr double kMany = 1e18;
  int compared = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const PlannedChain chain = random_chain(seed, false);
    const LayoutProblem problem = problem_of(chain);
    const DraftTable table(problem);
    if (problem.device_count() == 2) continue;  // two devices are always of one kind
    ASSERT_EQ(table.kinds().count(), problem.device_count());
    const ExactLayout exact = exact_layout(chain.model, chain.cluster, chain.settings);
    EXPECT_EQ(draft_count(table, kMany), static_cast<double>(exact.layouts)) << "seed " << seed;
    ++compared;
  }
  EXPECT_GE(compared, 10);
  // Two equal devices and two layers: one device, both, or a stage on each.
  const PlannedChain chain = [] {
    PlannedChain two = node_chain(2, 1, 3);
    two.cluster.workers[2].alive = false;
    return two;
  }();
  const LayoutProblem problem = problem_of(chain);
  EXPECT_EQ(draft_count(DraftTable(problem), kMany), 3);
  EXPECT_GT(draft_count(DraftTable(problem), 1), 1);
}

TEST(SearchAllDrafts, FindsTheOptimumFromNothing) {
  for (const bool half_duplex : {false, true}) {
    for (uint64_t seed = 0; seed < (kSanitized ? 5 : 60); ++seed) {
      PlannedChain chain = random_chain(1000 + seed, half_duplex);
      if (seed % 2 == 1) chain = with_constants(std::move(chain), seed);
      const LayoutProblem problem = problem_of(chain);
      const DraftTable table(problem);
      DraftPricer pricer(table, 1e9, nullptr);
      pricer.set_effort(20, 20'000);
      EXPECT_TRUE(search_all_drafts(table, pricer, 1'000'000));
      const ExactLayout exact = exact_layout(chain.model, chain.cluster, chain.settings);
      EXPECT_NEAR(pricer.best().makespan, exact.makespan, 1e-9 * exact.makespan)
          << "half duplex " << half_duplex << ", seed " << 1000 + seed;
    }
  }
}

}  // namespace
}  // namespace tenuto
