#include "sync/trial_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/random.h"
#include "sync/scenario.h"

namespace tenuto {

namespace {

constexpr int32_t kClusters = 40, kTrain = 16'000, kTest = 1'500, kServer = 1'000;
constexpr double kCenterDeviation = 1.0, kNoise = 1.0;
// Which part of the data a key is drawn for.
enum class Part : uint64_t { Centers = 11, Train, Test, Weights, Batches, Server, ServerBatches };

constexpr int32_t kSecond =
    (TrialModel::kInputs + 1) * TrialModel::kHidden;  // second layer's place

}  // namespace

// What a forward pass leaves for the backward pass.
struct TrialModel::Activations {
  std::array<float, kHidden> hidden{};
  std::array<float, kClasses> scores{};
};

TrialModel::TrialModel(uint64_t seed, int32_t replicas) : seed_(seed), replicas_(replicas) {
  std::vector<float> centers;
  for (int32_t i = 0; i < kClusters * kInputs; ++i) {
    const uint64_t key = mix(seed_, static_cast<uint64_t>(Part::Centers), static_cast<uint64_t>(i));
    centers.push_back(static_cast<float>(kCenterDeviation * normal(key)));
  }
  train_ = drawn(kTrain, static_cast<uint64_t>(Part::Train), centers);
  test_ = drawn(kTest, static_cast<uint64_t>(Part::Test), centers);
  server_ = drawn(kServer, static_cast<uint64_t>(Part::Server), centers);
}

TrialModel::Samples TrialModel::drawn(int32_t count, uint64_t part,
                                      const std::vector<float>& centers) const {
  Samples samples;
  Random random(mix(seed_, part));
  for (int32_t i = 0; i < count; ++i) {
    const auto cluster = static_cast<int32_t>(random.below(kClusters));
    samples.classes.push_back(static_cast<int8_t>(cluster % kClasses));
    for (int32_t d = 0; d < kInputs; ++d) {
      const auto center = centers[static_cast<size_t>(cluster * kInputs + d)];
      samples.inputs.push_back(center + static_cast<float>(kNoise * normal(random.next())));
    }
  }
  return samples;
}

std::vector<float> TrialModel::initial() const {
  std::vector<float> parameters(kParameters, 0.0f);
  for (int32_t i = 0; i < kParameters; ++i) {
    const bool first = i < kSecond;
    const bool bias = first ? i >= kInputs * kHidden : i - kSecond >= kHidden * kClasses;
    if (bias) continue;
    const uint64_t key = mix(seed_, static_cast<uint64_t>(Part::Weights), static_cast<uint64_t>(i));
    parameters[static_cast<size_t>(i)] =
        static_cast<float>(normal(key) * std::sqrt(2.0 / (first ? kInputs : kHidden)));
  }
  return parameters;
}

// Layers: weights [input][output], then one bias per output.
void TrialModel::forward(std::span<const float> parameters, const float* input, Activations& out) {
  const float* weights = parameters.data();
  const float* bias = weights + kInputs * kHidden;
  for (int32_t h = 0; h < kHidden; ++h) out.hidden[static_cast<size_t>(h)] = bias[h];
  for (int32_t d = 0; d < kInputs; ++d) {
    const float* row = weights + d * kHidden;
    for (size_t h = 0; h < kHidden; ++h) out.hidden[h] += input[d] * row[h];
  }
  for (float& value : out.hidden) value = std::max(value, 0.0f);
  const float* second = parameters.data() + kSecond;
  const float* second_bias = second + kHidden * kClasses;
  for (size_t c = 0; c < kClasses; ++c) out.scores[c] = second_bias[c];
  for (size_t h = 0; h < kHidden; ++h) {
    const float* row = second + h * kClasses;
    for (size_t c = 0; c < kClasses; ++c) out.scores[c] += out.hidden[h] * row[c];
  }
}

double TrialModel::backward(std::span<const float> parameters, const float* input, int32_t wanted,
                            const Activations& at, std::vector<float>& gradient) {
  const float most = *std::max_element(at.scores.begin(), at.scores.end());
  std::array<float, kClasses> error{};
  float sum = 0;
  for (size_t c = 0; c < kClasses; ++c) sum += error[c] = std::exp(at.scores[c] - most);
  for (size_t c = 0; c < kClasses; ++c) error[c] /= sum;
  float& own = error[static_cast<size_t>(wanted)];
  const double loss = -std::log(std::max(own, 1e-30f));
  own -= 1;
  const float* second = parameters.data() + kSecond;
  float* to_second = gradient.data() + kSecond;
  std::array<float, kHidden> back{};
  for (size_t h = 0; h < kHidden; ++h) {
    for (size_t c = 0; c < kClasses; ++c) {
      to_second[h * kClasses + c] += at.hidden[h] * error[c];
      back[h] += second[h * kClasses + c] * error[c];
    }
    if (at.hidden[h] <= 0) back[h] = 0;
  }
  for (size_t c = 0; c < kClasses; ++c) to_second[kHidden * kClasses + c] += error[c];
  for (size_t d = 0; d < kInputs; ++d) {
    float* row = gradient.data() + d * kHidden;
    for (size_t h = 0; h < kHidden; ++h) row[h] += input[d] * back[h];
  }
  float* bias = gradient.data() + kInputs * kHidden;
  for (size_t h = 0; h < kHidden; ++h) bias[h] += back[h];
  return loss;
}

void TrialModel::add(std::span<const float> parameters, const Samples& from, size_t sample,
                     Gradient& sum) {
  Activations activations;
  const float* input = from.inputs.data() + sample * kInputs;
  forward(parameters, input, activations);
  sum.loss += backward(parameters, input, from.classes[sample], activations, sum.sum);
}

TrialModel::Gradient TrialModel::gradient(std::span<const float> parameters, int32_t replica,
                                          int64_t iteration, int64_t samples) const {
  Gradient sum{std::vector<float>(kParameters, 0.0f)};
  const int32_t shard = kTrain / replicas_;
  Random random(mix(seed_, static_cast<uint64_t>(Part::Batches), static_cast<uint64_t>(replica),
                    static_cast<uint64_t>(iteration)));
  for (int64_t i = 0; i < samples; ++i) {
    add(parameters, train_, static_cast<size_t>(replica * shard + random.below(shard)), sum);
  }
  return sum;
}

TrialModel::Gradient TrialModel::server_gradient(std::span<const float> parameters, int64_t draw,
                                                 int64_t samples) const {
  Gradient sum{std::vector<float>(kParameters, 0.0f)};
  Random random(
      mix(seed_, static_cast<uint64_t>(Part::ServerBatches), static_cast<uint64_t>(draw)));
  for (int64_t i = 0; i < samples; ++i) {
    add(parameters, server_, static_cast<size_t>(random.below(kServer)), sum);
  }
  return sum;
}

double TrialModel::accuracy(std::span<const float> parameters) const {
  Activations activations;
  int32_t right = 0;
  for (size_t i = 0; i < kTest; ++i) {
    forward(parameters, test_.inputs.data() + i * kInputs, activations);
    const auto best = std::max_element(activations.scores.begin(), activations.scores.end());
    right += best - activations.scores.begin() == test_.classes[i];
  }
  return static_cast<double>(right) / kTest;
}

}  // namespace tenuto
