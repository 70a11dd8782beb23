// How good predictors are, measured on recordings: errors of the times, and whether the replicas
// that straggle are those that the predictions say.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sync/predict.h"

namespace tenuto {

// What a predictor did on recordings, one prediction per replica and iteration.
struct PredictionErrors {
  std::string name;
  int64_t predictions = 0;
  double absolute_ms = 0;  // sum of |time - median of the prediction|
  double quantile_ms = 0;  // sum of the quantile error (pinball loss) at kErrorQuantile
  // By the rule of stragglers on predicted medians and on times.
  int64_t right_late = 0, right_on_time = 0, false_positives = 0, false_negatives = 0;
};
constexpr double kErrorQuantile = 0.9;

// Predicts every iteration of the recordings after the first kKeptSamples of each, from those
// before it.
PredictionErrors prediction_errors(const PredictorMaker& maker,
                                   std::span<const Recording> recordings);

// The errors as a table for people: means in milliseconds, accuracy of all predictions, false
// positives of the replicas that were on time, false negatives of those that straggled. Below it,
// one line says whether the predictor "constant" loses to each other one.
std::string prediction_table(const std::vector<PredictionErrors>& all);

// The scenario's recording with two other jobs on hosts 1 and 2, one short and one long.
Recording record_with_hogs(const SyncScenario& scenario, int64_t iterations, uint64_t seed);

}  // namespace tenuto
