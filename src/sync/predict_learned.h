// A learned predictor: a small network that knows the last times of a replica, its run delay and
// its host's pressure, and gives quantiles of the next time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sync/predict.h"

namespace tenuto {

// One hidden layer with tanh between the features of the window and five quantiles. All is
// relative to the window's median time, so one network serves replicas of every speed.
struct PredictorNet {
  std::vector<float> weights;  // kPredictorWeights of them
};
constexpr size_t kPredictorFeatures = 11, kPredictorHidden = 16, kPredictorQuantiles = 5;
constexpr size_t kPredictorWeights =
    kPredictorHidden * (kPredictorFeatures + 1) + kPredictorQuantiles * (kPredictorHidden + 1);

// Trains a network on recordings for this many batches of 16 iterations, by Adam (ir/mass_step.h)
// on the quantile error of the logarithm of the time. Equal arguments give equal networks. The
// first kKeptSamples iterations of a recording only fill its window.
//
// Requires: a recording with more than kKeptSamples iterations
// Source: Koenker and Bassett, "Regression quantiles", Econometrica 46 (1978).
PredictorNet train_predictor(std::span<const Recording> recordings, int64_t batches, uint64_t seed);

// The predictor "learned" with this network; it does not learn any more.
PredictorMaker learned_predictor(PredictorNet net);

}  // namespace tenuto
