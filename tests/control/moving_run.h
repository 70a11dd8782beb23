// Plays of the random world (random_world.h) in which given layers move, and one fault comes at one
// given point: a worker dies, or the coordinator is replaced.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/random_cases.h"
#include "control/random_world.h"

namespace tenuto {

// A run in which layers move once.
struct MovingRun {
  uint64_t seed = 0;  // decides in which order workers act and messages arrive
  int32_t stages = 2, pipelines = 2;
  int64_t checkpoint_every = 2;
  std::vector<LayerMove> moves;
};

// The result of a play.
struct MovingPlay {
  // The points of the move: from the proposal of the first plan until two steps have been committed
  // under the second one. -1: not reached.
  int64_t first = -1, last = -1;
  std::vector<bool> points;  // World::points()
  std::string fault;         // what went wrong; "" = nothing
};

// What is wrong at the end of a run in which every stage keeps a living holder; "" = nothing.
inline std::string fault_at_end(const World& world, int64_t steps) {
  if (!world.fault().empty()) return world.fault();
  const State& state = world.state();
  if (!state.ending) return "the run comes to no end";
  if (*state.ending != Ending{0, ""}) return cat("the run ends with: ", state.ending->sentence);
  if (state.committed != steps || state.saved != steps) {
    return cat(state.committed, " steps are committed and ", state.saved, " are saved, not ",
               steps);
  }
  for (size_t s = 0; s < state.stages.size(); ++s) {
    int32_t holders = 0;
    for (const WorkerId holder : state.stages[s].holders) {
      if (!has_state(member_of(state, holder))) continue;
      const auto* content = world.content_of(holder, {static_cast<int32_t>(s)});
      if (content == nullptr || std::ssize(*content) != steps) {
        return cat("worker ", holder, " ends without the whole state of layer ", s);
      }
      ++holders;
    }
    if (holders == 0) return cat("layer ", s, " has no holder at the end");
  }
  return "";
}

// Plays the run, with the fault if there is one. Plays with the same arguments are equal. Before
// the fault, a play equals the play without a fault.
inline MovingPlay play_move(const MovingRun& run, const std::optional<DeathAt>& death,
                            Bug bug = Bug::None) {
  constexpr int64_t kBegin = 1;      // layers move from this version on
  constexpr int32_t kLimit = 60000;  // calls of World::move(), at most
  Random random(run.seed);
  Rules rules = rules_for(random, run.pipelines);
  rules.steps = death && death->returns ? 15 : 12;
  rules.checkpoint_every = run.checkpoint_every;
  rules.survive = true;
  rules.treatments.slow_links = rules.treatments.layers = Treatment::Adapt;
  World world(run.seed, run.stages, run.pipelines, rules,
              {.bug = bug, .fine = true, .death_at = death});
  const State& state = world.state();
  MovingPlay play;
  const auto begins = [&] {
    if (state.committed < kBegin || play.first >= 0) return play.first >= 0;
    play.first = std::ssize(world.points());
    if (!world.give(run.moves)) play.first = -1;
    return play.first >= 0;
  };
  const auto is_over = [&] {
    return world.layers_moved() > 0 && is_plan_adopted(state) &&
           state.committed >= state.planning.from + 2;
  };
  if (world.run_until(begins, kLimit) && world.run_until(is_over, kLimit)) {
    if (is_over()) play.last = std::ssize(world.points());
    world.run_until([] { return false; }, kLimit);
  }
  play.points = world.points();
  play.fault = fault_at_end(world, rules.steps);
  return play;
}

}  // namespace tenuto
