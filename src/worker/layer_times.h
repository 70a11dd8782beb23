// Measures a model on one device, layer by layer: times at several numbers of rows, and bytes.
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
  Job job;     // with one worker and a split backward; the lengths of a paced device are those of
               // the whole model, its parameters those of one layer
  Plan apart;  // of that worker: each layer is a stage of its own
  Plan whole;  // of that worker: all layers are one stage
  bool tied = false;  // the model's first and last layer share a weight; the one worker of the job
                      // cannot hold it twice, so there it is none
  Duration limit = std::chrono::seconds(20);  // of all measurements; they end early when the
                                              // figures are certain
};

// The job as one worker runs it alone, by a plan of `micros` micro-batches. A paced device's
// settings, which are of the stages of a pipeline, become those that LayerWork wants.
Job alone(Job job, int32_t micros);

// The numbers of rows of a micro-batch that are measured, ascending: `rows`, half of it, a quarter
// of it, and so on down to 1, as the replicas of a stage would get them.
std::vector<int32_t> measured_rows(int32_t rows);

// The names of the model's layers, input side first.
std::vector<std::string> layer_names(const ModelSettings& model);

// Trains the job on its device, alternately by both plans, and takes the lower quartiles of the
// ops' times. What the ops of `apart` take longer than those of `whole` is the constant of a pass,
// beside the time between two ops. A stash is what the memory of tensors grows by in a layer's
// forward, its output included; `optimizer` is what the device keeps for a layer between steps
// beside the weights: sums, moments and back-ups. A paced device has its settings as times and
// bytes; there the number of rows changes nothing, so only one is measured.
//
// Errors: those of the device
Result<ModelProfile> measure_layers(const LayerWork& work, const RealDevice& real);

}  // namespace tenuto
