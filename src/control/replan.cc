#include "control/replan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "control/join.h"
#include "control/recover.h"
#include "ir/effect.h"
#include "plan/lower.h"

namespace tenuto {
namespace {

// Workers may be one step beyond the last commit, so this is the first that none has begun.
constexpr int64_t kStepsAhead = 2;

constexpr const char* kSlowLinks[] = {"off", "observe", "adapt"};

// Ignore a round trip that has grown by less than both of these: it would change no plan, and on a
// busy host the scheduler alone causes as much.
constexpr Duration kLeastGain = std::chrono::microseconds(300);
constexpr double kLeastOpShare = 0.1;  // of the typical op

std::string percent(double share) { return cat(fixed(100 * share, 1), " %"); }

// The median; the vector is not empty.
Duration middle(std::vector<Duration> times) {
  const auto place = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), place, times.end());
  return *place;
}

// The model with measured op times in the place of the profiled ones.
Model measured_model(const Model& profiled, const Plan& plan, const MonitorState& monitor) {
  Model model = profiled;
  model.layers.resize(static_cast<size_t>(plan.stages.back().layer_end));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const auto put = [&](OpKind kind, Duration Layer::*part) {
      const auto seen = monitor.stages.find({StageId{static_cast<int32_t>(s)}, kind});
      if (seen == monitor.stages.end() || seen->second.latest.empty()) return;
      for (int32_t layer = stage.layer_first; layer < stage.layer_end; ++layer) {
        model.layers[static_cast<size_t>(layer)].*part = {};
      }
      model.layers[static_cast<size_t>(stage.layer_first)].*part = middle(seen->second.latest);
    };
    put(OpKind::Forward, &Layer::forward);
    put(OpKind::BackwardInput, &Layer::backward_input);
    put(OpKind::BackwardWeight, &Layer::backward_weight);
  }
  return model;
}

// True when slow workers alone are a reason for a new plan: because work may move away from them,
// or because an all-reduce may go on while it waits for them.
bool minds_slow_workers(const Rules& rules) {
  return rules.routing || (rules.plan && sums_follow_cluster(rules.plan->schedule));
}

// True when nothing is left of the slowness that a plan was changed for.
bool is_well(const Rules& rules, const Cluster& now) {
  const auto same_speed = [](const Worker& a, const Worker& b) { return a.speed == b.speed; };
  return now.exceptions == rules.cluster.exceptions &&
         (!minds_slow_workers(rules) ||
          std::equal(now.workers.begin(), now.workers.end(), rules.cluster.workers.begin(),
                     rules.cluster.workers.end(), same_speed));
}

// Asks whether steps ahead of the norm would pay, or goes back to the barrier because too many
// steps are clipped.
std::string advance_update(Decision& out) {
  Planning& planning = out.state.planning;
  UpdateChoice& update = planning.update;
  if (!is_staggered(planning.present->schedule)) {
    if (!update.take_question()) return {};
    ask_for_plan(out, planning.present, false);
    out.wanted->update = true;
    return {};
  }
  if (update.clipped <= update.bearable) return {};
  return propose(
      out, std::make_shared<const Plan>(with_update(*planning.present, false)),
      cat(percent(update.clipped), " of the latest steps were clipped, and steps ahead of ",
          "the norm are faster up to ", percent(update.bearable)));
}

bool all_know(const State& state) {
  return std::all_of(state.members.begin(), state.members.end(), [&](const Member& member) {
    return !member.alive || member.report.plan == state.planning.serial;
  });
}

}  // namespace

std::string propose(Decision& out, std::shared_ptr<const Plan> plan, const std::string& reason) {
  Planning& planning = out.state.planning;
  planning.previous = std::exchange(planning.present, std::move(plan));
  planning.serial += 1;
  planning.previous_name =
      std::exchange(planning.present_name, cat(out.state.epoch, "-", planning.serial));
  planning.from = -1;
  planning.update.ask_at = UpdateChoice::kCalmSteps;
  out.new_plan = true;
  return cat("plan ", planning.serial, " (", planning.present->order, ") is proposed: ", reason);
}

bool is_settled(const State& state) {
  const Planning& planning = state.planning;
  return planning.from >= 0 && (planning.serial == 1 || state.committed > planning.from);
}

const char* name_of(SlowLinks how) { return kSlowLinks[static_cast<size_t>(how)]; }

std::optional<SlowLinks> slow_links_of(std::string_view name) {
  const auto found = std::find(std::begin(kSlowLinks), std::end(kSlowLinks), name);
  if (found == std::end(kSlowLinks)) return std::nullopt;
  return static_cast<SlowLinks>(found - std::begin(kSlowLinks));
}

Planning begin_planning(const Rules& rules) {
  Planning planning;
  planning.present = planning.previous = rules.plan;
  planning.present_name = planning.previous_name = cat(rules.epoch);
  planning.from = rules.first_step;
  planning.slow_links = rules.slow_links;
  MonitorOptions options;
  options.least_gain = kLeastGain;
  options.least_op_share = kLeastOpShare;
  planning.monitor = std::make_shared<const MonitorState>(make_monitor(rules.cluster, options));
  return planning;
}

void learn_step(Decision& out, int64_t step) {
  State& state = out.state;
  Planning& planning = state.planning;
  std::vector<StepSample> samples;
  bool clipped = false;
  for (const Member& member : state.members) {
    for (const StepSummary& summary : member.report.steps) {
      if (summary.step != step || !member.alive) continue;
      samples.push_back(summary.sample);
      clipped = clipped || summary.clipped;
    }
  }
  planning.update.note(clipped);
  if (planning.slow_links == SlowLinks::Off) return;
  planning.stale = planning.stale || step + 1 == planning.review_at;
  Learned learned = learn(*planning.monitor, samples, step);
  // Slow workers are reported, and taken into account when a link calls for a new plan. Alone they
  // call for one only if routing or all-reduces may change: another order of the same micro-batches
  // does not help much.
  const bool by_link = learned.cluster.exceptions != planning.monitor->cluster.exceptions;
  planning.stale =
      planning.stale || by_link || (minds_slow_workers(state.rules) && learned.changed);
  out.verdicts.insert(out.verdicts.end(), std::make_move_iterator(learned.verdicts.begin()),
                      std::make_move_iterator(learned.verdicts.end()));
  planning.monitor = std::make_shared<const MonitorState>(std::move(learned.state));
}

std::string advance_plan(Decision& out) {
  State& state = out.state;
  Planning& planning = state.planning;
  if (state.situation != Situation::Running) return {};
  if (planning.from < 0) {
    if (!all_know(state)) return {};
    planning.from = state.committed + kStepsAhead;
    return cat("plan ", planning.serial, " (", planning.present->order, ") is in force from step ",
               planning.from);
  }
  if (!planning.answered || !is_settled(state) || is_receiving(state)) return {};
  if (!planning.stale || planning.slow_links != SlowLinks::Adapt) {
    return state.rules.chooses_update ? advance_update(out) : std::string();
  }
  planning.stale = false;
  // While a worker is missing, the first plan cannot come back, and work may go to any survivor.
  const bool reduced = is_reduced(state);
  if (!reduced && is_well(state.rules, planning.monitor->cluster)) {
    const auto& all = plan_of_all(state);
    if (planning.present == all) return {};
    const bool ahead = is_staggered(planning.present->schedule);
    auto first = std::make_shared<const Plan>(with_update(*all, ahead));
    if (*planning.present == *first) return {};
    return propose(out, std::move(first),
                   minds_slow_workers(state.rules) ? "all workers and links are healthy again"
                                                   : "all links are healthy again");
  }
  ask_for_plan(out, planning.present, state.rules.routing || reduced);
  return {};
}

PlanRequest question_of(const State& state, std::shared_ptr<const Plan> present, bool routing) {
  const Planning& planning = state.planning;
  Model model = measured_model(state.rules.model, *present, *planning.monitor);
  return {planning.request, std::move(present), std::move(model), planning.monitor->cluster,
          routing};
}

void ask_for_plan(Decision& out, std::shared_ptr<const Plan> present, bool routing) {
  Planning& planning = out.state.planning;
  planning.answered = false;
  planning.stale = false;
  planning.request += 1;
  out.wanted = question_of(out.state, std::move(present), routing);
}

std::string take_planned(Decision& out, const Planned& planned) {
  Planning& planning = out.state.planning;
  if (planned.request != planning.request || planning.answered) return {};
  planning.answered = true;
  if (out.state.situation == Situation::Recovering && planned.plan != nullptr) {
    out.state.recovery.plan = planned.plan;
    return planned.reason;
  }
  if (out.state.situation != Situation::Running) return {};
  if (is_receiving(out.state)) planning.stale = true;
  const bool of_update = planned.bearable > 0;
  if (!of_update && planning.slow_links != SlowLinks::Adapt) return {};
  if (planning.stale) return {};  // made for a cluster that is no more: another one follows
  if (planned.plan == nullptr) return planned.reason;
  if (of_update) {
    if (!planning.update.allows(planned.bearable)) return {};
    planning.update.bearable = planned.bearable;
  }
  return propose(out, planned.plan, planned.reason);
}

std::string treat_slow_links(Decision& out, SlowLinks how) {
  Planning& planning = out.state.planning;
  planning.slow_links = how;
  planning.stale = how == SlowLinks::Adapt;  // plan for what was only observed until now
  return cat("requested: resilience.slow_links is \"", name_of(how), "\" from now on");
}

bool concern_one_thing(const Fault& one, const Fault& other) {
  return one.kind == other.kind && one.link == other.link && one.worker == other.worker;
}

std::string rehearse(Decision& out, const Fault& wanted) {
  State& state = out.state;
  const int64_t from = state.committed + kStepsAhead;
  const auto same = [&](const Fault& fault) { return concern_one_thing(fault, wanted); };
  std::erase_if(state.faults, [&](const Fault& fault) {
    const bool replaced = same(fault) && fault.at_step >= from;
    const int64_t end = lasts(fault) ? fault.until_step : fault.at_step + 1;
    return replaced || (end >= 0 && end <= state.committed);
  });
  for (Fault& fault : state.faults) {
    if (same(fault) && lasts(fault) && fault.until_step < 0) fault.until_step = from;
  }
  if (ends_slowness(wanted)) {
    return cat("requested: no injected fault on ",
               wanted.kind == "clock-skew" ? cat("the clock of worker ", wanted.worker)
               : is_of_worker(wanted)      ? cat("worker ", wanted.worker)
                                           : cat("link ", wanted.link),
               " from step ", from);
  }
  Fault fault = wanted;
  fault.at_step = from;
  fault.until_step = -1;
  state.faults.push_back(fault);
  return cat("requested: ", describe(fault), lasts(fault) ? " from step " : " in step ", from);
}

std::shared_ptr<const Plan> plan_of(const Planning& planning, int64_t step) {
  const bool present = planning.from >= 0 && step >= planning.from;
  return present ? planning.present : planning.previous;
}

}  // namespace tenuto
