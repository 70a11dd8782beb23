// The gradient norm of a step: what stages send each other of it, and whether it requires clipping.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/exact_sum.h"
#include "ir/mass_step.h"

namespace tenuto {

// What a Norm carries: the squares of some stages' gradients, and how many of their tensors hold a
// number that is not finite.
struct RunningNorm {
  ExactSum squares;
  int64_t bad = 0;
};

// What a ClipDecision carries. All zeros: the step is neither clipped nor skipped.
struct WholeNorm {
  double norm = 0;
  int64_t skip = 0;  // not 0: the gradients are not finite, the step is not taken
};
static_assert(sizeof(RunningNorm) == 96 && sizeof(WholeNorm) == 16);

// The norm over the stages so far; over all stages it is the clip decision.
inline WholeNorm whole_of(const RunningNorm& running) {
  return {std::sqrt(running.squares.value()), running.bad > 0 ? 1 : 0};
}

// The factor that scales a step's gradients, at most 1; `clip` is the norm that they are clipped
// to, 0 = never. Server shards have the same one (parameter_server/job_store.h).
inline double clip_factor(double norm, double clip) { return clip_factor(norm, clip, kClipMargin); }

// True when the gradients are used as they are: neither clipped nor skipped. If the norm over some
// stages is not plain, neither is the norm over more stages, because sums, roots and the factor are
// monotonic.
inline bool is_plain(const WholeNorm& norm, double clip) {
  return norm.skip == 0 && clip_factor(norm.norm, clip) == 1.0;
}

}  // namespace tenuto
