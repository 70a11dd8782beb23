// A whole run in one process: the real coordinator and workers on threads, with paced devices.
// In-memory messages and wires replace gRPC and UCX. Everything else is what `tenuto train` runs:
// decisions, journal, plans, steps, sums, state transfers.
//
// A scenario lists the faults. Each run has a process of its own, so that a hang or a crash is a
// result like any other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/unit.h"

namespace tenuto {

// A fault of a worker at one of its calls to device or wire.
struct Blow {
  WorkerId worker;
  int64_t at = 0;        // the call, counted from the beginning of the process
  bool wrongly = false;  // true: it lives, but is taken for dead; false: it dies
};

// The death of a coordinator at one of its sends to workers; `at` counts the sends of all
// coordinators of the run.
struct Fall {
  int64_t at = 0;
  bool told = false;  // true: dies after the send; false: before it
};

// A run, and what happens to it.
struct Scenario {
  uint64_t seed = 1;  // of the delays of control messages
  int32_t stages = 2, pipelines = 2, micros = 2;
  int64_t steps = 5;
  bool split_backward = true;
  bool resumes = true;  // workers resume a step; false: they replay it whole
  int64_t parameter_bytes = 400;
  Duration way{};  // the longest delay of a control message
  std::vector<Blow> blows = {};
  std::vector<Fall> falls = {};
  bool comes_back = false;  // a new process replaces each dead one
};

// Runs the scenario. Returns what went wrong, in words. Empty: all steps were committed, and at the
// end every holder of a stage has the plain loop's parameters, bit for bit.
//
// Requires: no other thread in this process
std::string play(const Scenario& scenario, Duration limit = std::chrono::seconds(20));

}  // namespace tenuto
