#include "control/planning.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "control/commit.h"

namespace tenuto {
namespace {

// Ignore a round trip that has grown by less than both of these: so small a delay would change no
// plan, and on a busy host the scheduler alone causes as much.
constexpr Duration kLeastGain = std::chrono::microseconds(300);
constexpr double kLeastOpShare = 0.1;  // of the typical op

void leave_out(MonitorState& monitor, WorkerId worker) {
  const auto at = static_cast<size_t>(worker.value);
  for (Cluster* cluster : {&monitor.healthy, &monitor.cluster}) {
    if (at < cluster->workers.size()) cluster->workers[at].alive = false;
  }
}

// The median; the vector is not empty.
Duration middle(std::vector<Duration> times) {
  const auto place = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), place, times.end());
  return *place;
}

// How many holders of the stage are slow.
int64_t count_slow(const Stage& stage, const MonitorState& monitor) {
  const auto speed = [](const Cluster& cluster, WorkerId worker) {
    return cluster.workers[static_cast<size_t>(worker.value)].speed;
  };
  return std::count_if(stage.holders.begin(), stage.holders.end(), [&](WorkerId holder) {
    return speed(monitor.cluster, holder) < speed(monitor.healthy, holder);
  });
}

// The time of an op of the stage at speed 1. The speed of a worker is relative to the least time of
// the stage. So if all holders are slow, it is that least time: the latest times, divided by the
// speed, would count slowness twice. If no holder is slow and the latest times are much longer,
// then they are those of a slow worker from which the layer has moved.
Duration time_of(const StageTimes& times, const Stage& stage, const MonitorState& monitor) {
  constexpr double kMuchLonger = 1.25;  // a worker with such times would be slow
  const Duration latest = middle(times.latest);
  if (times.least.count() == 0) return latest;
  const int64_t slow = count_slow(stage, monitor);
  const bool moved = slow == 0 && static_cast<double>(latest.count()) >
                                      kMuchLonger * static_cast<double>(times.least.count());
  return moved || slow == std::ssize(stage.holders) ? times.least : latest;
}

// The model with measured op times in the place of the profiled ones.
Model measured_model(const Model& profiled, const Plan& plan, const MonitorState& monitor) {
  Model model = profiled;
  model.layers.resize(static_cast<size_t>(plan.stages.back().layer_end));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    // `constant`: the constant cost of an op; it is part of its measured time, not of its layers.
    const auto put = [&](OpKind kind, Duration Layer::*part, Duration constant) {
      const auto seen = monitor.stages.find({StageId{static_cast<int32_t>(s)}, kind});
      if (seen == monitor.stages.end() || seen->second.latest.empty()) return false;
      // If the backward is not split, its measured time includes the gradients of the weights.
      const bool whole = kind == OpKind::BackwardInput && !plan.split_backward;
      for (int32_t layer = stage.layer_first; layer < stage.layer_end; ++layer) {
        model.layers[static_cast<size_t>(layer)].*part = {};
        if (whole) model.layers[static_cast<size_t>(layer)].backward_weight = {};
      }
      const Duration time = time_of(seen->second, stage, monitor);
      model.layers[static_cast<size_t>(stage.layer_first)].*part =
          std::max(time - constant, Duration{});
      return true;
    };
    put(OpKind::Forward, &Layer::forward, model.op);
    if (put(OpKind::BackwardInput, &Layer::backward_input, model.op) && stage.recompute) {
      // The measured time contains the second forward, but stage_cost() adds it: subtract it here.
      Duration& time = model.layers[static_cast<size_t>(stage.layer_first)].backward_input;
      time = std::max(Duration{}, time - stage_cost(model, stage).forward);
    }
    put(OpKind::BackwardWeight, &Layer::backward_weight, {});
  }
  return model;
}

}  // namespace

Planning begin_planning(const Rules& rules) {
  Planning planning;
  planning.present = planning.previous = rules.plan;
  planning.present_name = planning.previous_name = cat(rules.epoch);
  planning.from = rules.first_committed();
  planning.troubles = TroubleLog(rules.first_step);
  planning.treatments = rules.treatments;
  MonitorOptions options;
  options.least_gain = kLeastGain;
  options.least_op_share = kLeastOpShare;
  planning.monitor = std::make_shared<const MonitorState>(make_monitor(rules.cluster, options));
  return planning;
}

void leave_out(Planning& planning, WorkerId worker) {
  MonitorState monitor = *planning.monitor;
  leave_out(monitor, worker);
  planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
}

void forget_worker(Planning& planning, WorkerId worker) {
  MonitorState monitor = forget(*planning.monitor, worker);
  leave_out(monitor, worker);
  for (Cluster* cluster : {&monitor.healthy, &monitor.cluster}) {
    std::erase_if(cluster->exceptions, [&](const auto& link) {
      return link.first.first == worker || link.first.second == worker;
    });
  }
  planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
}

void readmit(Planning& planning, const Rules& rules, WorkerId worker) {
  MonitorState monitor = *planning.monitor;
  const auto at = static_cast<size_t>(worker.value);
  for (Cluster* cluster : {&monitor.healthy, &monitor.cluster}) {
    if (at >= cluster->workers.size()) continue;
    cluster->workers[at] = rules.cluster.workers[at];
    cluster->workers[at].alive = true;
    for (const auto& [ends, link] : rules.cluster.exceptions) {
      if (ends.first != worker && ends.second != worker) continue;
      const WorkerId other = ends.first == worker ? ends.second : ends.first;
      if (cluster->workers[static_cast<size_t>(other.value)].alive)
        cluster->exceptions[ends] = link;
    }
  }
  planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
}

PlanRequest question_of(const State& state, std::shared_ptr<const Plan> present, bool routing) {
  const Planning& planning = state.planning;
  Model model = measured_model(state.rules.model, *present, *planning.monitor);
  RemedyTerms terms;
  terms.routes = routing;
  terms.layers =
      planning.treatments.layers != Treatment::Off && state.situation == Situation::Running;
  terms.only_observes_layers = planning.treatments.layers == Treatment::Observe;
  terms.troubles = planning.troubles.known(open_step(state));
  terms.troubles.lasted = open_step(state) - planning.changed_at;
  terms.left = state.stop_at - state.committed;
  terms.healthy = {planning.monitor, &planning.monitor->healthy};
  terms.home = state.grown ? state.rules.whole : state.rules.plan;
  return {planning.request, std::move(present), std::move(model), planning.monitor->cluster, terms};
}

DecisionPart propose(const State& state, std::shared_ptr<const Plan> plan,
                     const std::string& reason, bool interim) {
  DecisionPart out;
  out.say(cat("plan ", state.planning.serial + 1, " (", plan->order, ") is proposed: ", reason));
  out.edits.add(PlanProposed{std::move(plan), interim});
  return out;
}

}  // namespace tenuto
