#include "control/layers.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/planning.h"
#include "control/query.h"
#include "ir/check.h"
#include "plan/lower.h"
#include "plan/routed.h"

namespace tenuto {
namespace {

size_t at(StageId stage) { return static_cast<size_t>(stage.value); }

std::string describe(const std::vector<LayerMove>& moves) {
  std::string text;
  for (const LayerMove& move : moves) {
    text += cat(text.empty() ? "" : ", ", "layer ", move.stage, " from worker ", move.from,
                " to worker ", move.to);
  }
  return text;
}

// True when, for each move, donor and receiver are alive and have their whole state, and the donor
// holds the layer and the receiver does not.
bool are_possible(const State& state, const std::vector<LayerMove>& moves) {
  return std::all_of(moves.begin(), moves.end(), [&](const LayerMove& move) {
    const Stage& stage = state.stages[at(move.stage)];
    return is_worker(state, move.to) && has_state(member_of(state, move.from)) &&
           has_state(member_of(state, move.to)) && holds(stage, move.from) &&
           !holds(stage, move.to);
  });
}

// For each receiver, the stages that it receives and their donors.
std::vector<Joiner> places_of(const State& state, const std::vector<LayerMove>& moves) {
  std::map<WorkerId, Joiner> places;
  for (const LayerMove& move : moves) {  // by stage
    Joiner& place = places[move.to];
    place.worker = move.to;
    place.incarnation = member_of(state, move.to).report.incarnation;
    place.stages.push_back(move.stage);
    place.donors.push_back(move.from);
  }
  std::vector<Joiner> all;
  for (auto& [worker, place] : places) all.push_back(std::move(place));
  return all;
}

// True when the receiver has reported, under the plan of the transfer, a committed version at which
// it had the whole state of all layers that move to it.
bool has_all_layers(const State& state, const Joiner& place) {
  const Report& report = member_of(state, place.worker).report;
  return report.epoch == state.epoch && report.plan == place.plan_serial && report.received >= 0 &&
         report.received <= state.committed;
}

}  // namespace

DecisionPart give_layers(const State& state, const Planned& planned) {
  DecisionPart out;
  const Treatment how = state.planning.treatments.layers;
  if (how != Treatment::Adapt) {
    out.say(cat(setting_text(TreatmentKey::Layers, how), ", so nothing moves; ", planned.reason));
    return out;
  }
  std::vector<LayerMove> moves = planned.moves;
  std::sort(moves.begin(), moves.end());
  if (!are_possible(state, moves)) return out;
  std::vector<std::vector<WorkerId>> receivers(state.stages.size());
  for (const LayerMove& move : moves) receivers[at(move.stage)].push_back(move.to);
  // As for joiners, no worker updates before the gradient norm is known: undoing such an
  // update would also undo the parts of the state that were received after it.
  auto plan = std::make_shared<const Plan>(
      with_joiners(with_update(*state.planning.present, false), receivers));
  if (const Status right = check(*plan); !right.ok()) {
    out.say(cat("the layers stay where they are: ", right.error().message));
    return out;
  }
  LayerTransfer transfer{moves, places_of(state, moves), planned.plan, planned.reason};
  out.follow(
      propose(state, std::move(plan), cat("moving ", describe(moves), ": ", planned.reason)));
  out.edits.add(LayersGiven{std::move(transfer)});
  return out;
}

DecisionPart finish_layers(const State& state) {
  DecisionPart out;
  const LayerTransfer& transfer = *state.transfer;
  const bool all = std::all_of(transfer.places.begin(), transfer.places.end(),
                               [&](const Joiner& place) { return has_all_layers(state, place); });
  if (!all) return out;
  out.follow(propose(state, transfer.plan, cat("moved ", describe(transfer.moves)), true));
  out.edits.add(LayersMoved{});
  return out;
}

}  // namespace tenuto
