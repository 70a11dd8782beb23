// Predictors: how long the next iteration of a replica will take, from those that it has finished.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sync/predict_record.h"

namespace tenuto {

// Predicts the whole time of one replica's next iteration. A prediction is a set of equally likely
// times, so that its quantiles can be asked for; a predictor of one time gives a set of one.
class Predictor {
 public:
  Predictor() = default;
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;
  virtual ~Predictor() = default;
  // The replica has finished an iteration.
  virtual void observe(const IterationSample& sample) = 0;
  // The set, ascending and not empty. Requires: an observation
  virtual std::vector<Duration> predict() const = 0;
};

// A way to predict, under its name; `make` gives a predictor for one replica.
struct PredictorMaker {
  std::string name;
  std::function<std::unique_ptr<Predictor>()> make;
};

// The predictors that learn nothing:
//   constant  the first time, for ever: what every other one has to beat
//   last      the last time
//   mean      of the last kKeptSamples times
//   median    of these
//   window    these themselves
std::vector<PredictorMaker> plain_predictors();

// The least time of an ascending set that at least this share (0 to 1) of its times do not exceed.
// Unlike quantile (base/quantile.h) it does not interpolate: a predictor gives the times of a few
// quantiles, and the set's quantile 0.9 shall be the one that was predicted for 0.9.
//
// Requires: a time
Duration quantile_of(std::span<const Duration> ascending, double quantile);

}  // namespace tenuto
