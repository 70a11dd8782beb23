// A lower bound on a step, for all routings and all orders.
#pragma once

#include <vector>

#include "adapt/mesh.h"

namespace tenuto {

// Lower bounds on the step of a mesh: by the number of micro-batches that one holder runs, and over
// all routings.
//
// Before a holder's first forward, a micro-batch comes down the stages to it. Between its first
// forward and its first backward, that micro-batch goes down to the last stage and back; meanwhile
// the holder can run only forwards, as many as fit into its memory. After its last backward the
// gradient goes up to the first stage (for Pace::Joint and Pace::Apart see turn()); meanwhile the
// holder can run only weight gradients. Each of these ways is counted along its shortest route. So
// the holder is busy with its n micro-batches, and idle for the part of these ways that forwards
// and weight gradients do not fill. Another bound: if its memory has places for p micro-batches,
// one of these places is used by at least n / p micro-batches, one after the other. The least time
// of a stage is that of its slowest holder, with the micro-batches divided as balanced() does.
class MeshBound {
 public:
  // Cost: O(stages x holders^2)
  explicit MeshBound(const Mesh& mesh);

  // The least time of a step in which the holder runs `micros` micro-batches; it never falls as
  // `micros` grows.
  Duration of(int32_t stage, int32_t holder, int32_t micros) const;
  // The most micro-batches that the holder can run within a time.
  int32_t most_within(int32_t stage, int32_t holder, Duration time) const;
  // The division of a stage's micro-batches among its holders that minimizes the longest time; ties
  // go to the holder of the lower number.
  //
  // Cost: O(micros log holders)
  std::vector<int32_t> balanced(int32_t stage) const;
  // The least time of a stage if only its first `holders` holders run anything.
  Duration least_of(int32_t stage, int32_t holders) const;
  // No routing and no order is faster.
  Duration least() const;
  // The least time from the end of an input gradient of the holder to the end of the step; at
  // Pace::Joint, to its first forward of the next step; at Pace::Apart 0.
  Duration turn(int32_t stage, int32_t holder) const {
    return ways_[static_cast<size_t>(stage)][static_cast<size_t>(holder)].turn;
  }

 private:
  std::vector<int32_t> balanced(int32_t stage, int32_t holders) const;

  // The shortest ways at a holder.
  struct Ways {
    Duration head{};    // to the start of its first forward
    Duration around{};  // from the end of a forward here to the start of its input gradient here
    Duration turn{};    // see turn()
  };

  const Mesh& mesh_;
  std::vector<std::vector<Ways>> ways_;
  Duration update_{};  // the shortest of a holder
};

}  // namespace tenuto
