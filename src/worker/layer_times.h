// Measures each layer of a model on one device: times for several numbers of rows, and bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/plan.h"
#include "worker/machine.h"
#include "world/job.h"
#include "world/model_profile.h"

namespace tenuto {

// What is measured, and for how long.
struct LayerWork {
  Job job;     // with one worker and a split backward. Of a paced device, the op times are those of
               // the whole model, and the parameters those of one layer
  Plan apart;  // for that worker: each layer is one stage
  Plan whole;  // for that worker: all layers are one stage
  bool tied = false;  // the model's first and last layer share a weight. `job` does not tie them,
                      // because one worker cannot hold both copies
  Duration limit = std::chrono::seconds(20);  // for all measurements; they end earlier if the
                                              // figures are certain
};

// The job, changed so that one worker runs it alone with `micros` micro-batches. The settings of a
// paced device, which describe one stage of a pipeline, become those that LayerWork::job needs.
Job alone(Job job, int32_t micros);

// The numbers of rows of a micro-batch that are measured, ascending: `rows`, its half rounded up,
// and so on down to 1. Replicas of a stage that divide the rows among them get such numbers.
std::vector<int32_t> measured_rows(int32_t rows);

// The names of the model's layers, from the input to the output.
std::vector<std::string> layer_names(const ModelSettings& model);

// Trains the job on its device, in turn with both plans, and takes the lowest decile of the times
// of each op. The ops of `apart` together take longer than those of `whole`; from this and the time
// between two ops follows the constant cost of an op. The stash of a layer is the growth of tensor
// memory in its forward, with its output; `optimizer` is what the device keeps between steps beside
// the weights: gradient sums, moments and back-ups. A paced device takes times and bytes from its
// settings, and the number of rows changes nothing, so only one is measured.
//
// Errors: those of the device
Result<ModelProfile> measure_layers(const LayerWork& work, const RealDevice& real);

}  // namespace tenuto
