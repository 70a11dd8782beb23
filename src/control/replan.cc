#include "control/replan.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/commit.h"
#include "control/query.h"
#include "ir/effect.h"
#include "ir/version.h"
#include "plan/lower.h"

namespace tenuto {
namespace {

std::string percent(double share) { return cat(fixed(100 * share, 1), " %"); }

// True when slow workers alone are a reason for a new plan: micro-batches or layers may move away
// from them, or the choice of the all-reduces depends on the speed of workers.
bool minds_slow_workers(const State& state) {
  const auto& first = state.rules.plan;
  const Treatments& treatments = state.planning.treatments;
  return treatments.slow_workers == Treatment::Adapt || treatments.layers != Treatment::Off ||
         (first && sums_follow_cluster(first->schedule));
}

// True when nothing is left of the slowness that a plan was changed for.
bool is_well(const State& state) {
  const Rules& rules = state.rules;
  const Cluster& now = state.planning.monitor->cluster;
  const auto same_speed = [](const Worker& a, const Worker& b) { return a.speed == b.speed; };
  return now.exceptions == rules.cluster.exceptions &&
         (!minds_slow_workers(state) ||
          std::equal(now.workers.begin(), now.workers.end(), rules.cluster.workers.begin(),
                     rules.cluster.workers.end(), same_speed));
}

// Asks whether steps ahead of the norm would be faster, or goes back to the barrier because too
// many steps are clipped.
DecisionPart advance_update(const State& state) {
  DecisionPart out;
  const Planning& planning = state.planning;
  const UpdateChoice& update = planning.update;
  if (!planning.present->update.staggered) {
    if (update.is_question_due()) {
      out.edits.add(PlanAsked{.plan = planning.present, .update = true});
    }
    return out;
  }
  if (update.clipped <= update.bearable) return out;
  return propose(
      state, std::make_shared<const Plan>(with_update(*planning.present, false)),
      cat(percent(update.clipped), " of the latest steps were clipped, and steps ahead of ",
          "the norm are faster up to ", percent(update.bearable)));
}

bool all_know(const State& state) {
  return std::all_of(state.members.begin(), state.members.end(), [&](const Member& member) {
    return !member.alive || member.report.plan == state.planning.serial;
  });
}

// Goes back to the plan of a healthy cluster, if it is not in force already.
DecisionPart return_to_plan_of_all(const State& state) {
  const auto& all = plan_of_all(state);
  const auto& present = state.planning.present;
  if (present == all) return {};
  auto first = std::make_shared<const Plan>(with_update(*all, present->update.staggered));
  if (*present == *first) return {};
  return propose(state, std::move(first),
                 minds_slow_workers(state) ? "all workers and links are healthy again"
                                           : "all links are healthy again",
                 state.moved != nullptr);
}

// The version at which to ask again about moves of layers that do not pay yet, but will if the
// cluster stays as it is. -1 = there are no such moves.
int64_t review_of(const State& state, const Planned& planned) {
  if (planned.pays_after < 0 || !planned.moves.empty()) return -1;
  const int64_t version =
      std::max(state.planning.changed_at + planned.pays_after, first_unbegun_step(state));
  return version < state.stop_at ? version : -1;
}

// Adds the hosts of workers to the verdicts on them, and to those on slow links what is slow as a
// whole; `found`: the state of detection after them. What the kernel of a host does not tell is
// said once, for the first of its workers.
void name_places(const State& state, const MonitorState& found, std::vector<Verdict>& verdicts) {
  std::set<std::string> told;
  for (const WorkerId worker : state.planning.monitor->told_unmeasured) {
    told.insert(host_of_worker(state.members[static_cast<size_t>(worker.value)].report));
  }
  for (Verdict& verdict : verdicts) {
    if (verdict.kind == VerdictKind::LinkHealed) continue;
    if (verdict.kind == VerdictKind::SlowLink) {
      verdict.scope = scope_of_link(state, found, {verdict.from, verdict.to});
    } else {
      const Member& member = state.members[static_cast<size_t>(verdict.from.value)];
      verdict.host = host_of_worker(member.report);
    }
    verdict.sentence = sentence_of(verdict);
  }
  std::erase_if(verdicts, [&](const Verdict& verdict) {
    return verdict.kind == VerdictKind::Unmeasured && !told.insert(verdict.host).second;
  });
}

}  // namespace

DecisionPart measure_step(const State& state, int64_t step) {
  DecisionPart out;
  const Planning& planning = state.planning;
  std::vector<StepSample> samples;
  StepMeasured measured{.step = step};
  const bool watched = planning.treatments.watch();
  for (const Member& member : state.members) {
    for (const StepSummary& summary : member.report.steps) {
      if (summary.step != step || !member.alive) continue;
      if (watched) samples.push_back(summary.sample);
      measured.clipped = measured.clipped || summary.clipped;
    }
  }
  if (watched) {
    Detection detection = detect(*planning.monitor, samples, step);
    // A new plan for a slow link also takes slow workers into account. A slow worker alone leads
    // to a new plan only if routing or all-reduces may change, because another order of the same
    // micro-batches helps little.
    const bool by_link = detection.cluster.exceptions != planning.monitor->cluster.exceptions;
    const int64_t made = version_made_by(Iteration{step}).value;
    measured.changed =
        made == planning.review_at || by_link || (minds_slow_workers(state) && detection.changed);
    measured.other = by_link || detection.changed;
    measured.monitor = std::make_shared<const MonitorState>(std::move(detection.state));
    out.verdicts = std::move(detection.verdicts);
    name_places(state, *measured.monitor, out.verdicts);
  }
  out.edits.add(std::move(measured));
  return out;
}

DecisionPart advance_plan(const State& state) {
  DecisionPart out;
  const Planning& planning = state.planning;
  if (planning.from < 0) {
    if (!all_know(state)) return out;
    const int64_t from = first_unbegun_step(state);
    out.edits.add(PlanInForce{from});
    out.say(cat("plan ", planning.serial, " (", planning.present->order, ") is in force from step ",
                from));
    return out;
  }
  if (!planning.answered || !is_plan_adopted(state) || is_receiving(state)) return out;
  const Treatments& treatments = planning.treatments;
  const bool acts = treatments.mode == Treatment::Adapt;
  if (!planning.stale || treatments.slow_links != Treatment::Adapt ||
      treatments.mode == Treatment::Off) {
    return state.rules.chooses_update && acts ? advance_update(state) : std::move(out);
  }
  // While a worker is missing, the first plan cannot come back, and work may go to any survivor.
  const bool reduced = is_reduced(state);
  if (!reduced && is_well(state)) {
    if (acts) out = return_to_plan_of_all(state);
    // If layers have moved and the plan stays, ask the planner whether they should move back.
    if (state.moved == nullptr || !out.edits.empty()) {
      out.edits.add_first(PlanKept{});
      return out;
    }
  }
  const bool routing = treatments.slow_workers == Treatment::Adapt;
  out.edits.add(PlanAsked{.plan = planning.present, .routing = routing || reduced});
  return out;
}

DecisionPart take_planned(const State& state, const Planned& planned) {
  DecisionPart out;
  const Planning& planning = state.planning;
  if (planned.request != planning.request || planning.answered) return out;
  const bool running = state.situation == Situation::Running;
  const bool receiving = running && is_receiving(state);
  out.edits.add(PlanAnswered{receiving, review_of(state, planned)});
  if (state.situation == Situation::Recovering && planned.plan != nullptr) {
    out.edits.add(RecoveryPlanned{planned.plan});
    out.say(planned.reason);
    return out;
  }
  if (!running) return out;
  const bool of_update = planned.bearable > 0;
  if (!of_update && planning.treatments.slow_links != Treatment::Adapt) return out;
  // The plan was made for a cluster that has changed since: another plan follows.
  if (planning.stale || receiving) return out;
  out.alternatives = planned.alternatives;
  out.expected_steps = planned.expected_steps;
  if (!planned.observed.empty()) {
    out.say(cat(setting_text(TreatmentKey::Layers, planning.treatments.layers),
                ", so no layer moves; ", planned.observed));
  }
  if (const Treatment mode = planning.treatments.mode; mode != Treatment::Adapt) {
    const char* changes = planned.plan == nullptr ? "" : ", so nothing changes";
    out.say(cat(setting_text(TreatmentKey::Mode, mode), changes, "; ", planned.reason));
    return out;
  }
  if (!planned.moves.empty()) return out;  // give_layers() proposes the plans
  if (planned.plan == nullptr) {
    out.say(planned.reason);
    return out;
  }
  if (of_update) {
    if (!planning.update.allows(planned.bearable)) return out;
    out.edits.add(UpdateWeighed{planned.bearable});
  }
  out.follow(propose(state, planned.plan, planned.reason));
  return out;
}

DecisionPart treat(TreatmentKey key, Treatment how) {
  DecisionPart out;
  out.edits.add(TreatmentChanged{key, how});
  out.say(cat("requested: ", setting_text(key, how), " from now on"));
  return out;
}

DecisionPart trace_next(const State& state, int64_t steps) {
  DecisionPart out;
  const int64_t from = first_unbegun_step(state);
  out.edits.add(TraceAsked{from, from + steps});
  return out;
}

DecisionPart inject(const State& state, const Fault& wanted) {
  DecisionPart out;
  const int64_t from = first_unbegun_step(state);
  Fault fault = wanted;
  fault.at_step = from;
  fault.until_step = -1;
  if (ends_slowness(wanted)) {
    out.say(cat("requested: no injected fault on ",
                wanted.kind == "clock-skew" ? cat("the clock of worker ", wanted.worker)
                : is_of_worker(wanted)      ? cat("worker ", wanted.worker)
                                            : describe_links(wanted),
                " from step ", from));
  } else {
    out.say(cat("requested: ", describe(fault), lasts(fault) ? " from step " : " in step ", from));
  }
  out.edits.add(FaultAdded{std::move(fault), from});
  return out;
}

}  // namespace tenuto
