// A layer that moves to another worker, as a stage of its own.
#pragma once

#include <vector>

#include "base/id.h"
#include "ir/plan.h"

namespace tenuto {

// The stage is to be held by `to` in the place of `from`.
struct LayerMove {
  StageId stage;
  WorkerId from, to;
  auto operator<=>(const LayerMove&) const = default;
};

// Makes the moves: each receiver has the donor's place among the holders of the stage.
//
// Requires: the donors hold the stages, and the receivers do not
void move_layers(std::vector<Stage>& stages, const std::vector<LayerMove>& moves);

// The moves that make `to` of `from`, by stage: both have the same layers, and in each stage the
// same number of holders.
std::vector<LayerMove> moves_between(const std::vector<Stage>& from, const std::vector<Stage>& to);

}  // namespace tenuto
