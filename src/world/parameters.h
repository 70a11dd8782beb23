// The parameters of a model, layer by layer, and their initial values. Neither depends on how the
// layers are cut into stages, nor on torch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/collective.h"
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

// Where the tensors of a stage lie in a flat tensor of all of them, such as the stage's gradient:
// matrices (decayed), then vectors and buffers, then the shared tied weight, those of each kind in
// the order of their cards. In fp32, each tensor starts at a multiple of 64 bytes, as torch would
// place it, so that matrix products take the same path. The elements between them are unused.
struct ParameterLayout {
  std::vector<int64_t> first;  // of each card: its first element
  int64_t decayed_end = 0;     // of the matrices
  int64_t shared_first = 0;    // of the shared weight; `count` if there is none
  int64_t count = 0;           // elements of the flat tensor
};

// The layout of the tensors on these cards.
ParameterLayout layout_of(std::span<const ParameterCard> cards);

// The gradients of a stage in the order in which a backward pass completes them: the trained
// tensors of `cards`, the last one first, each as a range of the flat gradient. Matrices and
// vectors lie apart, so neighbours in this order may be far from each other in the flat gradient.
//
// Requires: the cards are in the order of the model, and `layout` is layout_of(cards)
std::vector<ElementRange> growth_of(std::span<const ParameterCard> cards,
                                    const ParameterLayout& layout);

// The initial values of a parameter: a function of (seed, name) alone.
//
// Shapes: `into` has card.count() elements
void initial_values(const ParameterCard& card, int64_t seed, std::span<float> into);

// The learning rate of a step: linear warm-up, then cosine to the minimum (or constant). The step
// need not be whole: with server shards it is the mass before an update, in parts of a step's mass.
double learning_rate(const OptimizerSettings& optimizer, double step, int64_t step_count);

}  // namespace tenuto
