// Checks that the values of a job fit together. Each one has already been found to be in its range.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// Values that do not fit together: the key whose place in the file the error names, and the
// sentence that follows the key's name.
struct Misfit {
  std::string key;
  std::string sentence;
};

// Number of layers that a model can be cut into: gpt: embedding, blocks, head; mlp: hidden layers
// and head.
int32_t cut_layers(const ModelSettings& model);

// The same for a job. If it has a profile, the number of layers of that.
int32_t cut_layers(const Job& job);

// True when each layer is a stage of its own (plan/fine_stages.h), so that layers can move between
// workers: resilience.layers.
bool has_fine_stages(const Job& job);

// The TimeShare (ir/plan.h) of a stage of the job's plan on paced devices. With fine stages, a
// layer keeps the share of the worker that holds it when the run begins, also after it moves.
TimeShare time_share_of(const Job& job, const std::vector<Stage>& stages, StageId stage);

// The first misfit of the job, or none. Faults are checked against the number of workers, unless a
// schedule file (parallel.schedule), read later, decides that number.
std::optional<Misfit> find_misfit(const Job& job);

// Checks only resilience.layers, and what goes with it, and returns the first misfit or none.
std::optional<Misfit> find_misfit_of_layers(const Job& job);

// Checks only what depends on the number of workers, and returns the first misfit or none: a
// [[fault]] of a link or worker that the job does not have, or a cluster file with too few devices.
std::optional<Misfit> find_misfit_of_workers(const Job& job);

}  // namespace tenuto
