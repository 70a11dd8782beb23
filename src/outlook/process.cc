#include "outlook/process.h"

#include <algorithm>
#include <cmath>

#include "base/longest_time.h"

namespace tenuto::outlook {

namespace {

constexpr double kNanosecondsOfHour = 3.6e12;
constexpr double kTwoPi = 6.283185307179586;

// In (0, 1], so that it has a logarithm.
double above_zero(Random& random) { return 1 - random.uniform(); }

double draw_normal(Random& random) {
  const double radius = std::sqrt(-2 * std::log(above_zero(random)));
  return radius * std::cos(kTwoPi * random.uniform());
}

double draw_factor(Random& random, const TroubleProcess& process) {
  const double factor = 1 + draw_lognormal(random, process.excess);
  return std::clamp(std::round(20 * factor) / 20, 1.05, static_cast<double>(kMostFactor));
}

void draw_kind(const ClusterShape& shape, const TroubleProcess& process, TroubleKind kind,
               Random random, std::vector<Trouble>& to, Duration length) {
  const int32_t places = kind == TroubleKind::SlowLink ? shape.stages - 1 : shape.stages;
  const int64_t count = int64_t{places} * shape.pipelines;
  if (process.hours_between <= 0 || count == 0) return;
  const double between = process.hours_between / static_cast<double>(count);
  const double end = static_cast<double>(length.count()) / kNanosecondsOfHour;
  for (double hours = draw_exponential(random, between); hours < end;
       hours += draw_exponential(random, between)) {
    Trouble trouble;
    trouble.begin = from_nanoseconds(hours * kNanosecondsOfHour);
    trouble.kind = kind;
    const int64_t place = random.below(count);
    trouble.pipeline = static_cast<int32_t>(place / places);
    trouble.stage = static_cast<int32_t>(place % places);
    const double lasts = draw_lognormal(random, process.hours);
    trouble.end = process.hours.mean <= 0
                      ? kLongestTime
                      : plus(trouble.begin, from_nanoseconds(lasts * kNanosecondsOfHour));
    if (kind != TroubleKind::DeadWorker) trouble.factor = draw_factor(random, process);
    to.push_back(trouble);
  }
}

}  // namespace

double draw_exponential(Random& random, double mean) {
  return -mean * std::log(above_zero(random));
}

double draw_lognormal(Random& random, const Lognormal& distribution) {
  if (distribution.mean <= 0) return 0;
  const double sigma = distribution.sigma;
  // The mean of a lognormal number is exp(mu + sigma^2 / 2).
  return distribution.mean * std::exp(sigma * draw_normal(random) - sigma * sigma / 2);
}

std::vector<Trouble> draw_troubles(const ClusterShape& shape, const Processes& processes,
                                   Duration length, uint64_t seed) {
  std::vector<Trouble> troubles;
  draw_kind(shape, processes.deaths, TroubleKind::DeadWorker, Random(mix(seed, 1)), troubles,
            length);
  draw_kind(shape, processes.slow_workers, TroubleKind::SlowWorker, Random(mix(seed, 2)), troubles,
            length);
  draw_kind(shape, processes.slow_links, TroubleKind::SlowLink, Random(mix(seed, 3)), troubles,
            length);
  std::stable_sort(troubles.begin(), troubles.end(),
                   [](const Trouble& a, const Trouble& b) { return a.begin < b.begin; });
  return troubles;
}

}  // namespace tenuto::outlook
