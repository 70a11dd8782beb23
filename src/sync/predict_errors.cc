#include "sync/predict_errors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.h"
#include "sync/choose.h"
#include "sync/heuristic.h"

namespace tenuto {

namespace {

std::vector<bool> late_of(const std::vector<IterationTime>& times) {
  std::vector<bool> late(times.size());
  for (const ReplicaId replica : stragglers(times)) late[static_cast<size_t>(replica.value)] = true;
  return late;
}

// One iteration of all replicas: what was predicted, and what was.
void count(PredictionErrors& errors, const std::vector<IterationTime>& predicted,
           const std::vector<IterationTime>& measured) {
  const std::vector<bool> said = late_of(predicted), was = late_of(measured);
  for (size_t i = 0; i < said.size(); ++i) {
    int64_t& of = was[i] ? (said[i] ? errors.right_late : errors.false_negatives)
                         : (said[i] ? errors.false_positives : errors.right_on_time);
    ++of;
  }
}

std::string percent(int64_t part, int64_t all) {
  if (all == 0) return "-";
  return cat(fixed(100 * static_cast<double>(part) / static_cast<double>(all), 1), " %");
}

}  // namespace

PredictionErrors prediction_errors(const PredictorMaker& maker,
                                   std::span<const Recording> recordings) {
  PredictionErrors errors;
  errors.name = maker.name;
  for (const Recording& recording : recordings) {
    std::vector<std::unique_ptr<Predictor>> predictors;
    for (size_t i = 0; i < recording.replicas.size(); ++i) predictors.push_back(maker.make());
    for (size_t at = 0; at < recording.replicas.front().size(); ++at) {
      std::vector<IterationTime> predicted, measured;
      for (size_t i = 0; i < predictors.size(); ++i) {
        const IterationSample& sample = recording.replicas[i][at];
        if (at >= kKeptSamples) {
          const std::vector<Duration> set = predictors[i]->predict();
          const Duration middle = quantile_of(set, 0.5), time = whole_time(sample);
          const double over = to_milliseconds(time - quantile_of(set, kErrorQuantile));
          errors.absolute_ms += std::abs(to_milliseconds(time - middle));
          errors.quantile_ms += std::max(kErrorQuantile * over, (kErrorQuantile - 1) * over);
          ++errors.predictions;
          predicted.push_back({middle, {}});
          measured.push_back(time_of(sample));
        }
        predictors[i]->observe(sample);
      }
      if (at >= kKeptSamples) count(errors, predicted, measured);
    }
  }
  return errors;
}

std::string prediction_table(const std::vector<PredictionErrors>& all) {
  std::string text = "predictor  mean error  quantile error  accuracy  false pos.  false neg.\n";
  std::string not_beaten;
  const auto mean = [](double sum, const PredictionErrors& of) {
    return sum / static_cast<double>(std::max<int64_t>(1, of.predictions));
  };
  double constant = -1;
  for (const PredictionErrors& of : all) {
    if (of.name == "constant") constant = mean(of.absolute_ms, of);
  }
  for (const PredictionErrors& of : all) {
    const int64_t late = of.right_late + of.false_negatives;
    char line[160];
    std::snprintf(line, sizeof(line), "%-9s %8.2f ms %12.2f ms %9s %11s %11s\n", of.name.c_str(),
                  mean(of.absolute_ms, of), mean(of.quantile_ms, of),
                  percent(of.right_late + of.right_on_time, of.predictions).c_str(),
                  percent(of.false_positives, of.predictions - late).c_str(),
                  percent(of.false_negatives, late).c_str());
    text += line;
    if (of.name != "constant" && mean(of.absolute_ms, of) >= constant) {
      not_beaten += cat(not_beaten.empty() ? "" : ", ", of.name);
    }
  }
  if (constant < 0) return text;
  return text + (not_beaten.empty()
                     ? "a constant must lose: it does, against each of the others\n"
                     : cat("a constant must lose: it does not against ", not_beaten, "\n"));
}

Recording record_with_hogs(const SyncScenario& scenario, int64_t iterations, uint64_t seed) {
  return record_scenario(scenario, {{1, 0.05, 0.2, 2}, {2, 0.02, 0.05, 3}}, iterations, seed);
}

}  // namespace tenuto
