#include "sync/choose.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "sync/formed.h"
#include "sync/heuristic.h"
#include "sync/progress.h"

namespace tenuto {

namespace {

// Offers of a simulated candidate, per replica: before measuring, and in all.
constexpr int64_t kWarmUpRounds = 60, kRounds = 180;
// Up to this many replicas every count is tried; above, as many as this, evenly spread.
constexpr int32_t kMostCounts = 16;
// Iterations of a replica that are drawn; one that makes more begins again with the first. More
// than kRounds are made only by replicas that are faster than the mean.
constexpr int64_t kDrawn = 256;
constexpr double kWideGap = 1.4;  // of groups, besides kGroupGap

SyncMode counted(SyncKind kind, int32_t count) {
  SyncMode mode;
  mode.kind = kind;
  mode.count = count;
  return mode;
}

// Counts from `low` to `high`, at most kMostCounts of them, both ends included.
std::vector<int32_t> counts_between(int32_t low, int32_t high) {
  std::vector<int32_t> counts;
  const int32_t steps = std::min(high - low, kMostCounts - 1);
  for (int32_t i = 0; i <= steps; ++i) {
    counts.push_back(steps == 0 ? low : low + (high - low) * i / steps);
  }
  return counts;
}

// The drawn iterations, by replica: each number is hashed once for all candidates.
std::vector<IterationTime> draw(const IterationTimes& times, int32_t replicas) {
  std::vector<IterationTime> table;
  table.reserve(static_cast<size_t>(replicas * kDrawn));
  for (int32_t replica = 0; replica < replicas; ++replica) {
    for (int64_t i = 0; i < kDrawn; ++i) table.push_back(times(replica, i, Duration{}));
  }
  return table;
}

// Whether the mode is the current one, or the same but for a window that is nearly as long.
bool is_nearly(const SyncMode& mode, const SyncMode& current) {
  SyncMode with_its_window = mode;
  with_its_window.window = current.window;
  if (with_its_window != current) return false;
  const auto window = static_cast<double>(current.window.count());
  const auto apart = std::abs(static_cast<double>(mode.window.count()) - window);
  return apart == 0 || apart < kSameWindow * window;
}

Status check_input(const ChooseInput& input) {
  if (input.samples.empty()) return invalid("a choice of the sync mode needs replicas, found none");
  if (!(input.kappa >= 0)) {
    return invalid(cat("expected a kappa of at least 0, found ", input.kappa));
  }
  for (size_t i = 0; i < input.samples.size(); ++i) {
    if (!input.samples[i].empty()) continue;
    return invalid(cat("a choice of the sync mode needs measured iterations of every replica: ",
                       "expected at least one of replica ", i, ", found none"));
  }
  return ok();
}

std::string reason_of(const SyncAlternative& best, const SyncAlternative& current, bool changes) {
  const std::string figures =
      cat(fixed(best.measure.gradients_per_second, 1), " gradients per second of mean age ",
          fixed(best.measure.mean_age, 1));
  if (best.mode == current.mode) {
    return cat(to_text(best.mode), " stays: no other mode scores better (", figures, ")");
  }
  const double gain = current.score > 0 ? best.score / current.score : 0;
  constexpr double kShownGain = 1.005;  // less is printed as 1.00
  if (!changes && gain < kShownGain) {
    return cat(to_text(current.mode), " stays: no other mode is better");
  }
  const std::string better = current.score > 0 ? cat(fixed(gain, 2), " times the progress of ")
                                               : std::string("more progress than ");
  if (changes) {
    return cat(to_text(best.mode), ": ", figures, ", ", better, to_text(current.mode));
  }
  return cat(to_text(current.mode), " stays: ", to_text(best.mode), " promises only ", better,
             "it, and a change needs ", kHysteresis);
}

}  // namespace

void TimeSamples::add(const IterationTime& time, double share) {
  if (samples_.size() == kKeptSamples) samples_.erase(samples_.begin());
  const auto compute = static_cast<double>(time.compute.count());
  samples_.push_back({Duration(std::llround(compute / share)), time.transfer});
}

IterationTime guess_from(Duration lasted, Duration compute) {
  constexpr double kLonger = 1.5;
  const Duration guess(static_cast<int64_t>(kLonger * static_cast<double>(lasted.count())));
  return {compute, std::max(guess - compute, Duration{1})};
}

IterationTime TimeSamples::mean() const {
  IterationTime sum;
  for (const IterationTime& one : samples_) {
    sum.compute += one.compute;
    sum.transfer += one.transfer;
  }
  const auto count = std::max<int64_t>(1, std::ssize(samples_));
  return {sum.compute / count, sum.transfer / count};
}

SyncMode first_mode(std::span<const IterationTime> times, double kappa) {
  const auto replicas = static_cast<int32_t>(times.size());
  if (replicas < 2 || kappa >= kDearAge) return {};
  return form(counted(SyncKind::Grace, (replicas + 1) / 2), times, 1).value();
}

std::vector<SyncMode> sync_candidates(std::span<const IterationTime> times, int64_t micros,
                                      std::span<const RelayLimit> relays) {
  const auto replicas = static_cast<int32_t>(times.size());
  std::vector<SyncMode> modes = {SyncMode{}};
  if (replicas < 2) return modes;
  modes.push_back(counted(SyncKind::Asynchronous, 0));
  const auto add = [&](const SyncMode& mode) {
    modes.push_back(form(mode, times, micros).value());
  };
  if (replicas > 2) {
    for (const int32_t count : counts_between(2, replicas - 1)) {
      add(counted(SyncKind::Count, count));
    }
  }
  for (const int32_t count : counts_between((replicas + 1) / 2, replicas - 1)) {
    add(counted(SyncKind::Grace, count));
  }
  for (const double gap : {kGroupGap, kWideGap}) {
    SyncMode groups = counted(SyncKind::Groups, 0);
    groups.groups = groups_by_time(times, gap);
    const int32_t last = *std::max_element(groups.groups.begin(), groups.groups.end());
    if (last > 0 && last + 1 < replicas && groups != modes.back()) modes.push_back(groups);
  }
  const auto slow = static_cast<int32_t>(stragglers(times).size());
  for (int32_t left_out = 1; left_out <= std::min(slow, replicas / 2); ++left_out) {
    if (left_out > kMostCounts) break;
    auto ring = form(counted(SyncKind::Ring, replicas - left_out), times, micros, relays);
    if (ring.ok()) modes.push_back(std::move(ring).value());
  }
  for (const int32_t backups : {1, 2}) {
    if (replicas - backups >= 1) add(counted(SyncKind::Backup, replicas - backups));
  }
  if (micros > 1) add(counted(SyncKind::Rebalanced, 0));
  return modes;
}

std::vector<IterationTime> means_of(const std::vector<std::vector<IterationTime>>& samples) {
  std::vector<IterationTime> means;
  for (const auto& of : samples) {
    TimeSamples own;
    for (const IterationTime& time : of) own.add(time);
    means.push_back(own.mean());
  }
  return means;
}

Result<std::vector<SyncMode>> modes_to_compare(const ChooseInput& input) {
  if (const Status fault = check_input(input); !fault.ok()) return fault.error();
  std::vector<SyncMode> modes =
      sync_candidates(means_of(input.samples), input.micros, input.relays);
  if (!input.grace) {
    std::erase_if(modes, [](const SyncMode& of) { return of.kind == SyncKind::Grace; });
  }
  // There is at most one, since the candidates differ from each other by more than their window.
  const auto nearly = std::find_if(
      modes.begin(), modes.end(), [&](const SyncMode& of) { return is_nearly(of, input.current); });
  if (nearly == modes.end()) {
    modes.push_back(input.current);
  } else {
    *nearly = input.current;
  }
  return modes;
}

double progress_of(const SyncMeasure& measure, int32_t replicas, double kappa) {
  return measure.gradients_per_second * value_of_gradient(measure.mean_age, replicas, kappa);
}

SyncChoice choose_best(std::vector<SyncAlternative> alternatives, const SyncMode& current,
                       std::span<const RelayLimit> relays) {
  SyncChoice choice;
  choice.alternatives = std::move(alternatives);
  for (SyncAlternative& one : choice.alternatives) {
    if (!relay_fault(one.mode, relays).empty()) one.score = 0;
  }
  std::stable_sort(choice.alternatives.begin(), choice.alternatives.end(),
                   [](const auto& left, const auto& right) { return left.score > right.score; });
  const SyncAlternative& best = choice.alternatives.front();
  const auto held = std::find_if(choice.alternatives.begin(), choice.alternatives.end(),
                                 [&](const SyncAlternative& one) { return one.mode == current; });
  CHECK(held != choice.alternatives.end(), "the current mode among the alternatives");
  const bool changes = best.score > kHysteresis * held->score;
  choice.mode = changes ? best.mode : current;
  choice.reason = reason_of(best, *held, changes);
  const std::string fault = relay_fault(current, relays);
  if (!fault.empty()) choice.reason += cat(" (", fault, ")");
  return choice;
}

Result<SyncChoice> choose_by_look_ahead(const ChooseInput& input) {
  const auto modes = modes_to_compare(input);
  if (!modes.ok()) return modes.error();
  const auto replicas = static_cast<int32_t>(input.samples.size());
  const std::vector<IterationTime> table = draw(times_of(input.samples, input.seed), replicas);
  const IterationTimes times = [&table](int32_t replica, int64_t iteration, Duration) {
    return table[static_cast<size_t>(replica * kDrawn + iteration % kDrawn)];
  };
  std::vector<SyncAlternative> alternatives;
  for (const SyncMode& mode : modes.value()) {
    auto measure = simulate_sync({{mode, replicas, input.micros, {}, {}}, times, input.apply},
                                 {kWarmUpRounds * replicas, {}, kRounds * replicas, 0, {}});
    if (!measure.ok()) return measure.error();
    const double score = progress_of(measure.value(), replicas, input.kappa);
    alternatives.push_back({mode, std::move(measure).value(), score});
  }
  return choose_best(std::move(alternatives), input.current, input.relays);
}

}  // namespace tenuto
