// What the learned chooser has learned: for each kind of mode two linear functions that correct the
// closed form of its gradients per second and of their age (sync/estimate.h). They are trained on
// outcomes: decisions, and what each mode achieved after them.
//
// All inputs are ratios, so one chooser serves replicas of any speed. It serves one number of
// replicas.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sync/choose.h"

namespace tenuto {

// The kinds of modes (ir/sync_mode.h), and the inputs of the functions: the features of a mode for
// the last iterations.
constexpr size_t kSyncKinds = 8, kChooserFeatures = 10;

// The weights for one kind of mode.
struct KindWeights {
  // One for each feature.
  using Weights = std::array<double, kChooserFeatures>;
  Weights rate{};  // of the logarithm of gradients per second over the estimate
  Weights age{};   // of the age minus the estimate, in parts of the number of replicas
  bool operator==(const KindWeights&) const = default;
};

// By how much one is less wrong than another, in the logarithm of gradients per second.
struct Gain {
  int64_t outcomes = 0;
  double mean = 0, error = 0;  // of one outcome; the standard error of the mean
  bool operator==(const Gain&) const = default;
};
// The same while outcomes come in.
class GainSum {
 public:
  // One more outcome.
  void add(double gain);
  // All of them; the error is 0 for one.
  Gain gain() const;

 private:
  int64_t outcomes_ = 0;
  double sum_ = 0, squares_ = 0;
};
// The mean is above zero, or below zero, by more than two standard errors of at least
// kLeastOutcomes outcomes.
bool surely_above_zero(const Gain& gain);
bool surely_below_zero(const Gain& gain);
constexpr int64_t kLeastOutcomes = 8;

// A chooser that was trained, or none: with weights 0 it takes the estimate as it is.
struct ChooserModel {
  int32_t replicas = 0;
  Gain held_out;  // of the model over the published heuristic, on what it was not trained on
  std::array<KindWeights, kSyncKinds> kinds;  // indexed by SyncKind
  bool operator==(const ChooserModel&) const = default;
};

// A decision, and what each mode achieved after it.
struct DecisionRecord {
  ChooseInput input;
  std::vector<SyncAlternative> achieved;  // scores are of the input's kappa
};

// Trains on the first records and judges on the second ones, which are of the same number of
// replicas. A pure function of its arguments.
//
// Requires: a record to train on
ChooserModel train_chooser(std::span<const DecisionRecord> training,
                           std::span<const DecisionRecord> held_out);

// What the model promises of a mode.
//
// Requires: samples of as many replicas as the model has; a formed mode that they can run
SyncMeasure promise_of(const ChooserModel& model, const ChooseInput& input, const SyncMode& mode);

// Compares the same modes as the look-ahead (sync/choose.h), by what the model promises of them.
//
// Errors: those of modes_to_compare; Invalid/Call  another number of replicas than the model's; a
//         current mode that the rule does not accept
Result<SyncChoice> choose_by_model(const ChooserModel& model, const ChooseInput& input);

// The model as the text of a chooser file:
//
//     tenuto chooser 1
//     replicas W
//     held-out OUTCOMES MEAN ERROR
//     KIND rate WEIGHT ... (10 of them)
//     KIND age WEIGHT ...
//
// with the last two lines for each kind of mode: synchronous, asynchronous, x, grace, groups, ring,
// backup, rebalanced.
std::string to_text(const ChooserModel& model);

// Reads the text back: the same model. Blank lines and lines that begin with # are skipped.
//
// Errors: Invalid/Call "SOURCE:LINE:COLUMN: sentence", also for a model of another number of
//         replicas
Result<ChooserModel> chooser_from_text(std::string_view text, std::string_view source,
                                       int32_t replicas);
// The largest weight that a chooser file may have, and the smallest one, below 0.
constexpr int64_t kMostChooserWeight = 1'000'000;

}  // namespace tenuto
