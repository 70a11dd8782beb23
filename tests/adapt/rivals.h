// How fast other systems go on after workers have died, by formulas: what re-routing is held
// against.
//
// All of a step in units of one forward, which lasts as long as an input gradient and as a weight
// gradient; links and reductions take no time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "adapt/mixture.h"

namespace tenuto {

// A fresh cluster, and what it trains.
struct Fleet {
  MixtureSize size;
  int32_t layers = 0;  // of the model, all alike

  // Workers in all.
  int32_t workers() const { return size.stages * size.pipelines; }
  // Micro-batches of a step.
  int32_t micros() const { return size.pipelines * size.micros; }
};

// Which workers are dead: dead[pipeline][stage].
using Dead = std::vector<std::vector<bool>>;

// Nobody is dead.
Dead all_alive(const Fleet& fleet);
// The number of the dead.
int32_t count_dead(const Dead& dead);

// One way to go on.
struct Rival {
  std::string name;
  double downtime_seconds = 0;  // after each death
  // Time of a step; infinite when it cannot go on.
  std::function<double(const Fleet&, const Dead&)> step;
};

// In the order of the columns:
// - scaled: the step without deaths, slowed as if nothing but workers had been lost.
// - routed: the least a stage's live workers need for its micro-batches; the deaths as they are.
// - spread: the same after live workers have moved between stages until deaths are spread evenly.
// - layers: as spread, and layers have moved between stages as well.
// - templates: pipelines of fewer nodes with other partitions, micro-batches dealt by speed.
// - redundant: the worker before a dead one takes its stage over, which all have computed twice;
//   where two neighbours are dead the pipeline is dropped.
// - dropped: pipelines with a dead worker are dropped, all others compute twice still.
// - replicas: pipelines with a dead worker are dropped, the global batch is kept.
// - restart: the best regular grid that fits, from a checkpoint.
//
// Source: Gandhi et al., "ReCycle", SOSP 2024 (routed); Jang et al., "Oobleck", SOSP 2023
//         (templates); Thorpe et al., "Bamboo", NSDI 2023 (redundant); Athlur et al., "Varuna",
//         EuroSys 2022 (restart)
const std::vector<Rival>& rivals();

// A step of plain 1F1B without deaths.
double fault_free(const Fleet& fleet);

// Deaths one after the other, of random live workers, the first after `seconds_between`, and what
// becomes of them.
struct FailureProcess {
  double hours = 12;
  double seconds_between = 3600;
  double repair_seconds = 0;  // until a dead worker is back; 0 = never
};

// A death or a return.
struct FailureEvent {
  double at_seconds = 0;
  int32_t pipeline = 0, stage = 0;
  bool returns = false;
};

// The events of a process, in their order; random places by `seed`.
std::vector<FailureEvent> draw_failures(const Fleet& fleet, const FailureProcess& process,
                                        uint64_t seed);

// The share of fault-free 1F1B that a rival reaches over the hours; `cap` limits how much faster
// than it any moment counts, 0 = not at all.
double throughput(const Fleet& fleet, const std::vector<FailureEvent>& events, double hours,
                  const Rival& rival, double cap = 0);

}  // namespace tenuto
