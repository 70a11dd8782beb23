// Moves of layers to other workers, where each layer is a stage of its own.
#pragma once

#include <map>
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

// Of these holders of a stage, chooses the one that sends the state of the fewest stages so far, on
// a tie the first, and counts the stage among those that it sends. -1 = there is no holder.
WorkerId choose_donor(const std::vector<WorkerId>& holders, std::map<WorkerId, int>& transfers);

// The transfers of state after which all holders of `to` have their stages, by stage: each new
// holder receives its stage from a holder in `from`.
//
// Requires: both have the same layers, and each stage has a holder in `from`
std::vector<LayerMove> joins_between(const std::vector<Stage>& from, const std::vector<Stage>& to);

}  // namespace tenuto
