#include "sync/chooser_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "sync/estimate.h"
#include "sync/heuristic.h"
#include "sync/ridge.h"

namespace tenuto {

namespace {

using Weights = KindWeights::Weights;

constexpr double kPenalty = 1;  // of weights, as one more row of the size 1 in each direction
// The rate is corrected by a factor of at most this, so that no wild weight wins a decision.
constexpr double kMostCorrection = 2;

double product(const Weights& weights, const Weights& features) {
  double sum = 0;
  for (size_t i = 0; i < kChooserFeatures; ++i) sum += weights[i] * features[i];
  return sum;
}

// The last iterations, and all that is the same for each mode.
class Look {
 public:
  explicit Look(const ChooseInput& input) : rounds_(input), sorted_(rounds_.means()) {
    std::sort(sorted_.begin(), sorted_.end());
    const double slowest = sorted_.back(), limit = kStraggler * sorted_.front();
    same_[0] = std::log(slowest / sorted_[sorted_.size() / 2]);
    same_[1] = std::log(rounds_.slowest() / slowest);
    for (const double mean : sorted_) same_[2] += mean > limit ? 1 / replicas() : 0;
    same_[3] = rounds_.late_share();
    for (const double mean : sorted_) free_rate_ += 1 / mean;
  }

  double replicas() const { return static_cast<double>(sorted_.size()); }
  SyncEstimate estimate(const SyncMode& mode) const { return rounds_.estimate(mode); }

  Weights features(const SyncMode& mode, const SyncEstimate& estimate) const {
    Weights features{};
    features[0] = std::log(estimate.gradients / free_rate_);  // what waiting costs
    std::copy(same_.begin(), same_.end(), features.begin() + 1);
    features[5] = std::min(1.0, estimate.demand);
    features[6] = std::log(std::max(1.0, estimate.demand));
    features[7] = mode.count / replicas();
    if (mode.kind == SyncKind::Count && mode.count > 0) {
      // Equal replicas fall into step: those that are left over wait for a whole round.
      const double together = std::floor(replicas() / mode.count) * mode.count;
      features[8] = std::log(together / replicas()) * (1 - same_[3]);
    }
    features[9] = 1;
    return features;
  }

 private:
  RecentRounds rounds_;
  std::vector<double> sorted_;    // means
  std::array<double, 4> same_{};  // features of all modes
  double free_rate_ = 0;          // if nobody waited
};

const KindWeights& weights_of(const ChooserModel& model, const SyncMode& mode) {
  return model.kinds[static_cast<size_t>(mode.kind)];
}

SyncMeasure promise(const ChooserModel& model, const Look& look, const SyncMode& mode) {
  const SyncEstimate estimate = look.estimate(mode);
  const Weights features = look.features(mode, estimate);
  const KindWeights& weights = weights_of(model, mode);
  const double most = std::log(kMostCorrection);
  const double factor = std::exp(std::clamp(product(weights.rate, features), -most, most));
  SyncMeasure measure;
  measure.gradients_per_second = estimate.gradients * factor;
  measure.updates_per_second = estimate.updates * factor;
  const double age = estimate.age + look.replicas() * product(weights.age, features);
  measure.mean_age = std::clamp(age, 0.0, look.replicas());  // W gradients are under way
  return measure;
}

// What the functions of one kind of mode learn from.
struct Rows {
  std::vector<double> features, rates, ages;
};

void add_rows(std::array<Rows, kSyncKinds>& rows, const DecisionRecord& record) {
  const Look look(record.input);
  for (const SyncAlternative& one : record.achieved) {
    const double rate = one.measure.gradients_per_second;
    if (!(rate > 0)) continue;  // no update in all the time: nothing to learn a ratio from
    const SyncEstimate estimate = look.estimate(one.mode);
    const Weights features = look.features(one.mode, estimate);
    Rows& own = rows[static_cast<size_t>(one.mode.kind)];
    own.features.insert(own.features.end(), features.begin(), features.end());
    own.rates.push_back(std::log(rate / estimate.gradients));
    own.ages.push_back((one.measure.mean_age - estimate.age) / look.replicas());
  }
}

Weights fitted(const Rows& rows, const std::vector<double>& targets) {
  Weights weights{};
  const auto found = ridge_weights(rows.features, targets, kChooserFeatures, kPenalty);
  std::copy(found.begin(), found.end(), weights.begin());
  return weights;
}

// The mean gain over the modes that the heuristic knows: one figure for each decision, because its
// modes have their luck together.
Gain gain_over_heuristic(const ChooserModel& model, std::span<const DecisionRecord> records) {
  GainSum gains;
  for (const DecisionRecord& record : records) {
    const Look look(record.input);
    const std::vector<IterationTime> means = means_of(record.input.samples);
    double sum = 0;
    int64_t known = 0;
    for (const SyncAlternative& one : record.achieved) {
      const double rate = one.measure.gradients_per_second;
      const auto published = published_promise(one.mode, means);
      if (!published || !(rate > 0)) continue;
      const double own = promise(model, look, one.mode).gradients_per_second;
      sum += std::abs(std::log(published->gradients_per_second / rate)) -
             std::abs(std::log(own / rate));
      ++known;
    }
    if (known > 0) gains.add(sum / static_cast<double>(known));
  }
  return gains.gain();
}

}  // namespace

void GainSum::add(double gain) {
  ++outcomes_;
  sum_ += gain;
  squares_ += gain * gain;
}

Gain GainSum::gain() const {
  if (outcomes_ == 0) return {};
  const auto count = static_cast<double>(outcomes_);
  const double mean = sum_ / count;
  if (outcomes_ == 1) return {1, mean, 0};
  const double variance = std::max(0.0, squares_ - count * mean * mean) / (count - 1);
  return {outcomes_, mean, std::sqrt(variance / count)};
}

bool surely_above_zero(const Gain& gain) {
  return gain.outcomes >= kLeastOutcomes && gain.mean > 2 * gain.error;
}

bool surely_below_zero(const Gain& gain) {
  return gain.outcomes >= kLeastOutcomes && gain.mean < -2 * gain.error;
}

ChooserModel train_chooser(std::span<const DecisionRecord> training,
                           std::span<const DecisionRecord> held_out) {
  CHECK(!training.empty(), "a record to train on");
  ChooserModel model;
  model.replicas = static_cast<int32_t>(training.front().input.samples.size());
  std::array<Rows, kSyncKinds> rows;
  for (const DecisionRecord& record : training) add_rows(rows, record);
  for (size_t kind = 0; kind < kSyncKinds; ++kind) {
    model.kinds[kind].rate = fitted(rows[kind], rows[kind].rates);
    model.kinds[kind].age = fitted(rows[kind], rows[kind].ages);
  }
  model.held_out = gain_over_heuristic(model, held_out);
  return model;
}

SyncMeasure promise_of(const ChooserModel& model, const ChooseInput& input, const SyncMode& mode) {
  return promise(model, Look(input), mode);
}

Result<SyncChoice> choose_by_model(const ChooserModel& model, const ChooseInput& input) {
  const auto modes = modes_to_compare(input);
  if (!modes.ok()) return modes.error();
  const auto replicas = static_cast<int32_t>(input.samples.size());
  if (replicas != model.replicas) {
    return invalid(cat("the chooser was trained for ", model.replicas,
                       " replicas: expected as many, found ", replicas,
                       "; train one for this number"));
  }
  const auto rule = UpdateRule::make({input.current, replicas, input.micros, {}, {}});
  if (!rule.ok()) return rule.error();
  const Look look(input);
  std::vector<SyncAlternative> alternatives;
  for (const SyncMode& mode : modes.value()) {
    SyncMeasure measure = promise(model, look, mode);
    const double score = progress_of(measure, replicas, input.kappa);
    alternatives.push_back({mode, std::move(measure), score});
  }
  return choose_best(std::move(alternatives), input.current, input.relays);
}

}  // namespace tenuto
