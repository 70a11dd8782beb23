// Runs drawn by seed for the random world (random_world.h).
#pragma once

#include <chrono>
#include <cstdint>

#include "base/random.h"
#include "control/decide.h"
#include "control/sim_worker.h"

namespace tenuto {

// A run, without the faults that happen in it.
struct Case {
  uint64_t seed = 0;
  int32_t stages = 1, pipelines = 1;
  Rules rules;
};

inline Rules rules_for(Random& random, int32_t pipelines) {
  Rules rules;
  rules.steps = 2 + random.below(6);
  rules.checkpoint_every = random.below(4);
  rules.micro_count = pipelines;
  rules.directory = "runs/random";
  rules.start_limit = std::chrono::hours(1);
  rules.silence_limit = std::chrono::hours(1);
  rules.explain_limit = std::chrono::milliseconds(50);
  rules.stop_limit = std::chrono::hours(1);
  rules.salvage_limit = std::chrono::hours(1);
  return rules;
}

// A few steps of up to three stages and pipelines.
inline Case make_case(uint64_t seed) {
  Random random(seed * 977 + 5);
  Case of{.seed = seed};
  of.stages = static_cast<int32_t>(1 + random.below(3));
  of.pipelines = static_cast<int32_t>(1 + random.below(3));
  of.rules = rules_for(random, of.pipelines);
  return of;
}

// Chances of deaths, and of new processes in the places of dead workers.
inline Chances with_returns(Bug bug = Bug::None) {
  return {
      .death = 2, .checkpoint = 5, .deaths_at_most = 6, .suspicion = 1, .joining = 30, .bug = bug};
}

// A run that is long enough for a worker to come back and receive the state.
inline Case make_long_case(uint64_t seed) {
  Case of = make_case(seed);
  Random random(seed * 31 + 7);
  of.pipelines = static_cast<int32_t>(2 + random.below(2));
  of.rules.micro_count = of.pipelines;
  of.rules.survive = true;
  of.rules.steps = 20 + random.below(20);
  return of;
}

}  // namespace tenuto
