#include "sync/decision_record.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/quantile.h"
#include "base/random.h"
#include "base/text.h"
#include "sync/chooser.h"

namespace tenuto {

namespace {

// A run after a decision lasts so many median iterations and, so that also the slowest replica has
// some, so many of its own: before measuring, and in all.
constexpr int64_t kWarmUp = 10, kLength = 50, kSlowWarmUp = 1, kSlowLength = 5;
// Iterations of a replica that is not slow before a decision.
constexpr int64_t kEarliest = 20, kLatest = 320;
constexpr int64_t kMicros = 16;         // of a replica's iteration, so that shares can be uneven
constexpr double kManyNoise = 1e9;      // micro-batches
constexpr double kSlowAtRandom = 1e-3;  // the least chance that is drawn

// Between the limits, each factor as likely as any other one.
double log_uniform(Random& random, double least, double most) {
  return least * std::pow(most / least, random.uniform());
}

// The times of a run that begins at `moment`, when each replica has done so many iterations.
IterationTimes from_then_on(const IterationTimes& times, std::vector<int64_t> done,
                            Duration moment) {
  return [times, done = std::move(done), moment](int32_t replica, int64_t iteration, Duration now) {
    return times(replica, done[static_cast<size_t>(replica)] + iteration, moment + now);
  };
}

}  // namespace

SyncScenario draw_scenario(int32_t replicas, uint64_t seed) {
  CHECK(replicas > 0, "a replica");
  Random random(seed);
  SyncScenario scenario;
  scenario.name = cat("drawn-", seed);
  scenario.replicas = replicas;
  scenario.base.compute = from_milliseconds(log_uniform(random, 40, 160));
  scenario.base.transfer = from_milliseconds(log_uniform(random, 10, 40));
  scenario.compute_jitter = log_uniform(random, 0.01, 0.1);
  scenario.transfer_jitter = log_uniform(random, 0.03, 0.2);
  scenario.apply = from_milliseconds(log_uniform(random, 0.2, 25));
  enum class Who : int64_t { Nobody, Some, All, SomeAndRandom };
  const auto who = static_cast<Who>(random.below(4));
  int64_t slow = 0;
  if (who == Who::Some || who == Who::SomeAndRandom) slow = random.below(replicas / 2 + 1);
  if (who == Who::All) slow = replicas;
  SlowPhase phase;
  for (int64_t i = 0; i < slow; ++i) {
    SlowReplica one;
    one.replica = static_cast<int32_t>(i);
    if (random.below(2) == 0) {
      one.compute = log_uniform(random, 1, 4);
    } else {
      one.transfer = log_uniform(random, 1, 16);
    }
    phase.slow.push_back(one);
  }
  if (who == Who::SomeAndRandom) {
    phase.chance = log_uniform(random, kSlowAtRandom, 0.2);
    phase.transfer = log_uniform(random, 2, 16);
    phase.in_pairs = random.below(2) == 0;
  }
  scenario.phases.push_back(std::move(phase));
  return scenario;
}

DecisionRecord record_decision(const SyncScenario& scenario, uint64_t seed, Duration moment,
                               double kappa) {
  CHECK(scenario.replicas > 1, "at least two replicas");
  const IterationTimes times = times_of(scenario, seed);
  DecisionRecord record;
  std::vector<int64_t> done;
  for (int32_t replica = 0; replica < scenario.replicas; ++replica) {
    TimeSamples samples;
    Duration now{};
    int64_t iteration = 0;
    for (;; ++iteration) {
      const IterationTime one = times(replica, iteration, now);
      now += one.compute + one.transfer;
      if (now > moment && iteration > 0) break;
      samples.add(one);
    }
    record.input.samples.push_back(samples.all());
    done.push_back(iteration);
  }
  const std::vector<IterationTime> means = means_of(record.input.samples);
  record.input.apply = scenario.apply;
  record.input.micros = kMicros;
  record.input.kappa = kappa;
  record.input.current = first_mode(means, kappa);
  record.input.seed = seed;
  record.input.noise = kManyNoise;
  std::vector<SyncMode> modes = modes_to_compare(record.input).value();
  const SyncMode published = choose_as_published(record.input).value().mode;
  if (std::find(modes.begin(), modes.end(), published) == modes.end()) modes.push_back(published);

  std::vector<Duration> all;
  for (const IterationTime& mean : means) all.push_back(mean.compute + mean.transfer);
  const Duration median = quantile(all, 0.5), slowest = *std::max_element(all.begin(), all.end());
  const Duration warm_up = kWarmUp * median + kSlowWarmUp * slowest;
  const Duration length = kLength * median + kSlowLength * slowest;
  const IterationTimes later = from_then_on(times, std::move(done), moment);
  for (const SyncMode& mode : modes) {
    auto measure =
        simulate_sync({{mode, scenario.replicas, kMicros, {}, {}}, later, scenario.apply},
                      {0, warm_up, 0, 0, length});
    CHECK(measure.ok(), "a mode that the rule accepts");
    const double score = progress_of(measure.value(), scenario.replicas, kappa);
    record.achieved.push_back({mode, std::move(measure).value(), score});
  }
  return record;
}

std::vector<DecisionRecord> record_decisions(const SyncScenario& scenario, uint64_t seed,
                                             int64_t decisions, double kappa) {
  std::vector<DecisionRecord> records;
  const Duration iteration = scenario.base.compute + scenario.base.transfer;
  for (int64_t i = 0; i < decisions; ++i) {
    const uint64_t own = mix(seed, static_cast<uint64_t>(i));
    Random random(own);
    const int64_t before = kEarliest + random.below(kLatest - kEarliest);
    records.push_back(record_decision(scenario, own, before * iteration, kappa));
  }
  return records;
}

}  // namespace tenuto
