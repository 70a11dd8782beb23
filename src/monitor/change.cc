#include "monitor/change.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <span>

namespace tenuto {

namespace {

constexpr size_t kRuns = 24;   // the most runs that are kept, beside the newest
constexpr size_t kNewest = 3;  // runs kept whatever their probability, so that a change can show
constexpr double kImprobable = 1e-6;
constexpr double kFirstWeight = 1e-4;  // a new run's prior mean counts as a 10,000th of a reading
constexpr double kFirstShape = 3;      // a new run's spread counts as known from six readings
constexpr double kMemory = 100;        // readings that count in a run's mean and spread
constexpr int32_t kLasting = 3;        // the fewest readings that make a change
constexpr int32_t kSeconded = 2;       // the same, of seconded ones
constexpr int32_t kLate = 8;           // a run not reported after so many readings is no change
constexpr double kClear = 5;           // a mean that is off by so many spreads is not chance
constexpr size_t kPatience = 6;        // so many kept back in a row: the series has become noisier

// gamma(3.5) / gamma(3), for kFirstShape.
constexpr double kFirstGammaRatio = 15.0 / 16.0 * 1.7724538509055160273;

}  // namespace

double ChangeSeries::log_of(double value) const {
  return std::log(std::max(value, 0.0) + options_.soften);
}

Level ChangeSeries::level_of(const Run& run) const {
  const double value = std::max(std::exp(run.mean) - options_.soften, 0.0);
  return {run.since, run.readings, value, run.beside};
}

double ChangeSeries::spread_of(const Run& run) const {
  return std::max(std::sqrt(run.scale / run.shape), options_.resolution);
}

// The run's prediction for its next reading: Student-t with 2 x shape degrees of freedom.
double ChangeSeries::density(const Run& run, double x) const {
  const double freedom = 2 * run.shape;
  const double width = spread_of(run) * std::sqrt(1 + 1 / run.weight);
  const double z = (x - run.mean) / width;
  return run.gamma_ratio / (std::sqrt(std::numbers::pi * freedom) * width) *
         std::pow(1 + z * z / freedom, -(freedom + 1) / 2);
}

ChangeSeries::Run ChangeSeries::fresh(int64_t at, double center) const {
  Run run;
  run.born = readings_;
  run.mean = center;
  run.weight = kFirstWeight;
  run.shape = kFirstShape;
  run.scale = kFirstShape * options_.spread * options_.spread;
  run.gamma_ratio = kFirstGammaRatio;
  run.since = at;
  return run;
}

void ChangeSeries::join(Run& run, const Reading& reading, double x) const {
  const double gap = x - run.mean;
  run.scale += run.weight * gap * gap / (2 * (run.weight + 1));
  // The first reading is the mean, so that the level does not depend on the run before.
  run.mean = run.readings == 0 ? x : run.mean + gap / (run.weight + 1);
  run.weight = std::min(run.weight + 1, kMemory);
  if (run.shape < kMemory / 2) {
    run.gamma_ratio = run.shape / run.gamma_ratio;  // gamma(s + 1) = s gamma(s)
    run.shape += 0.5;
  } else {
    run.scale *= run.shape / (run.shape + 0.5);  // old readings lose weight
  }
  ++run.readings;
  run.seconded += reading.seconded ? 1 : 0;
  const double share = 1 / std::min<double>(run.readings, kMemory);
  for (size_t i = 0; i < run.beside.size(); ++i) {
    run.beside[i] += (reading.beside[i] - run.beside[i]) * share;
  }
}

const ChangeSeries::Run& ChangeSeries::likeliest() const {
  return *std::max_element(runs_.begin(), runs_.end(), [](const Run& left, const Run& right) {
    return left.mass < right.mass;
  });
}

void ChangeSeries::drop_improbable() {
  double total = 0;
  for (const Run& run : runs_) total += run.mass;
  for (Run& run : runs_) run.mass /= total;
  std::vector<double> masses;
  for (const Run& run : runs_) masses.push_back(run.mass);
  double least = kImprobable;
  if (masses.size() > kRuns) {
    std::nth_element(masses.begin(), masses.begin() + kRuns - 1, masses.end(), std::greater<>());
    least = std::max(least, masses[kRuns - 1]);
  }
  const int64_t newest = runs_.back().born - static_cast<int64_t>(kNewest);
  std::erase_if(runs_, [&](const Run& run) { return run.mass < least && run.born <= newest; });
}

void ChangeSeries::update(const Reading& reading) {
  const double x = log_of(reading.value);
  Run next = fresh(reading.at, x);
  next.mass = 1;
  if (!runs_.empty()) {
    const Run& present = likeliest();
    // A run of one or two readings is no level: take over the level that was before it.
    const bool stands = present.readings >= kLasting;
    next.before = stands ? level_of(present) : present.before;
    next.before_spread = stands ? spread_of(present) : present.before_spread;
    next.mean = present.mean;
    next.mass = options_.hazard * density(next, x);
    for (Run& run : runs_) {
      run.mass *= density(run, x) * (1 - options_.hazard);
      join(run, reading, x);
    }
  }
  join(next, reading, x);
  runs_.push_back(next);
  ++readings_;
  drop_improbable();
}

// How many of the last readings that were kept back make a run: three, or two seconded ones, that
// are closer to each other than to the present run, or as close to each other as its own readings
// are. 0 = none do.
size_t ChangeSeries::agreeing() const {
  const Run& present = likeliest();
  for (const size_t count : {size_t{kSeconded}, size_t{kLasting}}) {
    if (kept_.size() < count) break;
    const std::span<const Reading> last = std::span(kept_).last(count);
    const bool seconded = std::all_of(last.begin(), last.end(),
                                      [](const Reading& reading) { return reading.seconded; });
    if (count < kLasting && !seconded) continue;
    std::vector<double> gaps;
    for (const Reading& each : last) gaps.push_back(log_of(each.value) - present.mean);
    const auto [low, high] = std::minmax_element(gaps.begin(), gaps.end());
    if (*low < 0 && *high > 0) continue;
    const double mean =
        std::abs(std::accumulate(gaps.begin(), gaps.end(), 0.0)) / static_cast<double>(count);
    if (*high - *low <= std::max(mean / 2, 6 * spread_of(present))) return count;
  }
  return 0;
}

std::optional<Change> ChangeSeries::add(const Reading& reading, double floor) {
  bool far = false;
  if (!runs_.empty() && likeliest().readings >= kLasting) {
    const Run& present = likeliest();
    far = std::abs(log_of(reading.value) - present.mean) > options_.surprise * spread_of(present);
  }
  if (!far) {
    kept_.clear();  // spikes
    update(reading);
    return judge(reading.at, floor);
  }
  kept_.push_back(reading);
  const size_t agree = agreeing();
  if (agree == 0 && kept_.size() < kPatience) return std::nullopt;
  const size_t first = agree > 0 ? kept_.size() - agree : 0;
  const std::vector<Reading> taken(kept_.begin() + static_cast<std::ptrdiff_t>(first), kept_.end());
  kept_.clear();
  for (const Reading& each : taken) update(each);
  return judge(reading.at, floor);
}

std::optional<Change> ChangeSeries::judge(int64_t at, double floor) {
  const Run& present = likeliest();
  const int32_t lasting = present.seconded >= kSeconded ? kSeconded : kLasting;
  if (present.born <= judged_ || present.readings < lasting) return std::nullopt;
  double sure = 0;
  for (const Run& run : runs_) sure += run.born > judged_ ? run.mass : 0;
  const bool late = present.readings > kLate;
  if (sure < options_.certain && !late) return std::nullopt;
  const Level before = present.before, after = level_of(present);
  const double gap = std::abs(after.value - before.value);
  // In a noisy series the means of a few readings differ by chance.
  const double chance = kClear * present.before_spread *
                        std::sqrt(1.0 / present.readings + 1.0 / std::max(before.readings, 1));
  const bool differs = gap > floor && gap >= options_.ratio * std::min(before.value, after.value) &&
                       std::abs(log_of(after.value) - log_of(before.value)) >= chance;
  const bool known = before.readings >= kLasting;
  if (sure < options_.certain || !known || !differs) {
    if (late || !known) judged_ = present.born;
    return std::nullopt;
  }
  judged_ = present.born;
  return Change{before, after, at, std::min(sure, 0.9999)};
}

Level ChangeSeries::level() const { return runs_.empty() ? Level{} : level_of(likeliest()); }

double ChangeSeries::spread() const {
  return runs_.empty() ? options_.spread : spread_of(likeliest());
}

}  // namespace tenuto
