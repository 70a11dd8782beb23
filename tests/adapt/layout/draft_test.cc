// Drafts: loads that are kept up to date are those of the layout, whatever is changed; devices of a
// kind are equal; and all drafts of small problems are counted and searched.
#include "adapt/layout/draft.h"

#include <gtest/gtest.h>

#include <algorithm>
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
