// Bugs that seed.py puts into copies of the sources and that tests switch on: first those of
// tests/models, under the same names, then bugs in rules that the models do not have.
#pragma once

#include <cstdint>

namespace tenuto {

// A rule of recovery that the code is made to break.
enum class Seeded : uint8_t {
  None,
  // tests/models/replay.pml
  Fence,     // parts of a sum are accepted from any epoch
  Undo,      // the optimizer step of an abandoned attempt is not undone
  Phase,     // frozen reports count for a commit, running ones for recovery
  First,     // a commit needs one report of each stage
  Ahead,     // an update does not wait for the commit before
  KeepAcc,   // a replayed step starts with the old sums
  Journal,   // decisions are sent before they are written to the journal
  Decision,  // the journal lacks the step that an epoch resumes from
  // tests/models/partial.pml
  InPlace,    // a reduction overwrites its input
  Total,      // a total that a survivor has is ignored
  Stale,      // as Fence, in a resumed step
  NoKeep,     // a value lost with its worker is not computed again
  NoRedo,     // a worker that took its optimizer step has no more ops
  FreeTotal,  // the total is freed with the optimizer step
  // tests/models/join.pml
  Uncommitted,  // a joiner keeps state of an abandoned version
  NoTag,        // a joiner is a worker like the others before its state is committed
  // Rules of the code alone
  Attempt,  // values of an abandoned attempt count
  Redone,   // gradients in a surviving total are summed again
  Losses,   // a version is saved although nobody knows its losses
  Early,    // a receiver of a layer holds it before the version of its state is committed
  Forgets,  // a new coordinator does not know which layers have moved
};

// Whether this bug is on.
bool is_seeded(Seeded bug);
// Switches this bug on and all others off.
void seed(Seeded bug);
// The bug's name in the models and in docs/reliability.md.
const char* name_of(Seeded bug);

}  // namespace tenuto
