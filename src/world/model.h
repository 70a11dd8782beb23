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
  Duration update{};  // its part of the optimizer step, once in each step
};

// The layers, input side first, and the costs of a stage in addition to its layers.
struct Model {
  std::vector<Layer> layers;
  Duration step{};  // of one stage: Measure and Step, without the updates of its layers
  Duration op{};    // added to each forward of a stage and to each BackwardInput
  Bytes tied;       // of the weight that first and last stage share (bucket 1); counted in the
                    // parameters of the first layer and of the last
  // Gradient sums are reduced while the last backward of their stage computes, see
  // collective/growth.h.
  bool sums_grow = false;
};

// The costs of one stage: the sums over its layers plus the stage's own costs. Each time is at most
// kLongestTime.
struct StageCost {
  Duration forward{}, backward_input{}, backward_weight{};  // per micro-batch
  Duration update{};                                        // per step
  Bytes activation;                                         // of the last layer's output
  Bytes stash;                                              // kept from forward to backward
  Bytes rebuilt;  // what the backward recomputes and holds while it runs, if the stage recomputes
  Bytes parameters;
};

// The cost of a stage. A stage that recomputes keeps only its input (the first stage keeps nothing:
// it can read its input data again), and its backward_input includes a forward.
StageCost stage_cost(const Model& model, const Stage& stage);

// The bytes of each value of each stage. Activations and gradients have the size of the layer
// output that they belong to, weight work has `weight_share` of what the backward reads (the stash,
// or what is made again in its place), and totals have the size of the parameters.
Sizes sizes_of(const Model& model, const std::vector<Stage>& stages, double weight_share = 1.0);

// The bytes that the Reduce of a bucket sums. The stage has `parameters` bytes of parameters;
// `tied` of them belong to a weight that it shares with another stage.
Bytes size_of_sum(Bytes parameters, Bytes tied, int16_t part);

// Chunk `chunk` of `size` bytes in `count` nearly equal pieces.
Bytes chunk_size(Bytes size, int32_t count, int32_t chunk);

}  // namespace tenuto
