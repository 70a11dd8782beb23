#include "adapt/random_losses.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "plan/make_plan.h"

namespace tenuto {

namespace {

// True when every stage keeps a holder.
bool survivable(const Plan& plan, const std::vector<std::pair<int64_t, WorkerId>>& kills) {
  return std::all_of(plan.stages.begin(), plan.stages.end(), [&](const Stage& stage) {
    return std::any_of(stage.holders.begin(), stage.holders.end(), [&](WorkerId holder) {
      return std::none_of(kills.begin(), kills.end(),
                          [&](const auto& kill) { return kill.second == holder; });
    });
  });
}

}  // namespace

Plan plan_of(int32_t stages, int32_t pipelines, int32_t micros, bool split) {
  Shape shape;
  shape.stages = stages;
  shape.pipelines = pipelines;
  shape.micros = micros;
  shape.order = split ? "zb-h1" : "1f1b";
  shape.split_backward = split;
  auto plan = make_plan(shape);
  CHECK(plan.ok(), "a small plan");
  return plan.value();
}

std::pair<int32_t, std::string> random_runs(int32_t count, Broken broken, bool keep) {
  int32_t failed = 0;
  std::string first;
  for (int32_t i = 0; i < count; ++i) {
    Random random(mix(41, static_cast<uint64_t>(i)));
    const auto stages = static_cast<int32_t>(2 + random.below(3));
    const auto pipelines = static_cast<int32_t>(2 + random.below(3));
    // One after the other: compilers differ in the order in which they evaluate arguments.
    const bool split = random.below(4) > 0;
    const auto micros = static_cast<int32_t>(1 + random.below(3));
    const Plan plan = plan_of(stages, pipelines, micros, split);
    Disturbance it{mix(43, static_cast<uint64_t>(i)), {}, keep, broken, {}};
    const int64_t events = run_disturbed(plan, {it.seed, {}, true, Broken::Nothing, {}}).events;
    if (random.below(2) == 0) it.slow = {static_cast<int32_t>(random.below(stages * pipelines))};
    const int64_t kills = 1 + random.below(3);
    // In half of the runs the kills come late, when some workers have reduced or stepped and others
    // have not.
    int64_t event = random.below(2) == 0 ? random.below(events) : events * 4 / 5;
    for (int64_t k = 0; k < kills; ++k) {
      event += random.below(std::max<int64_t>(events / 5, 2));
      const WorkerId victim{static_cast<int32_t>(random.below(stages * pipelines))};
      it.kills.emplace_back(event, victim);
      if (!survivable(plan, it.kills)) it.kills.pop_back();
    }
    const Ran ran = run_disturbed(plan, it);
    if (ran.failure.empty()) continue;
    ++failed;
    if (first.empty()) first = cat("run ", i, ": ", ran.failure);
  }
  return {failed, first};
}

}  // namespace tenuto
