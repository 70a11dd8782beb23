// A run that goes on when workers die; a test plays the workers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "control/play.h"
#include "plan/make_plan.h"

namespace tenuto {

inline constexpr Duration kMillisecond = std::chrono::milliseconds(1);
inline const WorkerId kDead{3};  // stage 1 of pipeline 1

// Two pipelines of two stages, of which any worker may die.
inline Rules surviving_rules() {
  Shape shape;
  shape.stages = shape.layers = 2;
  shape.pipelines = 2;
  shape.micros = 1;
  shape.order = "1f1b";
  const auto plan = make_plan(shape);
  CHECK(plan.ok(), "a small plan");
  Rules rules = small_rules();
  rules.checkpoint_every = 0;
  rules.evaluation_count = 2;
  rules.plan = std::make_shared<const Plan>(plan.value());
  rules.stages = plan.value().stages;
  rules.model.layers.resize(2);
  rules.cluster = uniform_cluster(4, {kMillisecond, 0});
  rules.survive = true;
  rules.lost_limit = 2 * kSecond;
  return rules;
}

// A run whose workers take steps as their plans say, and die.
class Survival : public Play {
 public:
  explicit Survival(const Rules& rules = surviving_rules()) : Play(rules) { connect(); }

  Decision die(WorkerId worker = kDead) { return hear(Exited{worker, true, 9, ""}); }
  // All live workers hear the newest directive, undo steps that are not committed, and run.
  void run() {
    for (size_t i = 0; i < reports.size(); ++i) {
      if (!state.members[i].alive) continue;
      Report& of = reports[i];
      if (of.version > state.committed) {
        of.version = state.committed;
        of.steps.clear();
      }
      of.epoch = state.told.directive.epoch;
      of.plan = state.told.plan_serial;
      of.phase = Phase::Running;
      keep(report(i));
    }
  }
  // One worker takes a step, and reports the losses of the micro-batches whose last stage it runs.
  Decision take(size_t i) {
    Report& of = reports[i];
    StepSummary summary{.step = of.version, .start_ns = 1, .finish_ns = 2};
    const Plan& plan = *plan_of_now();
    for (const Op& op : plan.schedule.lists[i]) {
      if (op.kind != OpKind::Forward || op.stage.value != 1) continue;
      summary.losses.push_back({op.micro, 3.0 + op.micro.value});
    }
    of.steps = {summary};
    of.version += 1;
    return report(i);
  }
  void take_all() {
    for (size_t i = 0; i < reports.size(); ++i) {
      if (state.members[i].alive) keep(take(i));
    }
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) take_all();
  }
  const Plan* plan_of_now() const { return state.planning.present.get(); }
  void keep(const Decision& decision) {
    if (!decision.reason.empty()) reasons.push_back(decision.reason);
    if (decision.wanted) wanted = decision.wanted;
    for (const StepRecord& step : decision.steps) done.push_back(step);
  }

  std::vector<std::string> reasons;
  std::vector<StepRecord> done;
  std::optional<PlanRequest> wanted;
};

}  // namespace tenuto
