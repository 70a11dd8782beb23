#include "sync/predict_learned.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "ir/mass_step.h"
#include "sync/choose.h"

namespace tenuto {

namespace {

using Features = std::array<double, kPredictorFeatures>;
using Hidden = std::array<double, kPredictorHidden>;
using Quantiles = std::array<double, kPredictorQuantiles>;

// The middles of five parts of equal chance.
constexpr Quantiles kQuantiles = {0.1, 0.3, 0.5, 0.7, 0.9};
constexpr size_t kSecondLayer = kPredictorHidden * (kPredictorFeatures + 1);
constexpr double kLateInWindow = 1.2;  // times the window's least time

double in_double(Duration time) { return static_cast<double>(std::max<int64_t>(1, time.count())); }

// What the network sees of the last samples, and the unit of its times in nanoseconds.
struct Seen {
  Features features{};
  double unit = 1;
};

// Requires: a sample
Seen look(std::span<const IterationSample> window) {
  std::vector<Duration> sorted;
  for (const IterationSample& of : window) sorted.push_back(whole_time(of));
  const std::vector<Duration> times = sorted;
  std::sort(sorted.begin(), sorted.end());
  Seen seen;
  seen.unit = in_double(quantile_of(sorted, 0.5));
  const auto relative = [&](double time) { return std::log(time / seen.unit); };
  constexpr size_t kLags = 4;
  double delayed = 0, late = 0, sum = 0;
  for (size_t lag = 0; lag < kLags; ++lag) {
    const size_t at = times.size() - 1 - std::min(lag, times.size() - 1);
    seen.features[lag] = relative(in_double(times[at]));
    const double whole = in_double(window[at].compute + window[at].send + window[at].receive);
    delayed += static_cast<double>(window[at].run_delay.count()) / whole / kLags;
    if (lag == 0) seen.features[kLags] = static_cast<double>(window[at].run_delay.count()) / whole;
  }
  for (const Duration time : times) {
    sum += in_double(time);
    late += in_double(time) > kLateInWindow * in_double(sorted.front()) ? 1 : 0;
  }
  const auto count = static_cast<double>(times.size());
  seen.features[5] = delayed;
  seen.features[6] = window.back().pressure;
  seen.features[7] = relative(sum / count);
  seen.features[8] = late / count;
  seen.features[9] = relative(in_double(quantile_of(sorted, 0.9)));
  seen.features[10] = relative(in_double(quantile_of(sorted, 0.1)));
  return seen;
}

// Rows of the layers end with their bias.
Quantiles run(std::span<const float> weights, const Features& features, Hidden& hidden) {
  for (size_t i = 0; i < kPredictorHidden; ++i) {
    const auto row = weights.subspan(i * (kPredictorFeatures + 1));
    double sum = row[kPredictorFeatures];
    for (size_t k = 0; k < kPredictorFeatures; ++k) sum += double{row[k]} * features[k];
    hidden[i] = std::tanh(sum);
  }
  Quantiles out{};
  for (size_t i = 0; i < kPredictorQuantiles; ++i) {
    const auto row = weights.subspan(kSecondLayer + i * (kPredictorHidden + 1));
    out[i] = row[kPredictorHidden];
    for (size_t k = 0; k < kPredictorHidden; ++k) out[i] += double{row[k]} * hidden[k];
  }
  return out;
}

// Adds the gradient of the quantile error for one example.
void add_gradient(std::span<const float> weights, const Features& features, double truth,
                  std::span<double> gradient) {
  Hidden hidden{}, back{};
  const Quantiles out = run(weights, features, hidden);
  for (size_t i = 0; i < kPredictorQuantiles; ++i) {
    const double slope = truth > out[i] ? -kQuantiles[i] : 1 - kQuantiles[i];
    const size_t row = kSecondLayer + i * (kPredictorHidden + 1);
    for (size_t k = 0; k < kPredictorHidden; ++k) {
      gradient[row + k] += slope * hidden[k];
      back[k] += slope * double{weights[row + k]};
    }
    gradient[row + kPredictorHidden] += slope;
  }
  for (size_t i = 0; i < kPredictorHidden; ++i) {
    const size_t row = i * (kPredictorFeatures + 1);
    const double slope = back[i] * (1 - hidden[i] * hidden[i]);
    for (size_t k = 0; k < kPredictorFeatures; ++k) gradient[row + k] += slope * features[k];
    gradient[row + kPredictorFeatures] += slope;
  }
}

struct Example {
  Features features{};
  double truth = 0;  // logarithm of the time in units
};

std::vector<Example> examples_of(std::span<const Recording> recordings) {
  std::vector<Example> examples;
  for (const Recording& recording : recordings) {
    for (const auto& samples : recording.replicas) {
      for (size_t i = kKeptSamples; i < samples.size(); ++i) {
        const Seen seen = look(std::span(samples).subspan(i - kKeptSamples, kKeptSamples));
        examples.push_back(
            {seen.features, std::log(in_double(whole_time(samples[i])) / seen.unit)});
      }
    }
  }
  return examples;
}

class LearnedPredictor : public Predictor {
 public:
  explicit LearnedPredictor(std::shared_ptr<const PredictorNet> net) : net_(std::move(net)) {}

  void observe(const IterationSample& sample) override {
    if (window_.size() == kKeptSamples) window_.erase(window_.begin());
    window_.push_back(sample);
  }
  std::vector<Duration> predict() const override {
    CHECK(!window_.empty(), "an observation before the prediction");
    const Seen seen = look(window_);
    Hidden hidden{};
    std::vector<Duration> times;
    for (const double out : run(net_->weights, seen.features, hidden)) {
      constexpr double kMostFactor = 7;  // e^7: no wild weight makes a recorded time overflow
      const double factor = std::exp(std::clamp(out, -kMostFactor, kMostFactor));
      times.push_back(Duration(std::llround(seen.unit * factor)));
    }
    std::sort(times.begin(), times.end());
    return times;
  }

 private:
  std::shared_ptr<const PredictorNet> net_;
  std::vector<IterationSample> window_;  // the last kKeptSamples, the newest last
};

}  // namespace

PredictorNet train_predictor(std::span<const Recording> recordings, int64_t batches,
                             uint64_t seed) {
  const std::vector<Example> examples = examples_of(recordings);
  CHECK(!examples.empty(), "a recording that is longer than the window");
  PredictorNet net;
  for (size_t i = 0; i < kPredictorWeights; ++i) {
    net.weights.push_back(static_cast<float>(0.2 * normal(mix(seed, i))));
  }
  std::vector<double> gradient(kPredictorWeights);
  std::vector<float> mean(kPredictorWeights), first(kPredictorWeights), second(kPredictorWeights);
  Random random(seed);
  constexpr double kRate = 0.005;
  constexpr int kBatch = 16;
  AdamSettings settings;
  settings.beta2 = 0.999;
  for (int64_t batch = 0; batch < batches; ++batch) {
    std::fill(gradient.begin(), gradient.end(), 0.0);
    for (int i = 0; i < kBatch; ++i) {
      const Example& of = examples[static_cast<size_t>(random.below(std::ssize(examples)))];
      add_gradient(net.weights, of.features, of.truth, gradient);
    }
    for (size_t i = 0; i < kPredictorWeights; ++i) {
      mean[i] = static_cast<float>(gradient[i] / kBatch);
    }
    // The rate falls to zero.
    settings.rate = kRate * (1 - static_cast<double>(batch) / static_cast<double>(batches));
    take_adam_step(net.weights, first, second, mean, settings,
                   adam_factors(settings, {{1}, {1}, {batch}}));
  }
  return net;
}

PredictorMaker learned_predictor(PredictorNet net) {
  CHECK(net.weights.size() == kPredictorWeights, "all weights of the network");
  auto shared = std::make_shared<const PredictorNet>(std::move(net));
  return {"learned", [shared] { return std::make_unique<LearnedPredictor>(shared); }};
}

}  // namespace tenuto
