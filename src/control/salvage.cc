#include "control/salvage.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/contains.h"
#include "base/text.h"
#include "control/commit.h"
#include "control/instruct.h"
#include "control/query.h"
#include "control/step_record.h"

namespace tenuto {
namespace {

bool is_finite(const StepSummary& summary) {
  return summary.finite && std::all_of(summary.losses.begin(), summary.losses.end(),
                                       [](const MicroLoss& of) { return std::isfinite(of.loss); });
}

}  // namespace

std::optional<WorkerFailure> find_failure(const State& state) {
  for (const Member& of : state.members) {
    const Report& report = of.report;
    if (!of.alive || report.failure.empty() || report.epoch != state.epoch) continue;
    const WorkerId worker{static_cast<int32_t>(&of - state.members.data())};
    return WorkerFailure{cat(name_of(state.rules, worker), ": ", report.failure),
                         report.failure_code};
  }
  return std::nullopt;
}

std::optional<LastResort> find_bad_numbers(const State& state) {
  for (const Member& of : state.members) {
    for (const StepSummary& summary : of.report.steps) {
      if (is_finite(summary) || summary.step < open_step(state)) continue;
      const WorkerId worker{static_cast<int32_t>(&of - state.members.data())};
      return LastResort{
          .cause =
              cat("loss or gradient of step ", summary.step, " is not finite (seen by ",
                  name_of(state.rules, worker),
                  "): the step was not committed; lower optimizer.learning_rate or optimizer.clip"),
          .exit_saved = 1,
          .exit_bare = 1,
          .ceiling = summary.step};
    }
  }
  return std::nullopt;
}

std::optional<LastResort> find_lost_part(const State& state) {
  const StepRecord record = record_of(state, open_step(state));
  if (is_known(record)) return std::nullopt;
  return LastResort{.cause = cat("all workers have finished step ", open_step(state), ", but ",
                                 unknown_part_of(state, record))};
}

LastResort end_with(const State& state, const std::string& cause) {
  LastResort why{.cause = cause};
  if (state.situation == Situation::Salvaging) {
    why = state.salvage;
    why.cause += "; then " + cause;
  } else if (state.situation == Situation::Recovering) {
    why.cause = state.recovery.cause + "; then " + cause;
  }
  return why;
}

DecisionPart abandon(const State& state, LastResort why, Duration now) {
  DecisionPart out;
  if (is_receiving(state)) out.edits.add(JoinersSentBack{});
  out.say(cat(why.cause, ": the step is abandoned, epoch ", state.epoch + 1));
  out.edits.add(StepAbandoned{std::move(why), now});
  return out;
}

std::optional<size_t> stage_without_holder(const State& state) {
  for (size_t stage = 0; stage < state.stages.size(); ++stage) {
    const auto& holders = state.stages[stage].holders;
    const bool alive = std::any_of(holders.begin(), holders.end(),
                                   [&](WorkerId holder) { return member_of(state, holder).alive; });
    if (!alive) return stage;
  }
  return std::nullopt;
}

std::optional<SalvageTarget> choose_target(const State& state) {
  const std::optional<int64_t> newest = newest_in_reach(state, state.salvage.ceiling);
  if (!newest) return std::nullopt;
  SalvageTarget target{*newest, {}};
  if (target.version > state.committed) {
    const StepRecord last = record_of(state, open_step(state));
    if (!is_known(last)) target = {state.committed, unknown_part_of(state, last)};
  }
  if (contains(choose_savers(state, target.version), WorkerId{})) target.version = -1;
  return target;
}

int exit_code_of(Code failure) {
  if (failure == Code::Timeout || failure == Code::Disconnected) return 75;
  return failure == Code::Invalid ? 2 : 1;
}

}  // namespace tenuto
