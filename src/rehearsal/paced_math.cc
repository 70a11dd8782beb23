#include "rehearsal/paced_math.h"

#include <cmath>
#include <cstddef>

#include "base/random.h"

namespace tenuto {

namespace {

// The factor of the weight: it makes the gradient depend on the input.
float factor(float x) { return static_cast<int64_t>(x) % 2 != 0 ? 2.0F : 1.0F; }

size_t next(size_t i, size_t count) { return i + 1 == count ? 0 : i + 1; }

}  // namespace

std::vector<float> paced_input(Iteration iteration, MicroId micro, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = (int64_t{micro.value} * 7 + i * 3 + iteration.value) % 11 - 5;
    x[static_cast<size_t>(i)] = static_cast<float>(number);
  }
  return x;
}

std::vector<float> paced_weights(int64_t seed, StageId stage, int64_t count) {
  std::vector<float> weights(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) {
    const uint64_t bits = mix(static_cast<uint64_t>(seed), static_cast<uint64_t>(stage.value),
                              static_cast<uint64_t>(k));
    weights[static_cast<size_t>(k)] = static_cast<float>(static_cast<int64_t>(bits % 5) - 2);
  }
  return weights;
}

void paced_forward(std::span<const float> weights, std::span<const float> x, std::span<float> y) {
  for (size_t i = 0; i < x.size(); ++i) {
    const float from = x[next(i, x.size())];
    y[i] = from + weights[i % weights.size()] * factor(from);
  }
}

double paced_loss(std::span<const float> y) {
  return paced_square(0, y) / (2.0 * static_cast<double>(y.size()));
}

void paced_backward_input(std::span<const float> dy, std::span<float> dx) {
  for (size_t i = 0; i < dy.size(); ++i) dx[next(i, dy.size())] = dy[i];
}

void paced_backward_weight(std::span<const float> x, std::span<const float> dy,
                           std::span<float> sum) {
  for (size_t i = 0; i < dy.size(); ++i) {
    sum[i % sum.size()] += dy[i] * factor(x[next(i, x.size())]);
  }
}

double paced_square(double square, std::span<const float> gradient) {
  for (const float element : gradient) square += static_cast<double>(element) * element;
  return square;
}

void paced_update(std::span<float> weights, std::span<const float> gradient, double clip) {
  for (size_t k = 0; k < weights.size(); ++k) {
    if (clip < 1 && std::abs(gradient[k] * clip) < 0.5) continue;
    weights[k] -= static_cast<float>((gradient[k] > 0) - (gradient[k] < 0));
  }
}

}  // namespace tenuto
