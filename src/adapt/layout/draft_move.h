// Changes of a draft: one cut, some devices, one stage more or less.
#pragma once

#include <cstdint>
#include <vector>

#include "adapt/layout/draft.h"
#include "base/random.h"

namespace tenuto {

// What a move does.
// What a DraftMove changes.
enum class DraftMoveKind : uint8_t {
  Cut,       // the cut after stage `one` goes `layers` layers further (negative: back)
  Give,      // stage `one` (or kIdle) gives `devices` to `other` (or kIdle)
  Swap,      // the same, and gets `back`
  Exchange,  // stages `one` and `other` exchange all devices
  Insert,    // stage `one` (or kIdle) gives `devices` to a new stage, which takes layers of the
             // stage `other`: the later half (`after`), or the earlier half
  Remove,    // stage `one` gives its devices to `other` (or kIdle), its layers to the next stage
             // (`after`), or to the one before
};

// One change.
struct DraftMove {
  DraftMoveKind kind = DraftMoveKind::Cut;
  int32_t one = kIdle, other = kIdle;
  int32_t layers = 0;
  KindCount devices, back;
  bool after = false;
};

// All moves of cuts.
std::vector<DraftMove> cut_moves(const Draft& draft);
// All moves that change the devices of stages, while they are about `most` or fewer; else `sample`
// random ones, many of them at the busiest stage.
std::vector<DraftMove> device_moves(const Draft& draft, size_t most, size_t sample, Random& random);

// Makes a move.
void make_move(const DraftTable& table, const DraftMove& move, Draft& draft);

// A guess at which draft has the shorter step, computed in no time: a bound on the step, and a
// small share of the time of a single micro-batch.
double guess_of(const LayoutLoads& loads);

// Moves layers away from the busiest stages, and the cuts of stages first - 1 to last (each where
// the stage ends), while less memory is missing then, or guess_of() is lower. Returns the number of
// bounds computed.
int64_t balance_cuts(const DraftTable& table, int32_t first, int32_t last, Draft& draft);

}  // namespace tenuto
