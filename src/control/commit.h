// Which versions are committed, and how far anybody may be ahead of them: a part of decide.h.
//
// An update is committed when all its *keepers* have it. A keeper of an update is a worker that has
// to have it, so that the update outlives the loss of others. In synchronous training the keepers
// are all living members, each of which holds a stage; a joiner is no keeper of updates from before
// its part in the steps began. The committed version is the frontier: the newest version whose
// updates are all committed. How far others may be ahead of it is in ir/version.h, and the rest of
// the coordinator asks the functions below.
#pragma once

#include <cstdint>
#include <optional>

#include "control/state.h"

namespace tenuto {

// True when all keepers of the update that makes `version` have reported that they have it, running
// in this epoch. A commit also needs the losses of its step, see is_known() (step_record.h).
bool is_kept(const State& state, int64_t version);

// True when all living members have `version`, whatever their epoch and phase. Asked once all have
// frozen: all of them go on from there, and joiners have been sent back before.
bool is_kept_by_the_frozen(const State& state, int64_t version);

// The newest version, not above `ceiling`, that at least one living holder of every stage has. A
// ceiling below 0 means no limit. None until all living holders are frozen in this epoch. -1 = some
// stage has no version.
std::optional<int64_t> newest_in_reach(const State& state, int64_t ceiling);

// True when a worker that has version `held` can save `version`: it has it, or can go back to it.
bool can_save(int64_t held, int64_t version);

// The step that is open: it reads the committed version.
int64_t open_step(const State& state);

// The version that the open step makes.
int64_t next_version(const State& state);

// True when the update of `step` is committed: no member is in that step any more.
bool is_step_committed(const State& state, int64_t step);

// The newest version that a worker can have: all can stop there.
int64_t newest_version(const State& state);

// The oldest version that no worker can have: what is to be done with it reaches all in time.
int64_t first_unmade_version(const State& state);

// The first step that no worker can have begun: plans and faults can come into force with it.
int64_t first_unbegun_step(const State& state);

}  // namespace tenuto
