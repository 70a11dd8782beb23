// The tiny mathematics of the paced device: a chain of stages on small whole numbers in fp32, where
// every sum is exact, so that a run over many workers can be compared with one plain loop to the
// last bit, and a message that went to the wrong micro-batch changes the result.
//
// One stage, elements i of a message, weights w: x'(i) = x(i + 1), y(i) = x'(i) + w(i) s(x'(i))
// with s = 2 for odd x' and 1 for even. Loss: mean of y^2 / 2 at the last stage. Update: each
// weight moves by 1 against the sign of its gradient; if gradients are clipped, a weight whose
// clipped gradient is smaller in size than 1/2 does not move. An index past the end wraps around.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/id.h"
#include "ir/version.h"

namespace tenuto {

// Elements of a message that carry numbers, at most; the rest of a large message is ballast.
inline constexpr int64_t kPacedLive = 64;

// What stage 0 reads for a micro-batch of an iteration: whole numbers from -5 to 5.
std::vector<float> paced_input(Iteration iteration, MicroId micro, int64_t count);
// The first weights of a stage: whole numbers from -2 to 2.
std::vector<float> paced_weights(int64_t seed, StageId stage, int64_t count);
// y from x; equal sizes.
void paced_forward(std::span<const float> weights, std::span<const float> x, std::span<float> y);
// The loss of the last stage's y.
double paced_loss(std::span<const float> y);
// The gradient of the input from that of the output; equal sizes.
void paced_backward_input(std::span<const float> dy, std::span<float> dx);
// Adds the weight gradient of one micro-batch to `sum`, which has an element per weight.
void paced_backward_weight(std::span<const float> x, std::span<const float> dy,
                           std::span<float> sum);
// Adds the squares of `gradient`, in order, to `square`.
double paced_square(double square, std::span<const float> gradient);
// The optimizer's update; `clip` is the factor for the gradients, at most 1.
void paced_update(std::span<float> weights, std::span<const float> gradient, double clip = 1);

}  // namespace tenuto
