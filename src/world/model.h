// The model as the planner and the simulator see it: what each layer costs per micro-batch.
#pragma once

#include <vector>

#include "base/unit.h"
#include "ir/plan.h"

namespace tenuto {

// One layer, per micro-batch, at speed 1.
struct Layer {
  Duration forward{}, backward_input{}, backward_weight{};
  Bytes activation;  // of its output
  Bytes stash;       // kept from forward to backward
  Bytes parameters;
  Duration update{};  // its part of the optimizer step, once a step
};

// The layers, input side first, and what a stage costs beside its layers.
struct Model {
  std::vector<Layer> layers;
  Duration step{};  // one stage's Measure and Step together, beside its layers' updates
  Duration op{};    // of each forward of a stage, and of each of its backwards for the input
  Bytes tied;       // of the weight that first and last stage share (bucket 1); counted in the
                    // parameters of the first layer and of the last
};

// Times of one stage: sums over its layers and what the stage costs beside them, each at most
// kLongestTime.
struct StageCost {
  Duration forward{}, backward_input{}, backward_weight{};  // per micro-batch
  Duration update{};                                        // per step
  Bytes activation;                                         // of the last layer's output
  Bytes stash;                                              // kept from forward to backward
  Bytes rebuilt;  // made again by the backward of a stage that recomputes, and held while it runs
  Bytes parameters;
};

// The cost of `stage`'s layers. A stage that recomputes keeps its input alone, nothing at the first
// stage, whose input is data that can be read again; and backward_input lasts a forward longer.
StageCost stage_cost(const Model& model, const Stage& stage);

// The bytes of each value of each stage. Activations and gradients have the size of the layer
// output that they belong to, weight work has `weight_share` of what the backward reads (the stash,
// or what is made again in its place), and totals have the size of the parameters.
Sizes sizes_of(const Model& model, const std::vector<Stage>& stages, double weight_share = 1.0);

// The bytes that the Reduce of a bucket sums, for a stage with `parameters` bytes of parameters;
// `tied` of them are a weight that another stage shares.
Bytes size_of_sum(Bytes parameters, Bytes tied, int16_t part);

// Chunk `chunk` of `size` bytes in `count` nearly equal pieces.
Bytes chunk_size(Bytes size, int32_t count, int32_t chunk);

}  // namespace tenuto
