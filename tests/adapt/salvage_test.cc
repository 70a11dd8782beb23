// The rest of a step after losses: right in every case, and with no unneeded ops.
#include "adapt/salvage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "adapt/hash_cluster.h"
#include "adapt/random_losses.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "plan/make_plan.h"
#include "plan/routed.h"
#include "sanitized.h"

namespace tenuto {
namespace {

constexpr int32_t kRuns = kSanitized ? 100 : 400;

TEST(Salvage, WithoutAnyValuesTheWholeStepIsLeft) {
  const Plan plan = plan_of(3, 3, 4);
  std::vector<bool> alive(9, true);
  alive[4] = false;
  const auto rest = salvage(plan, std::vector<Inventory>(9), alive);
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(rest.value().plan, without_workers(plan, alive).value());
  EXPECT_EQ(rest.value().ops, 3 * 3 * 12);
}

TEST(Salvage, AStageWithoutAHolderIsRefused) {
  const Plan plan = plan_of(2, 2, 2);
  const auto rest = salvage(plan, std::vector<Inventory>(4), {false, true, false, true});
  ASSERT_FALSE(rest.ok());
  EXPECT_EQ(rest.error().code, Code::Infeasible);
}

TEST(Salvage, EveryKillPointOfSmallPlans) {
  int64_t runs = 0, ops = 0, planned = 0, copied = 0, back = 0;
  for (const auto& [stages, pipelines, micros] :
       {std::tuple(2, 2, 1), std::tuple(2, 2, 2), std::tuple(3, 2, 2), std::tuple(2, 3, 2)}) {
    const Plan plan = plan_of(stages, pipelines, micros);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const Ran whole = run_disturbed(plan, {seed, {}, true, Broken::Nothing, {}});
      ASSERT_EQ(whole.failure, "");
      for (int32_t w = 0; w < stages * pipelines; ++w) {
        for (int64_t event = 0; event <= whole.events; event += kSanitized ? 4 : 1) {
          const Ran ran = run_disturbed(plan, {seed, {{event, {w}}}, true, Broken::Nothing, {}});
          ASSERT_EQ(ran.failure, "") << stages << " x " << pipelines << " x " << micros << ", seed "
                                     << seed << ", worker " << w << " after " << event;
          ++runs, ops += ran.ops, planned += whole.ops, copied += ran.copied, back += ran.back;
        }
      }
    }
  }
  std::printf("%ld kill points, %.3f ops run per op, %ld totals copied, %ld Steps taken back\n",
              static_cast<long>(runs), static_cast<double>(ops) / static_cast<double>(planned),
              static_cast<long>(copied), static_cast<long>(back));
  EXPECT_GT(copied, 0);
}

TEST(Salvage, LossesInRecovery) {
  const auto [failed, first] = random_runs(kRuns, Broken::Nothing);
  EXPECT_EQ(failed, 0) << first;
}

TEST(Salvage, RandomLossesWithoutKeptValues) {
  const auto [failed, first] = random_runs(kRuns, Broken::Nothing, false);
  EXPECT_EQ(failed, 0) << first;
}

// Breaks each rule of recovery: some of the runs must fail.
TEST(Salvage, BrokenRulesAreFound) {
  for (const auto& [broken, name] :
       {std::pair(Broken::InPlace, "INPLACE"), std::pair(Broken::Total, "TOTAL"),
        std::pair(Broken::Stale, "STALE"), std::pair(Broken::NoKeep, "NOKEEP"),
        std::pair(Broken::NoRedo, "NOREDO"), std::pair(Broken::FreeTotal, "FREETOTAL")}) {
    // NoRedo shows only if a worker that has stepped must make an output again. If sent values are
    // kept, that takes two losses at once.
    const bool keep = broken != Broken::NoRedo;
    const auto [failed, first] = random_runs(keep ? 100 : 400, broken, keep);
    std::printf("%-9s %3d of %d runs; %s\n", name, failed, keep ? 100 : 400,
                first.substr(0, first.find('\n')).c_str());
    EXPECT_GT(failed, 0) << name;
  }
}

// After a stage has stepped, the sender of its last gradient dies and the gradient is lost. Another
// holder takes its Step back, makes the gradient again, and steps with the total that it kept.
TEST(Salvage, ALostLastGradientUndoesAStep) {
  const Plan plan = plan_of(2, 2, 1);
  const auto value = [](ValueKind kind, int32_t stage, int32_t micro) {
    return Value{kind, -1, {stage}, {micro}};
  };
  std::vector<Inventory> inventories(4);
  // Workers 0 and 2 hold the first stage, 1 and 3 the second; workers 2 and 3 run micro-batch 1.
  // The second stage has stepped everywhere. Worker 3 has sent gradient 1 and dies before it
  // arrives.
  inventories[0].values = {value(ValueKind::Partial, 0, 0), value(ValueKind::Activation, 0, 0)};
  inventories[2].values = {value(ValueKind::Stash, 0, 1), value(ValueKind::Activation, 0, 1)};
  inventories[1].values = {value(ValueKind::Total, 1, -1), value(ValueKind::Gradient, 1, 0)};
  inventories[1].stepped = {{1}};
  const auto rest = salvage(plan, inventories, {true, true, true, false});
  ASSERT_TRUE(rest.ok());
  EXPECT_TRUE(check(rest.value().plan, {}, rest.value().stores).ok());
  EXPECT_EQ(rest.value().back, (std::vector<TakenBack>{{{1}, {1}}}));
  // Micro-batch 1: forward and input gradient at the second stage, then the backward at the first.
  EXPECT_EQ(rest.value().ops, 4);
  EXPECT_EQ(rest.value().sent_again, 1);
}

TEST(Salvage, CheckFindsMissingAndDoubledValues) {
  const Plan plan = plan_of(2, 2, 2);
  std::vector<bool> alive = {true, true, true, false};
  std::vector<Inventory> inventories(4);
  inventories[1].values = {{ValueKind::Partial, -1, {1}, {0}}};
  const auto made = salvage(plan, inventories, alive);
  ASSERT_TRUE(made.ok());
  const Rest& rest = made.value();
  EXPECT_TRUE(check(rest.plan, {}, rest.stores).ok());
  Stores without = rest.stores;
  without[1].clear();
  EXPECT_FALSE(check(rest.plan, {}, without).ok());
  Stores twice = rest.stores;
  twice[1].push_back({ValueKind::Partial, -1, {1}, {1}});
  EXPECT_FALSE(check(rest.plan, {}, twice).ok());
  Stores total = rest.stores;
  total[1].push_back({ValueKind::Total, -1, {1}, {}});
  EXPECT_FALSE(check(rest.plan, {}, total).ok());
}

// What each worker has when the priced step is cut off at `now`; an op under way is not done.
std::vector<Inventory> inventories_at(const Plan& plan, const Timeline& timeline, Duration now) {
  std::vector<Span> spans = timeline.spans;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.finish < b.finish; });
  std::vector<std::set<Value>> stores(plan.schedule.lists.size());
  std::vector<Inventory> inventories(stores.size());
  for (const Span& span : spans) {
    if (span.finish > now) break;
    const auto w = static_cast<size_t>(span.worker.value);
    const Effect effect = effect_of(span.op, plan.schedule.stage_count);
    for (const Value& value : effect.free) {
      if (means_every(value)) continue;
      stores[w].erase(value);
      if (span.op.kind == OpKind::Send) inventories[w].values.push_back(value);
    }
    stores[w].insert(effect.write.begin(), effect.write.end());
    if (span.op.kind == OpKind::Step) inventories[w].stepped.push_back(span.op.stage);
  }
  for (size_t w = 0; w < stores.size(); ++w) {
    inventories[w].values.insert(inventories[w].values.end(), stores[w].begin(), stores[w].end());
  }
  return inventories;
}

// A loss at any time costs hardly more than if the worker had been missing from the beginning of
// the step; a replay costs half a step more.
TEST(Salvage, ALossCostsHardlyMoreThanAMissingWorker) {
  std::printf("(S,D,M)      T, T' in ops   over T': replay, salvage; ops left of all\n");
  for (const auto& [stages, pipelines, micros] :
       {std::tuple(2, 2, 4), std::tuple(4, 3, 6), std::tuple(8, 4, 16)}) {
    Shape shape;
    shape.stages = stages;
    shape.pipelines = pipelines;
    shape.micros = micros;
    shape.order = "zb-h1";
    shape.split_backward = true;
    shape.dispatch = Dispatch::Ready;
    const Plan plan = make_plan(shape).value();
    const Cluster cluster = uniform_cluster(stages * pipelines, {});
    Model model;
    Layer layer;
    layer.forward = layer.backward_input = layer.backward_weight = from_milliseconds(1);
    model.layers.assign(static_cast<size_t>(stages), layer);
    PriceOptions options;
    options.spans = true;
    const Timeline whole = price(plan, model, cluster, options).value();
    double replay = 0, salvaged = 0, away = 0, share = 0;
    constexpr int32_t kKills = 40;
    Random random(7);
    for (int32_t k = 0; k < kKills; ++k) {
      std::vector<bool> alive(cluster.workers.size(), true);
      alive[static_cast<size_t>(random.below(stages * pipelines))] = false;
      const Duration now{random.below(whole.makespan.count())};
      const auto got = recover(plan, inventories_at(plan, whole, now), alive, model, cluster);
      ASSERT_TRUE(got.ok()) << got.error().message;
      EXPECT_LE(got.value().price, got.value().replay);
      away += to_milliseconds(got.value().replay) / kKills;
      salvaged += to_milliseconds(now + got.value().price) / kKills;
      replay += to_milliseconds(now + got.value().replay) / kKills;
      share += static_cast<double>(got.value().rest.ops) / kKills;
    }
    const double step = to_milliseconds(whole.makespan);
    std::printf("(%d,%d,%d)%*s %6.1f %6.1f   %+.3f T %+.3f T   %.2f\n", stages, pipelines, micros,
                micros > 9 ? 4 : 5, "", step, away, (replay - away) / step,
                (salvaged - away) / step, share / (3.0 * stages * pipelines * micros));
    EXPECT_LT(salvaged, replay - 0.2 * step);
    EXPECT_LT(salvaged, away + 0.1 * step);
  }
}

}  // namespace
}  // namespace tenuto
