#include "control/instruct.h"

#include <algorithm>

#include "base/text.h"
#include "control/commit.h"
#include "control/query.h"
#include "ir/version.h"

namespace tenuto {
namespace {

bool holds(const Member& member, int64_t version) {
  return member.alive && member.report.version == version;
}

Phase phase_of(Situation situation) {
  if (situation == Situation::Running) return Phase::Running;
  return situation == Situation::Ended ? Phase::Out : Phase::Frozen;
}

}  // namespace

int64_t next_save(const State& state) {
  if (state.situation == Situation::Ended) return -1;
  if (state.situation == Situation::Salvaging) {
    return state.salvage.target == state.saved ? -1 : state.salvage.target;
  }
  // A version that is evaluated is saved before its commit: the run begins with its checkpoint.
  if (state.saved >= state.stop_at) return -1;
  if (state.committed >= state.stop_at) return state.stop_at;
  int64_t next = state.stop_at;
  const auto consider = [&](int64_t version) {
    if (version > state.committed) next = std::min(next, version);
  };
  const int64_t every = state.rules.checkpoint_every;
  if (every > 0) consider((state.committed / every + 1) * every);
  consider(state.save_request);
  return next;
}

std::vector<WorkerId> choose_savers(const State& state, int64_t version) {
  std::vector<WorkerId> savers;
  if (version < 0) return savers;
  // While steps run, do not change the savers of a version: the old and the new one might both go
  // past it without saving, each at a time when the other one was named.
  const Instruction& told = state.told;
  const bool stay = state.situation == Situation::Running && told.save_version == version &&
                    told.directive.epoch == state.epoch;
  for (const Stage& stage : state.stages) {
    const WorkerId before = stay ? told.savers[savers.size()] : WorkerId{};
    // The donor of a moved layer still has it at the next version, and may already be saving that.
    const bool has =
        version <= newest_version(Version{state.moved_at}).value || holds(stage, before);
    if (before.value >= 0 && has && has_state(state.members[static_cast<size_t>(before.value)])) {
      savers.push_back(before);
      continue;
    }
    WorkerId chosen;
    for (const WorkerId holder : stage.holders) {
      const Member& member = member_of(state, holder);
      if (!has_state(member)) continue;
      const bool fits = state.situation != Situation::Salvaging || holds(member, version);
      if (fits || (chosen.value < 0 && can_save(member.report.version, version))) chosen = holder;
      if (fits) break;
    }
    savers.push_back(chosen);
  }
  return savers;
}

std::vector<Joiner> joiners_of(const State& state) {
  std::vector<Joiner> all;
  for (const WorkerId worker : all_who(state, Joining::Invited)) {
    const Member& of = member_of(state, worker);
    all.push_back({worker, of.report.incarnation, stages_of(state.stages, worker)});
  }
  for (const WorkerId worker : all_who(state, Joining::Receiving)) {
    all.push_back(member_of(state, worker).place);
  }
  if (state.transfer) {
    all.insert(all.end(), state.transfer->places.begin(), state.transfer->places.end());
  }
  return all;
}

Instruction instruction_of(const State& state) {
  Instruction all;
  Directive& directive = all.directive;
  directive.term = state.rules.term;
  directive.epoch = state.epoch;
  directive.committed = state.committed;
  directive.first_step = state.rules.first_step;
  directive.stop_at = state.stop_at;
  directive.phase = phase_of(state.situation);
  all.plan_serial = state.planning.serial;
  all.plan_from = state.planning.from;
  for (size_t worker = 0; worker < state.members.size(); ++worker) {
    if (!state.members[worker].alive) continue;
    directive.members.push_back({static_cast<int32_t>(worker)});
    const Member& member = state.members[worker];
    // An address of an earlier epoch belongs to a transport that is closed or about to close, and
    // that refuses connections of this epoch.
    const bool stale = member.report.epoch != state.epoch;
    all.addresses.push_back(stale ? std::string() : member.report.address);
    all.incarnations.push_back(member.heard ? member.report.incarnation : -1);
  }
  all.joiners = joiners_of(state);
  all.save_version = state.situation == Situation::Recovering ? -1 : next_save(state);
  all.savers = choose_savers(state, all.save_version);
  if (all.save_version >= 0) {
    all.save_directory = cat(state.rules.directory, "/checkpoint-", all.save_version, ".tmp");
  }
  all.resume_shards = state.rules.resume_shards;
  all.faults = state.faults;
  all.trace_from = state.trace_from;
  all.trace_until = state.trace_until;
  if (state.ending) {
    all.exit_code = state.ending->exit_code;
    all.ending = state.ending->sentence;
  }
  const auto& rest = state.recovery.rest;
  const bool open = rest && rest->epoch == state.epoch && rest->step == open_step(state);
  if (open && state.situation == Situation::Running) all.rest = rest;
  return all;
}

}  // namespace tenuto
