// The parameters of a model, layer by layer, and their initial values. Neither depends on how the
// layers are cut into stages, nor on torch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "world/job.h"

namespace tenuto {

inline constexpr int64_t kVocabulary = 256;  // bytes

// What a model needs to know of its data.
struct DataExtent {
  int64_t features = 0;  // mlp: numbers of one row
  int64_t classes = 0;   // mlp: how many classes there are
};

// One parameter tensor. Its name does not depend on the stage.
struct ParameterCard {
  std::string name;
  std::vector<int64_t> shape;
  double deviation = 0;  // of the normal distribution it is drawn from; 0 = all `constant`
  double constant = 0;
  bool counted = true;  // false: the second copy of the tied weight, which the norm leaves out
  bool shared = false;  // the tied weight when two stages hold it: it has its own bucket
  bool trained = true;  // false: a buffer, which has no gradient and which no update changes

  // Number of elements.
  int64_t count() const;
  // True for trained matrices: weight decay does not apply to gains, biases and buffers.
  bool decays() const { return trained && shape.size() > 1; }
};

// The parameters of layers [layer_first, layer_end) in the order of the whole model. A tied weight
// that two stages hold comes last in the second one.
std::vector<ParameterCard> parameters_of(const ModelSettings& model, const DataExtent& extent,
                                         int32_t layer_first, int32_t layer_end);

// The initial values of a parameter: a function of (seed, name) alone.
//
// Shapes: `into` has card.count() elements
void initial_values(const ParameterCard& card, int64_t seed, std::span<float> into);

// The learning rate of a step: linear warm-up, then cosine to the minimum (or constant).
double learning_rate(const OptimizerSettings& optimizer, int64_t step, int64_t step_count);

}  // namespace tenuto
