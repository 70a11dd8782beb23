// Formulas for the speed of other systems after workers have died. Re-routing is compared with
// them.
//
// The unit of time is one forward. An input gradient and a weight gradient take as long; links and
// reductions take no time.
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
// The number of dead workers.
int32_t count_dead(const Dead& dead);

// One way to go on after deaths.
struct Rival {
  std::string name;
  double downtime_seconds = 0;  // after each death
  // Time of a step; infinite when it cannot go on.
  std::function<double(const Fleet&, const Dead&)> step;
};

// In the order of the columns:
// - scaled: the step without deaths, slowed by the share of workers that were lost.
// - routed: the time that the live workers of the busiest stage need for its micro-batches, with
//   the deaths where they are.
// - spread: the same after live workers have moved between stages until deaths are spread evenly.
// - layers: as spread, and layers have moved between stages as well.
// - templates: pipelines of fewer nodes with other partitions, micro-batches dealt by speed.
// - redundant: every worker also computes the forward of the next stage; if a worker dies, the one
//   before it takes over its stage. A pipeline with two dead neighbours is dropped.
// - dropped: as redundant, but every pipeline with a dead worker is dropped.
// - replicas: pipelines with a dead worker are dropped, the global batch is kept.
// - restart: the best regular grid that fits, from a checkpoint.
//
// Source: Gandhi et al., "ReCycle", SOSP 2024 (routed); Jang et al., "Oobleck", SOSP 2023
//         (templates); Thorpe et al., "Bamboo", NSDI 2023 (redundant); Athlur et al., "Varuna",
//         EuroSys 2022 (restart)
const std::vector<Rival>& rivals();

// A step of plain 1F1B without deaths.
double fault_free(const Fleet& fleet);

// Random live workers die one after the other, the first after `seconds_between`; each returns
// after its repair.
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

// The events of a process, ordered by time; `seed` decides which workers die.
std::vector<FailureEvent> draw_failures(const Fleet& fleet, const FailureProcess& process,
                                        uint64_t seed);

// The mean speed of a rival over the hours, relative to fault-free 1F1B. `cap` limits the relative
// speed that counts at any moment; 0 = no limit.
double throughput(const Fleet& fleet, const std::vector<FailureEvent>& events, double hours,
                  const Rival& rival, double cap = 0);

}  // namespace tenuto
