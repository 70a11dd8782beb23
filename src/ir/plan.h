// The plan: who holds which layers, one op list per worker, and the rules by which lists are run.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unit.h"
#include "ir/schedule.h"

namespace tenuto {

// A run of layers and the workers that keep its weights.
struct Stage {
  int32_t layer_first = 0, layer_end = 0;  // half open
  std::vector<WorkerId> holders;           // in a plan of make_plan() holders[p] is pipeline p's
  bool recompute = false;  // keeps only its input until the backward: BackwardInput runs the
                           // forward again, then computes gradients
  auto operator<=>(const Stage&) const = default;
};

// True when the worker keeps the stage's weights.
bool holds(const Stage& stage, WorkerId worker);

// The stages whose weights the worker keeps, ascending.
std::vector<StageId> stages_of(const std::vector<Stage>& stages, WorkerId worker);

// The stages that recompute, ascending.
std::vector<StageId> recomputing(const std::vector<Stage>& stages);

// The place of a stage's worker in its pipeline, and among how many stages (`chunks`) that worker
// divides its time.
struct TimeShare {
  int32_t place = 0, chunks = 1;
};

// The TimeShare of a stage, in pipelines of `workers` workers. It is the same for all holders of
// the stage, including those that hold it in addition to a stage of their own.
TimeShare time_share_of(const std::vector<Stage>& stages, int32_t workers, StageId stage);

// How a worker's compute lane takes its list. Listed: in list order. Ready: the first op whose
// inputs are present, backward before forward before weight gradient, each kind in list order,
// under the limits.
enum class Dispatch : uint8_t { Listed, Ready };

// What a worker may hold, in bytes or in parts of a micro-batch. A forward reserves all the memory
// that its micro-batch needs later, so `late` is at most `whole`. For a stage that recomputes,
// `whole` includes what BackwardInput needs while it runs.
struct MemoryLimit {
  int64_t most = 0;   // 0 = unlimited
  int64_t whole = 0;  // what a micro-batch takes from the start of its forward to the end of its
                      // input gradient
  int64_t late = 0;   // and from there to the end of its weight gradient

  // True when the worker may hold, at once, `before` micro-batches whose input gradient has not
  // ended and `behind` micro-batches whose input gradient has ended.
  bool fits(int64_t before, int64_t behind) const {
    return most == 0 || whole * before + late * behind <= most;
  }
  // Of `micros` micro-batches, how many can be before the end of their input gradient at once.
  int32_t most_whole(int32_t micros) const { return most_of(whole, micros); }
  // And how many can wait for their weight gradient.
  int32_t most_late(int32_t micros) const { return most_of(late, micros); }
  // By how much an op of this kind changes what is held.
  int64_t change(OpKind kind) const {
    if (kind == OpKind::Forward) return whole;
    if (kind == OpKind::BackwardInput) return late - whole;
    return kind == OpKind::BackwardWeight ? -late : 0;
  }
  auto operator<=>(const MemoryLimit&) const = default;

 private:
  int32_t most_of(int64_t each, int32_t micros) const {
    if (most == 0 || each == 0 || most / each >= micros) return micros;
    return static_cast<int32_t>(most / each);
  }
};

// The largest number in a MemoryLimit: every reader of JSON represents it exactly.
inline constexpr int64_t kMostMemory = int64_t{1} << 53;

// The limits of one worker: ready dispatch keeps them, check refuses a listed plan that breaks
// them. `micros` and `warm_up` are choices of an order, `memory` is what the worker has.
struct Limit {
  int32_t micros = 0;   // most micro-batches between the start of a forward and the end of its
                        // weight gradient; one that two stages of the worker hold counts twice;
                        // 0 = unlimited
  int32_t warm_up = 0;  // forwards before the first backward; 0 = it need not wait for any
  MemoryLimit memory;   // counts such a micro-batch twice, too
  auto operator<=>(const Limit&) const = default;
};

// How a plan updates the parameters.
struct UpdateStyle {
  bool tied = false;       // the first and the last stage share a weight
  bool staggered = false;  // each stage steps when its own gradients are complete (StepAhead); else
                           // all stages wait for the norm of all
  auto operator<=>(const UpdateStyle&) const = default;
};

// The style that the lists and groups of a schedule have.
//
// Cost: linear in the numbers of workers and groups, for lists that end with their updates
UpdateStyle update_style_of(const Schedule& schedule);

// One training step as it will be run, and the held-out pass that goes with it.
struct Plan {
  std::string order;  // the name of the order that made it, e.g. "1f1b"
  std::vector<Stage> stages;
  Schedule schedule;
  Schedule evaluation;  // Evaluate ops only, micros numbered from schedule.micro_count on
  Dispatch dispatch = Dispatch::Listed;
  bool split_backward = false;  // no: BackwardInput computes both gradients, BackwardWeight nothing
  std::vector<Limit> limits;    // per worker; empty = unlimited
  UpdateStyle update;           // as update_style_of(schedule) says; files leave it out
  auto operator<=>(const Plan&) const = default;
};

// The sizes that ir needs from the model: of[stage][kind] = size of one such value.
struct Sizes {
  std::vector<std::array<Bytes, kValueKindCount>> of;
};

}  // namespace tenuto
