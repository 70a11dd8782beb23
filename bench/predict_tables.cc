#include "bench/predict_tables.h"

#include <cstdio>
#include <utility>

#include "base/file.h"
#include "base/random.h"
#include "base/text.h"
#include "sync/choose.h"
#include "sync/predict_errors.h"
#include "sync/predict_learned.h"
#include "sync/verdict.h"

namespace tenuto {

namespace {

constexpr int64_t kIterations = 400;  // of each recording: 40 s, and so more than one phase
constexpr int64_t kBatches = 20'000;
constexpr int kTrainingSeeds = 2;

// Seeds of training lie far from those that are counted up for the measurement.
uint64_t training_seed(int i) { return mix(0x7472'6169'6e00, static_cast<uint64_t>(i)); }

std::vector<PredictorMaker> all_predictors() {
  std::vector<Recording> training;
  for (const SyncScenario& of : sync_scenarios()) {
    for (int i = 0; i < kTrainingSeeds; ++i) {
      training.push_back(record_with_hogs(of, kIterations, training_seed(i)));
    }
  }
  std::vector<PredictorMaker> makers = plain_predictors();
  makers.push_back(learned_predictor(train_predictor(training, kBatches, 1)));
  return makers;
}

Result<Recording> recording_of(const std::string& path) {
  const auto text = read_file(path);
  if (!text.ok()) return text.error();
  auto recording = recording_from_text(text.value(), path);
  if (!recording.ok()) return recording.error();
  const size_t samples = recording.value().replicas.front().size();
  if (samples <= kKeptSamples) {
    return invalid(cat(path, ": expected more than ", kKeptSamples,
                       " samples of each replica, which the predictors see first, found ",
                       samples));
  }
  return recording;
}

// The recordings of one table.
struct Measured {
  std::string name;
  std::vector<Recording> recordings;
};

Result<std::vector<Measured>> measured_of(const PredictorQuestion& question) {
  std::vector<Measured> all;
  for (const std::string& path : question.recordings) {
    auto recording = recording_of(path);
    if (!recording.ok()) return recording.error();
    all.push_back({path, {std::move(recording).value()}});
  }
  if (!all.empty()) return all;
  for (const SyncScenario& of : question.scenarios) {
    Measured drawn{of.name, {}};
    for (int i = 0; i < question.seeds; ++i) {
      drawn.recordings.push_back(
          record_with_hogs(of, kIterations, question.first_seed + static_cast<uint64_t>(i)));
    }
    all.push_back(std::move(drawn));
  }
  return all;
}

void print_table(const Measured& measured, const std::vector<PredictorMaker>& makers) {
  std::vector<PredictionErrors> errors;
  for (const PredictorMaker& of : makers) {
    errors.push_back(prediction_errors(of, measured.recordings));
  }
  std::printf("%s\n%s\n", measured.name.c_str(), prediction_table(errors).c_str());
  std::fflush(stdout);
}

}  // namespace

Status print_predictors(const PredictorQuestion& question) {
  const auto found = measured_of(question);
  if (!found.ok()) return found.error();
  const std::vector<PredictorMaker> makers = all_predictors();
  Measured together{"all of them", {}};
  for (const Measured& one : found.value()) {
    print_table(one, makers);
    together.recordings.insert(together.recordings.end(), one.recordings.begin(),
                               one.recordings.end());
  }
  if (found.value().size() > 1) print_table(together, makers);
  const Recording& last = together.recordings.back();
  std::printf("stragglers of one recording, %s\n%s", last.name.c_str(),
              straggle_report(last).c_str());
  if (question.record.empty()) return ok();
  return write_file(question.record, to_text(last));
}

}  // namespace tenuto
