#include "sync/verdict.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "sync/heuristic.h"

namespace tenuto {

namespace {

// What the rule compares, of a whole share.
TimeParts parts_of(const IterationSample& sample) {
  const IterationTime time = time_of(sample);
  const auto whole = [&](Duration of) { return static_cast<double>(of.count()) / sample.share; };
  TimeParts parts;
  parts.compute = static_cast<double>(time.compute.count());
  parts.transfer = static_cast<double>(time.transfer.count());
  parts.cpu = whole(sample.cpu);
  if (sample.run_delay.count() > 0) parts.run_delay = whole(sample.run_delay);
  parts.pressure = sample.pressure;
  return parts;
}

std::string sentence_of(const StragglerVerdict& verdict, const IterationSample& own,
                        const IterationSample& fastest) {
  const std::string start = cat("replica ", verdict.replica, " takes ", fixed(verdict.slowdown, 2),
                                " times as long as the fastest one: ");
  const auto both = [](Duration of, Duration best) {
    return cat(fixed(to_milliseconds(of), 1), " ms instead of ", fixed(to_milliseconds(best), 1),
               " ms");
  };
  const IterationTime time = time_of(own), best = time_of(fastest);
  if (verdict.cause == StragglerCause::Link) {
    return cat(start, "its link is slow, transfers take ", both(time.transfer, best.transfer));
  }
  const std::string computes = cat("it computes for ", both(time.compute, best.compute));
  if (verdict.cause == StragglerCause::Device) return cat(start, "its device is slow, ", computes);
  return cat(start, "others use its host's CPU, ", computes, " and waited ",
             fixed(to_milliseconds(own.run_delay), 1), " ms for a CPU (pressure ",
             fixed(100 * own.pressure, 0), " %)");
}

}  // namespace

std::vector<StragglerVerdict> find_stragglers(std::span<const IterationSample> samples) {
  std::vector<IterationTime> times;
  for (const IterationSample& sample : samples) times.push_back(time_of(sample));
  std::vector<StragglerVerdict> verdicts;
  if (samples.empty()) return verdicts;
  const auto fastest = *std::min_element(
      samples.begin(), samples.end(),
      [](const auto& left, const auto& right) { return whole_time(left) < whole_time(right); });
  for (const ReplicaId replica : stragglers(times)) {
    const IterationSample& own = samples[static_cast<size_t>(replica.value)];
    StragglerVerdict verdict;
    verdict.replica = replica;
    const Duration best = std::max(whole_time(fastest), Duration{1});
    verdict.slowdown =
        static_cast<double>(whole_time(own).count()) / static_cast<double>(best.count());
    // Pressure is always known here, so there is a cause.
    verdict.cause = cause_of(parts_of(own), parts_of(fastest)).value_or(StragglerCause::Device);
    verdict.sentence = sentence_of(verdict, own, fastest);
    verdicts.push_back(std::move(verdict));
  }
  return verdicts;
}

StraggleCounts count_stragglers(const Recording& recording) {
  StraggleCounts counts;
  counts.replicas.resize(recording.replicas.size());
  counts.iterations = std::ssize(recording.replicas.front());
  for (size_t i = 0; i < recording.replicas.front().size(); ++i) {
    std::vector<IterationSample> samples;
    for (const auto& of : recording.replicas) samples.push_back(of[i]);
    const std::vector<StragglerVerdict> verdicts = find_stragglers(samples);
    counts.with_straggler += verdicts.empty() ? 0 : 1;
    for (const StragglerVerdict& verdict : verdicts) {
      StraggleCount& count = counts.replicas[static_cast<size_t>(verdict.replica.value)];
      ++count.by_cause[static_cast<size_t>(verdict.cause)];
      count.worst = std::max(count.worst, verdict.slowdown);
    }
  }
  return counts;
}

std::string straggle_report(const Recording& recording) {
  const StraggleCounts counts = count_stragglers(recording);
  const auto percent = [&](int64_t part) {
    return cat(fixed(100 * static_cast<double>(part) / static_cast<double>(counts.iterations), 1),
               " %");
  };
  std::string text = "replica  iterations  straggles    link     cpu  device   worst\n";
  for (size_t i = 0; const StraggleCount& count : counts.replicas) {
    int64_t all = 0;
    for (const int64_t of : count.by_cause) all += of;
    char line[160];
    std::snprintf(line, sizeof(line), "%7zu %11lld %10s %7s %7s %7s %7s\n", i++,
                  static_cast<long long>(counts.iterations), percent(all).c_str(),
                  percent(count.by_cause[0]).c_str(), percent(count.by_cause[1]).c_str(),
                  percent(count.by_cause[2]).c_str(), cat(fixed(count.worst, 2), "x").c_str());
    text += line;
  }
  return text + cat("somebody straggles in ", percent(counts.with_straggler), " of ",
                    counts.iterations, " iterations\n");
}

}  // namespace tenuto
