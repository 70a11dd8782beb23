// Moves of layers to other workers, where each layer is a stage of its own.
#pragma once

#include <vector>

#include "base/id.h"
#include "ir/plan.h"

namespace tenuto {

// Worker `to` becomes a holder of the stage in place of worker `from`.
struct LayerMove {
  StageId stage;
  WorkerId from, to;
  auto operator<=>(const LayerMove&) const = default;
};

// Applies the moves: each receiver takes the donor's position in the stage's list of holders.
//
// Requires: the donors hold the stages, and the receivers do not
void move_layers(std::vector<Stage>& stages, const std::vector<LayerMove>& moves);

// The moves that turn `from` into `to`, by stage. Both have the same layers, and the same number of
// holders in each stage.
std::vector<LayerMove> moves_between(const std::vector<Stage>& from, const std::vector<Stage>& to);

}  // namespace tenuto
