// Bugs that are put into copies of the sources (seed.py) and switched on by tests: the names of
// tests/models, then those of rules that the models do not have.
#pragma once

#include <cstdint>

namespace tenuto {

// A rule of recovery that the code is made to break.
enum class Seeded : uint8_t {
  None,
  // tests/models/replay.pml
  Fence,     // parts of a sum are taken whatever their epoch
  Undo,      // the step of the try that is given up is not taken back
  Phase,     // what was said at a standstill counts for a commit, and the other way round
  First,     // a commit needs one report of each stage
  Ahead,     // an update does not wait for the commit before
  KeepAcc,   // a step that is done again begins with the sums of the try before
  Journal,   // what is decided is told before it is written down
  Decision,  // from where an epoch goes on is told and not written down
  // tests/models/partial.pml
  InPlace,    // a reduction writes into the sum that it was brought
  Total,      // a total that is alive is taken for none
  Stale,      // as Fence, where a step goes on with what is left of it
  NoKeep,     // what was lost with its maker is not made again
  NoRedo,     // who has stepped owes nothing
  FreeTotal,  // the total is given up with the update
  // tests/models/join.pml
  Uncommitted,  // what a newcomer was given of a version that is given up stays
  NoTag,        // a newcomer is a worker like the others before its state is committed
  // Rules of the code alone
  Attempt,  // what is of an attempt that was given up counts
  Redone,   // what is in a total that is alive is made and summed again
  Losses,   // a version is saved for good and its step's losses are known to nobody
};

// Which one is on.
bool is_seeded(Seeded bug);
// Switches one on, and all others off.
void seed(Seeded bug);
// The name that the models and docs/reliability.md have for it.
const char* name_of(Seeded bug);

}  // namespace tenuto
