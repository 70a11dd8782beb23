#include "sync/predict.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>

#include "base/check.h"
#include "sync/choose.h"

namespace tenuto {

namespace {

class ConstantPredictor : public Predictor {
 public:
  void observe(const IterationSample& sample) override {
    if (!first_) first_ = whole_time(sample);
  }
  std::vector<Duration> predict() const override {
    CHECK(first_, "an observation before the prediction");
    return {*first_};
  }

 private:
  std::optional<Duration> first_;
};

class LastPredictor : public Predictor {
 public:
  void observe(const IterationSample& sample) override { last_ = whole_time(sample); }
  std::vector<Duration> predict() const override {
    CHECK(last_, "an observation before the prediction");
    return {*last_};
  }

 private:
  std::optional<Duration> last_;
};

// What the last kKeptSamples times say: all of them, or one figure of them.
class WindowPredictor : public Predictor {
 public:
  enum class Figure : uint8_t { Mean, Median, All };
  explicit WindowPredictor(Figure figure) : figure_(figure) {}

  void observe(const IterationSample& sample) override {
    times_.push_back(whole_time(sample));
    if (times_.size() > kKeptSamples) times_.pop_front();
  }
  std::vector<Duration> predict() const override {
    CHECK(!times_.empty(), "an observation before the prediction");
    std::vector<Duration> sorted(times_.begin(), times_.end());
    std::sort(sorted.begin(), sorted.end());
    if (figure_ == Figure::All) return sorted;
    if (figure_ == Figure::Median) return {quantile_of(sorted, 0.5)};
    Duration sum{};
    for (const Duration time : sorted) sum += time;
    return {sum / static_cast<int64_t>(sorted.size())};
  }

 private:
  Figure figure_;
  std::deque<Duration> times_;
};

}  // namespace

std::vector<PredictorMaker> plain_predictors() {
  using Figure = WindowPredictor::Figure;
  return {
      {"constant", [] { return std::make_unique<ConstantPredictor>(); }},
      {"last", [] { return std::make_unique<LastPredictor>(); }},
      {"mean", [] { return std::make_unique<WindowPredictor>(Figure::Mean); }},
      {"median", [] { return std::make_unique<WindowPredictor>(Figure::Median); }},
      {"window", [] { return std::make_unique<WindowPredictor>(Figure::All); }},
  };
}

Duration quantile_of(std::span<const Duration> ascending, double quantile) {
  CHECK(!ascending.empty(), "a time to take a quantile of");
  const auto count = static_cast<double>(ascending.size());
  const double rank = std::ceil(std::clamp(quantile, 0.0, 1.0) * count);
  return ascending[static_cast<size_t>(std::max(1.0, rank)) - 1];
}

}  // namespace tenuto
