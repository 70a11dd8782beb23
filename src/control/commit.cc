#include "control/commit.h"

#include <algorithm>
#include <limits>

#include "control/query.h"
#include "ir/version.h"

namespace tenuto {
namespace {

// Whether the member has to have the update that makes `version`.
bool is_keeper(const Member& member, int64_t version) {
  return member.alive && version > member.since;
}

}  // namespace

bool is_kept(const State& state, int64_t version) {
  return std::all_of(state.members.begin(), state.members.end(), [&](const Member& of) {
    if (!is_keeper(of, version)) return true;
    const Report& report = of.report;
    if (report.epoch != state.epoch || report.phase != Phase::Running) return false;
    return report.version >= version;
  });
}

bool is_kept_by_the_frozen(const State& state, int64_t version) {
  return std::all_of(state.members.begin(), state.members.end(),
                     [&](const Member& of) { return !of.alive || of.report.version >= version; });
}

std::optional<int64_t> newest_in_reach(const State& state, int64_t ceiling) {
  int64_t reach = ceiling < 0 ? std::numeric_limits<int64_t>::max() : ceiling;
  for (const Stage& stage : state.stages) {
    int64_t newest = -1;
    for (const WorkerId holder : stage.holders) {
      const Member& of = member_of(state, holder);
      if (!of.alive) continue;
      const Report& report = of.report;
      if (report.epoch != state.epoch || report.phase != Phase::Frozen) return std::nullopt;
      newest = std::max(newest, report.version);
    }
    reach = std::min(reach, newest);
  }
  return reach;
}

bool can_save(int64_t held, int64_t version) {
  return held == version || leads_back(Version{held}, Version{version});
}

int64_t open_step(const State& state) { return iteration_on(Version{state.committed}).value; }

int64_t next_version(const State& state) {
  return version_made_by(Iteration{open_step(state)}).value;
}

bool is_step_committed(const State& state, int64_t step) { return step < open_step(state); }

int64_t newest_version(const State& state) {
  return newest_version(Version{state.committed}).value;
}

int64_t first_unmade_version(const State& state) {
  return first_unmade(Version{state.committed}).value;
}

int64_t first_unbegun_step(const State& state) {
  return first_unbegun(Version{state.committed}).value;
}

}  // namespace tenuto
