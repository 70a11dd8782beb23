#include "ir/layer_move.h"

#include <algorithm>

#include "base/check.h"

namespace tenuto {

void move_layers(std::vector<Stage>& stages, const std::vector<LayerMove>& moves) {
  for (const LayerMove& move : moves) {
    auto& holders = stages[static_cast<size_t>(move.stage.value)].holders;
    const auto donor = std::find(holders.begin(), holders.end(), move.from);
    CHECK(donor != holders.end(), "the donor holds the layer");
    *donor = move.to;
  }
}

std::vector<LayerMove> moves_between(const std::vector<Stage>& from, const std::vector<Stage>& to) {
  std::vector<LayerMove> moves;
  for (size_t s = 0; s < from.size(); ++s) {
    const auto& before = from[s].holders;
    const auto& after = to[s].holders;
    for (size_t i = 0; i < before.size() && i < after.size(); ++i) {
      if (before[i] == after[i]) continue;
      moves.push_back({{static_cast<int32_t>(s)}, before[i], after[i]});
    }
  }
  return moves;
}

WorkerId choose_donor(const std::vector<WorkerId>& holders, std::map<WorkerId, int>& transfers) {
  WorkerId chosen{-1};
  for (const WorkerId holder : holders) {
    if (chosen.value < 0 || transfers[holder] < transfers[chosen]) chosen = holder;
  }
  if (chosen.value >= 0) ++transfers[chosen];
  return chosen;
}

std::vector<LayerMove> joins_between(const std::vector<Stage>& from, const std::vector<Stage>& to) {
  CHECK(from.size() == to.size(), "the same layers");
  std::vector<LayerMove> joins;
  std::map<WorkerId, int> transfers;
  for (size_t s = 0; s < from.size(); ++s) {
    const auto& before = from[s].holders;
    CHECK(!before.empty(), "a holder that sends the stage");
    for (const WorkerId holder : to[s].holders) {
      if (std::find(before.begin(), before.end(), holder) != before.end()) continue;
      joins.push_back({{static_cast<int32_t>(s)}, choose_donor(before, transfers), holder});
    }
  }
  return joins;
}

}  // namespace tenuto
