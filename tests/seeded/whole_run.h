// A whole run in one process: the coordinator and the workers as they are, on threads, with paced
// devices; a conversation and wires in memory stand in for gRPC and UCX. Everything else is what
// `tenuto train` runs: decisions, journal, plans, steps, sums, lessons.
//
// A scenario says what happens to whom. Each run is played in a process of its own, so that one
// that hangs or crashes is a result like any other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/unit.h"

namespace tenuto {

// What happens to a worker at one of its calls to compute and wire.
struct Blow {
  WorkerId worker;
  int64_t at = 0;        // the call, counted from the beginning of the process
  bool wrongly = false;  // it lives on and is taken for dead; false: its process ends
};

// The end of a coordinator: at one of the times that it tells something, counted over all
// coordinators of the run.
struct Fall {
  int64_t at = 0;
  bool told = false;  // right behind the telling; false: before it
};

// A run, and what happens to it.
struct Scenario {
  uint64_t seed = 1;  // of how long what is said is on its way
  int32_t stages = 2, pipelines = 2, micros = 2;
  int64_t steps = 5;
  bool split_backward = true;
  bool resumes = true;  // workers go on with what is left of a step
  int64_t parameter_bytes = 400;
  Duration way{};  // what is said is on its way for up to so long
  std::vector<Blow> blows = {};
  std::vector<Fall> falls = {};
  bool comes_back = false;  // a new process comes to the place of each that has ended
};

// Plays it. What went wrong, in words; empty: all steps were committed, and whoever holds a stage
// at the end has the parameters that one plain loop comes to, bit for bit.
//
// Requires: no other thread in this process
std::string play(const Scenario& scenario, Duration limit = std::chrono::seconds(20));

}  // namespace tenuto
