// Routing on meshes: the lower bound, the flow, the play of a step, the search.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "adapt/exact_mesh.h"
#include "adapt/mesh_bound.h"
#include "adapt/mesh_play.h"
#include "adapt/mixture.h"
#include "adapt/responses.h"
#include "adapt/route.h"
#include "base/text.h"
#include "sanitized.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

Duration ops(double count) {
  return Duration(std::llround(count * static_cast<double>(kMixtureOp.count())));
}

// Small enough to try everything.
Mesh tiny_mesh(Random& random) {
  for (;;) {
    Mesh mesh = random_mesh(random, 3, 3, 2);
    if (mesh.micros > 4) continue;
    mesh.pace = Pace::Barrier;
    for (auto& ways : mesh.ways) {
      for (Way& way : ways) way.down_busy = way.up_busy = {};
    }
    for (auto& stage : mesh.stages) {
      for (Holder& holder : stage) holder.update = {};
    }
    return mesh;
  }
}

TEST(MeshBound, IsNeverAboveTheBestStep) {
  constexpr int kMeshes = kSanitized ? 40 : 400;
  int proved = 0, tight = 0, best = 0;
  double above = 0;
  for (uint64_t seed = 0; seed < kMeshes; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(51, seed));
    const Mesh mesh = tiny_mesh(random);
    const Routed routed = search_route(mesh);
    const ExactStep exact = exact_step(mesh, routed.best().time, 60'000);
    EXPECT_LE(routed.bound, exact.makespan);
    if (!exact.proved) continue;
    ++proved;
    tight += routed.bound == exact.makespan;
    best += routed.best().time == exact.makespan;
    above += static_cast<double>(routed.best().time.count()) /
             static_cast<double>(exact.makespan.count());
  }
  RecordProperty("proved", proved);
  RecordProperty("tight", tight);
  RecordProperty("best", best);
  EXPECT_GE(proved, kMeshes * 3 / 4);
  EXPECT_GE(tight, proved / 2);      // the bound is often exact
  EXPECT_GE(best, proved * 7 / 10);  // the search mostly finds the best
  EXPECT_LE(above / proved, 1.03);
}

TEST(MeshBound, IsNeverAboveAStep) {
  double least = 2;
  for (uint64_t seed = 0; seed < 20'000; ++seed) {
    Random random(mix(47, seed));
    const Mesh mesh = random_mesh(random, 5, 3, 4);
    const Routing routing = random_routing(random, mesh);
    MeshPlayer player(mesh);
    const auto time = seed % 2 == 0
                          ? player.time(routing, global_orders(mesh, routing))
                          : player.time(routing, player.as_they_come(routing, {1, 2})->lists);
    ASSERT_TRUE(time) << "seed " << seed;
    const Duration bound = MeshBound(mesh).least();
    ASSERT_LE(bound, *time) << "seed " << seed;
    least = std::min(least, static_cast<double>(time->count()) /
                                static_cast<double>(std::max<int64_t>(bound.count(), 1)));
  }
  EXPECT_EQ(least, 1);  // at least one step is at the bound
}

TEST(MeshBound, DoesNotFallWithMoreMicroBatches) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(mix(53, seed));
    const Mesh mesh = random_mesh(random, 5, 4, 6);
    const MeshBound bound(mesh);
    for (int32_t s = 0; s < mesh.depth(); ++s) {
      const std::vector<int32_t> counts = bound.balanced(s);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), mesh.micros);
      for (int32_t i = 0; i < mesh.width(s); ++i) {
        for (int32_t n = 0; n < mesh.micros; ++n) {
          EXPECT_LE(bound.of(s, i, n), bound.of(s, i, n + 1));
        }
        const int32_t most = bound.most_within(s, i, bound.least());
        EXPECT_LE(bound.of(s, i, most), bound.least());
        if (most < mesh.micros) {
          EXPECT_GT(bound.of(s, i, most + 1), bound.least());
        }
      }
    }
  }
}

// The cost of a routing, as the flow counts it.
int64_t cost_of(const Mesh& mesh, const WayCosts& costs, const Routing& routing) {
  constexpr int64_t kAway = 1000;
  std::vector<int32_t> starts(at(mesh.width(0)), 0);
  int64_t cost = 0;
  for (int32_t m = 0; m < mesh.micros; ++m) {
    const int32_t first = routing[0][at(m)];
    const int32_t pipeline = mesh.holder(0, first).pipeline;
    const int32_t home = (mesh.micros - pipeline + mesh.pipelines - 1) / mesh.pipelines;
    if (starts[at(first)]++ >= home) cost += kAway;
    for (int32_t s = 0; s + 1 < mesh.depth(); ++s) {
      cost += costs.of(s, routing[at(s)][at(m)], routing[at(s) + 1][at(m)]);
    }
  }
  return cost;
}

// The least cost of all routings within the counts.
int64_t least_cost(const Mesh& mesh, const WayCosts& costs, const Counts& counts) {
  Routing routing(at(mesh.depth()), std::vector<int32_t>(at(mesh.micros), 0));
  int64_t least = INT64_MAX;
  for (;;) {
    bool kept = true;
    for (int32_t s = 0; s < mesh.depth(); ++s) {
      for (int32_t i = 0; i < mesh.width(s); ++i) {
        kept = kept &&
               std::count(routing[at(s)].begin(), routing[at(s)].end(), i) <= counts[at(s)][at(i)];
      }
    }
    if (kept) least = std::min(least, cost_of(mesh, costs, routing));
    int32_t place = 0;
    const int32_t all = mesh.depth() * mesh.micros;
    for (; place < all; ++place) {
      int32_t& of = routing[at(place / mesh.micros)][at(place % mesh.micros)];
      if (++of < mesh.width(place / mesh.micros)) break;
      of = 0;
    }
    if (place == all) return least;
  }
}

TEST(Flow, IsTheCheapestWithinTheCounts) {
  int routed = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(57, seed));
    const Mesh mesh = tiny_mesh(random);
    if (mesh.depth() * mesh.micros > 9) continue;
    Counts counts;
    for (int32_t s = 0; s < mesh.depth(); ++s) {
      auto& of = counts.emplace_back();
      for (int32_t i = 0; i < mesh.width(s); ++i) {
        of.push_back(static_cast<int32_t>(random.below(mesh.micros + 1)));
      }
    }
    const WayCosts costs(mesh);
    const auto flow = cheapest_flow(mesh, costs, counts);
    const bool enough = std::all_of(counts.begin(), counts.end(), [&](const auto& of) {
      return std::accumulate(of.begin(), of.end(), 0) >= mesh.micros;
    });
    ASSERT_EQ(flow.has_value(), enough);
    if (!enough) continue;
    ++routed;
    const Routing routing = assign_micros(mesh, *flow);
    EXPECT_EQ(cost_of(mesh, costs, routing), least_cost(mesh, costs, counts));
    for (int32_t s = 0; s < mesh.depth(); ++s) {
      for (int32_t i = 0; i < mesh.width(s); ++i) {
        EXPECT_LE(std::count(routing[at(s)].begin(), routing[at(s)].end(), i),
                  counts[at(s)][at(i)]);
      }
    }
  }
  EXPECT_GT(routed, 30);
}

// assign_micros() sends over each way exactly as many micro-batches as the flow says.
TEST(Flow, IsDealtExactly) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(mix(59, seed));
    const Mesh mesh = random_mesh(random, 6, 4, 8);
    const MeshBound bound(mesh);
    Counts counts;
    for (int32_t s = 0; s < mesh.depth(); ++s) counts.push_back(bound.balanced(s));
    const Flow flow = *cheapest_flow(mesh, WayCosts(mesh), counts);
    const Routing routing = assign_micros(mesh, flow);
    std::vector<int32_t> starts(flow.starts.size(), 0);
    for (const int32_t i : routing[0]) ++starts[at(i)];
    EXPECT_EQ(starts, flow.starts);
    for (int32_t s = 0; s + 1 < mesh.depth(); ++s) {
      std::vector<int32_t> over(flow.over[at(s)].size(), 0);
      for (int32_t m = 0; m < mesh.micros; ++m) {
        ++over[at(routing[at(s)][at(m)] * mesh.width(s + 1) + routing[at(s) + 1][at(m)])];
      }
      EXPECT_EQ(over, flow.over[at(s)]);
    }
  }
}

// Orders that are made as inputs arrive contain every micro-batch once, with the weight gradients
// in the global order. A step with these orders ends, even with memory for one micro-batch.
TEST(MeshPlayer, OrdersMadeAtRunTimeAreComplete) {
  int free = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(61, seed));
    Mesh mesh = random_mesh(random, 5, 4, 5);
    if (seed % 3 == 0) {
      for (auto& stage : mesh.stages) {
        for (Holder& holder : stage) holder.memory = {1 + random.below(2), 1, 1};
      }
    }
    const Routing routing = random_routing(random, mesh);
    MeshPlayer player(mesh);
    const auto below = [&](int32_t bound) { return static_cast<int32_t>(random.below(bound)); };
    const Patience patience{below(3), below(3), below(4 * mesh.pipelines) - 2 * mesh.pipelines};
    const PlayedStep played = *player.as_they_come(routing, patience);
    const Orders orders = orders_of(played.lists);
    if (mesh.pace == Pace::Barrier) {  // with fixed lists a holder waits only for inputs
      EXPECT_GE(played.time, player.time(routing, played.lists));
    }
    const Orders global = global_orders(mesh, routing);
    free += orders != global;
    for (int32_t s = 0; s < mesh.depth(); ++s) {
      for (int32_t i = 0; i < mesh.width(s); ++i) {
        Tasks tasks = orders[at(s)][at(i)];
        EXPECT_EQ(tasks.weights, global[at(s)][at(i)].weights);
        std::sort(tasks.forwards.begin(), tasks.forwards.end());
        std::sort(tasks.backwards.begin(), tasks.backwards.end());
        EXPECT_EQ(tasks, global[at(s)][at(i)]);
      }
    }
    EXPECT_TRUE(player.time(routing, orders));
    EXPECT_TRUE(player.time(routing, global));
  }
  EXPECT_GT(free, 500);
}

// A play that is broken off would have taken longer than the limit.
TEST(MeshPlayer, OnlyStepsAboveTheLimitAreBrokenOff) {
  int broken = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(71, seed));
    Mesh mesh = random_mesh(random, 5, 4, 5);
    mesh.pace = Pace::Barrier;
    const Routing routing = random_routing(random, mesh);
    MeshPlayer player(mesh);
    if (seed % 3 == 0) player.set_most(std::vector<int32_t>(mesh.stages.size(), 2));
    const TaskLists lists = player.as_they_come(routing, {1, 2})->lists;
    const Orders global = global_orders(mesh, routing);
    for (const Duration time : {*player.time(routing, lists), *player.time(routing, global)}) {
      for (const int32_t percent : {50, 80, 95, 99, 100, 101}) {
        const Duration most = time * percent / 100;
        const auto listed = player.time(routing, lists, most);
        const auto ordered = player.time(routing, global, most);
        EXPECT_TRUE(listed || *player.time(routing, lists) > most);
        EXPECT_TRUE(ordered || *player.time(routing, global) > most);
        broken += !listed + !ordered;
      }
    }
  }
  EXPECT_GT(broken, 5000);
}

// The lists of a play, run as fixed lists, take as long as the play, also by independent code.
TEST(MeshPlayer, ListsTakeAsLongAsThePlay) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Random random(mix(67, seed));
    Mesh mesh = random_mesh(random, 5, 3, 5);
    const bool periods = mesh.pace != Pace::Barrier;
    for (auto& ways : mesh.ways) {
      for (Way& way : ways) way.down_busy = way.up_busy = {};
    }
    for (auto& stage : mesh.stages) {
      for (Holder& holder : stage) holder.update = {};
    }
    const Routing routing = random_routing(random, mesh);
    MeshPlayer player(mesh);
    const Orders orders = orders_of(player.as_they_come(routing)->lists);
    const auto lists = player.lists(routing, orders);
    ASSERT_TRUE(lists);
    const auto listed = player.time(routing, *lists);
    ASSERT_TRUE(listed);
    if (!periods) {
      EXPECT_EQ(listed, player.time(routing, orders));
      EXPECT_EQ(listed, listed_time(mesh, routing, *lists));
    } else if (mesh.pace == Pace::Joint) {
      EXPECT_EQ(listed, listed_time(mesh, routing, *lists));
    }
  }
}

TEST(Route, WithoutTroubleMicrosStayInTheirPipeline) {
  const Mesh mesh = mesh_with({4, 3, 6}, {}, 8, Pace::Joint);
  const Routed routed = search_route(mesh);
  EXPECT_EQ(routed.ready.routing, even_routing(mesh));
  EXPECT_EQ(routed.best().time, ops(18 + 1));
}

// The peers of a dead worker share its work. With memory for twice as many micro-batches as stages,
// the step is at the bound.
TEST(Route, ADeadWorkersLoadIsShared) {
  for (const auto& [size, time] :
       {std::pair(MixtureSize{4, 3, 6}, 27), std::pair(MixtureSize{8, 4, 32}, 129)}) {
    const std::vector<Mishap> dead = {{MishapKind::DeadWorker, 0, 0, size.stages / 2}};
    const Mesh mesh = mesh_with(size, dead, 2 * size.stages, Pace::Joint);
    const Routed routed = search_route(mesh);
    EXPECT_EQ(routed.best().time, ops(time));
    EXPECT_EQ(routed.bound, routed.best().time);
  }
}

// Micro-batches leave a slow link for the link of another pipeline if that is faster.
TEST(Route, MicrosLeaveASlowLink) {
  const std::vector<Mishap> slow = {{MishapKind::SlowLink, 4, 1, 3}};
  const MixtureSize size{8, 4, 32};
  const Mesh mesh = mesh_with(size, slow, 2 * size.stages, Pace::Joint);
  const Routed routed = search_route(mesh);
  EXPECT_LE(routed.best().time, ops(96.1));
  MeshPlayer player(mesh);
  const Routing home = even_routing(mesh);
  EXPECT_GT(*player.time(home, global_orders(mesh, home)), ops(99));
}

// At most 1 % slower than any of the published responses on the same mesh.
TEST(Route, KeepsUpWithPublishedResponses) {
  int compared = 0;
  for (const char* row : {"slow2", "link4", "card2", "dead", "pair", "triple", "six"}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      for (const double memory : {1.0, 2.0}) {
        Random random(mix(71, seed));
        Mixture it;
        it.size = {4, 3, 12};
        it.troubles = draw_troubles(random, it.size, row);
        it.slots = static_cast<int32_t>(memory * it.size.stages);
        it.pace = seed % 2 == 0 ? Pace::Barrier : Pace::Joint;
        const Mesh mesh = mesh_with(it.size, it.troubles, it.slots, it.pace);
        const Routed routed = search_route(mesh);
        EXPECT_LE(routed.bound, routed.best().time);
        for (const Response& response : responses()) {
          const auto time = response.time(it);
          if (!time) continue;
          ++compared;
          EXPECT_LE(routed.bound, *time) << row << " " << seed << " " << response.name;
          EXPECT_LE(routed.best().time.count(), time->count() * 1.01)
              << row << " " << response.name;
        }
      }
    }
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace tenuto
