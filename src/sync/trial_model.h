// The small classifier that is trained in trials of sync modes: real gradients, so that stale ones
// cost what they cost.
//
// Ten classes of four Gaussian clusters each in 32 dimensions, 16,000 samples to train on, 1,500 to
// test and 1,000 that a server may have for itself; a network 32-48-10 with ReLU and softmax.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tenuto {

// Data and network of one seed. Parameters are kept by the caller, so that each replica can have an
// older version of them.
class TrialModel {
 public:
  static constexpr int32_t kInputs = 32, kHidden = 48, kClasses = 10;
  // Weights and biases of both layers.
  static constexpr int32_t kParameters = (kInputs + 1) * kHidden + (kHidden + 1) * kClasses;

  // `replicas`: the training data is cut into so many shards.
  TrialModel(uint64_t seed, int32_t replicas);

  // Fresh parameters.
  std::vector<float> initial() const;
  // Sums over samples.
  struct Gradient {
    std::vector<float> sum;  // of the loss's gradients: kParameters
    double loss = 0;
  };
  // Loss and gradient of the samples that the replica reads in this iteration, drawn from its own
  // shard.
  Gradient gradient(std::span<const float> parameters, int32_t replica, int64_t iteration,
                    int64_t samples) const;
  // The same for samples that only the server has, which are neither trained on nor tested with.
  // Each value of `draw` takes other ones of them.
  Gradient server_gradient(std::span<const float> parameters, int64_t draw, int64_t samples) const;
  // The share of the test samples whose class is found.
  double accuracy(std::span<const float> parameters) const;

 private:
  struct Activations;
  struct Samples {
    std::vector<float> inputs;    // count x kInputs
    std::vector<int8_t> classes;  // count
  };
  Samples drawn(int32_t count, uint64_t part, const std::vector<float>& centers) const;
  // Adds the gradient and the loss of one sample.
  static void add(std::span<const float> parameters, const Samples& from, size_t sample,
                  Gradient& sum);
  static void forward(std::span<const float> parameters, const float* input, Activations& out);
  // Adds the sample's gradient and returns its loss.
  static double backward(std::span<const float> parameters, const float* input, int32_t wanted,
                         const Activations& at, std::vector<float>& gradient);

  uint64_t seed_;
  int32_t replicas_;
  Samples train_, test_, server_;
};

}  // namespace tenuto
