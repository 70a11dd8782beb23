#include "sync/heuristic.h"

#include <algorithm>

#include "base/text.h"
#include "sync/progress.h"

namespace tenuto {

namespace {

double milliseconds(const IterationTime& time) {
  return to_milliseconds(time.compute + time.transfer);
}

std::vector<double> sorted(std::span<const IterationTime> times) {
  std::vector<double> all;
  for (const IterationTime& time : times) all.push_back(milliseconds(time));
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

std::vector<ReplicaId> stragglers(std::span<const IterationTime> times) {
  std::vector<ReplicaId> found;
  if (times.empty()) return found;
  const double fastest = sorted(times).front();
  for (size_t i = 0; i < times.size(); ++i) {
    if (milliseconds(times[i]) > kStraggler * fastest) found.push_back({static_cast<int32_t>(i)});
  }
  return found;
}

double published_interval(std::span<const IterationTime> times, int32_t count) {
  const std::vector<double> all = sorted(times);
  double rate = 0;
  for (const double time : all) rate += 1 / time;
  const double one = 1 / rate, spread = all.back() - all.front();
  const double place = all[static_cast<size_t>(count) - 1] - all.front();
  return spread <= 0 ? (count == 1 ? one : all.back()) : one + (all.back() - one) * place / spread;
}

std::optional<SyncMeasure> published_promise(const SyncMode& mode,
                                             std::span<const IterationTime> times) {
  const auto replicas = static_cast<int32_t>(times.size());
  int32_t count = mode.count;
  if (mode.kind == SyncKind::Synchronous) count = replicas;
  if (mode.kind == SyncKind::Asynchronous) count = 1;
  const bool known = mode.kind == SyncKind::Count || mode.kind == SyncKind::Synchronous ||
                     mode.kind == SyncKind::Asynchronous;
  if (!known || mode.bound || mode.local_steps > 1) return {};
  const double interval = published_interval(times, count) / 1000;
  if (!(interval > 0)) return {};
  SyncMeasure promise;
  promise.updates_per_second = 1 / interval;
  promise.gradients_per_second = count / interval;
  promise.mean_age = age_of_count(replicas, count);
  return promise;
}

double relative_updates(double noise, double batch, int32_t count) {
  return 1 + noise / (count * batch);
}

Result<SyncMode> choose_by_heuristic(const HeuristicInput& input) {
  if (input.times.empty() || !(input.batch > 0) || !(input.noise >= 0)) {
    return invalid(
        cat("the heuristic needs replicas' times, a batch above 0 and a noise of at "
            "least 0, found ",
            input.times.size(), " times, batch ", input.batch, " and noise ", input.noise));
  }
  if (stragglers(input.times).empty()) return SyncMode{};
  const auto replicas = static_cast<int32_t>(input.times.size());
  const auto cost = [&](int32_t count) {
    return published_interval(input.times, count) *
           relative_updates(input.noise, input.batch, count);
  };
  int32_t best = 1;
  while (best < replicas && cost(best) >= cost(best + 1)) ++best;
  SyncMode mode;
  if (best == replicas) return mode;
  mode.kind = SyncKind::Count;
  mode.count = best;
  return mode;
}

}  // namespace tenuto
