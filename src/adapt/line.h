// One pipeline's step as the search for an order sees it: a line of stages, whose ops are given by
// their kinds alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/op.h"
#include "sim/route.h"

namespace tenuto {

// A pipeline whose workers hold one stage each and run nothing else.
struct Line {
  std::vector<Leg> legs;  // of each stage
  int32_t micros = 0;
  auto operator<=>(const Line&) const = default;

  // Number of stages.
  int32_t stages() const { return static_cast<int32_t>(legs.size()); }
  // Compute ops of a step.
  int64_t ops() const { return int64_t{3} * micros * stages(); }
};

// The compute ops of one stage in the order in which it runs them: Forward, BackwardInput and
// BackwardWeight, the n-th of each kind being of the n-th micro-batch.
using Sequence = std::vector<OpKind>;

// The rule by which the stages of a line choose their next op when their order is not fixed.
struct Policy {
  std::vector<int32_t> warm_up;  // per stage: forwards before the first backward
  std::vector<int32_t> most;     // per stage: micro-batches held, each to the end of its weight
                                 // gradient; empty = as memory allows
  bool strict = true;      // in the warm-up a ready backward waits for the forwards; no: it runs if
                           // the next forward is not ready
  int32_t look_ahead = 0;  // an idle stage waits for a message that will arrive within
                           // look_ahead / 2 durations of the op that it would run instead, even if
                           // the message has not been sent yet
  bool weights_before_forwards = false;  // once warm_up micro-batches await their backward

  // True when a worker under ready dispatch follows this policy without knowing the future.
  bool is_ready() const { return strict && look_ahead == 0 && !weights_before_forwards; }
};

// A step played to its end.
struct Played {
  Duration makespan{};
  std::vector<Sequence> sequences;  // of each stage
};

// Plays a step under a policy: a free stage runs the first of backward, forward, weight gradient
// that has its input and fits into memory. A warm-up that does not fit ends early. Adds the number
// of ops that were played to `begun`.
//
// Returns: nothing when the memory limit of a stage is below one micro-batch, or as soon as the
//          step certainly lasts longer than `most`
// Cost:    O(ops) for stages that are much alike, some 30 ns an op
std::optional<Played> play(const Line& line, const Policy& policy, Duration most = Duration::max(),
                           int64_t* begun = nullptr);

// When every op of fixed sequences starts.
class Replay {
 public:
  explicit Replay(const Line& line);
  // Runs the sequences. Returns the makespan, or nothing when they deadlock.
  //
  // Requires: each sequence has every op of its stage, and each backward behind its forward, each
  //           weight gradient behind its input gradient
  // Cost:     O(ops), some 5 ns an op
  std::optional<Duration> run(const std::vector<Sequence>& sequences);

 private:
  struct Station {
    int32_t next = 0;                   // place in the sequence
    int32_t forward = 0, backward = 0;  // ops of the kind so far
    Duration free_at{};
    Duration down_free_at{}, up_free_at{};  // the links that leave it
    bool queued = false;
  };
  void go(int32_t stage, const Sequence& sequence);
  void wake(int32_t stage);
  size_t at(int32_t stage, int32_t micro) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(line_.micros) +
           static_cast<size_t>(micro);
  }

  const Line& line_;
  std::vector<Station> stations_;
  std::vector<int32_t> queue_;
  std::vector<Duration> activation_at_, gradient_at_;  // arrivals by stage and micro-batch
};

// True when the sequence keeps the memory limit of its stage.
bool fits_memory(const Leg& leg, const Sequence& sequence);

}  // namespace tenuto
