// What `tenuto status` tells of a live run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "control/decide.h"
#include "ir/mass.h"
#include "run/served_processes.h"

namespace tenuto {

// gathering, running, recovering, salvaging or ended.
const char* name_of(Situation situation);

// The state of a run of the job as one JSON object.
std::string status_text(const State& state, const Job& job);

// Which workers each host has, with their stages and pipelines: one sentence for each host.
std::vector<std::string> places_by_host(const State& state);

// The state of a run with server shards.
struct ServedStatus {
  const char* situation = "gathering";  // gathering | running | stopping | ended
  int64_t step = 0, steps = 0;          // done, and to be done
  int64_t epoch = 0;                    // of the members; 0 = there are none yet
  int64_t saved = -1;                   // step of the newest checkpoint; -1 = none
  std::string mode;
  double age = 0;  // of the works that were decided last, in gradients
  Mass mass;       // in committed updates
  // How many ranges of the parameters each process of the run keeps, by its number there. Those
  // that are not named keep none.
  std::map<WorkerId, int32_t> kept = {};
};

// The same of a run with server shards.
std::string status_text(const ServedStatus& status, const ServedProcesses& processes);

}  // namespace tenuto
