#include "sync/estimate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "sync/heuristic.h"
#include "sync/progress.h"

namespace tenuto {

namespace {

constexpr double kLeastSeconds = 1e-9;  // of an iteration, so that every rate is finite

double seconds(Duration time) { return to_milliseconds(time) / 1000; }

// The replicas of each group; asynchronous replicas are groups of one.
std::vector<std::vector<size_t>> groups_of(const SyncMode& mode, size_t replicas) {
  std::vector<std::vector<size_t>> groups(replicas);
  for (size_t i = 0; i < replicas; ++i) {
    const bool alone = mode.kind != SyncKind::Groups;
    groups[alone ? i : static_cast<size_t>(mode.groups[i])].push_back(i);
  }
  std::erase_if(groups, [](const auto& group) { return group.empty(); });
  return groups;
}

}  // namespace

RecentRounds::RecentRounds(const ChooseInput& input)
    : apply_(seconds(input.apply)), micros_(static_cast<double>(input.micros)) {
  size_t rounds = 0;
  for (const auto& own : input.samples) {
    CHECK(!own.empty(), "a sample of each replica");
    rounds = std::max(rounds, std::min(own.size(), kKeptSamples));
  }
  // The newest iterations are in the first round; who has fewer than others, repeats them.
  for (size_t i = 0; i < rounds; ++i) {
    Round round;
    for (const auto& own : input.samples) {
      const size_t kept = std::min(own.size(), kKeptSamples);
      const IterationTime& time = own[own.size() - 1 - i % kept];
      round.push_back({std::max(seconds(time.compute), kLeastSeconds), seconds(time.transfer)});
    }
    rounds_.push_back(std::move(round));
  }
  for (const IterationTime& mean : means_of(input.samples)) {
    means_.push_back(std::max(seconds(mean.compute + mean.transfer), kLeastSeconds));
  }
}

double RecentRounds::slowest() const {
  double sum = 0;
  for (const Round& round : rounds_) {
    double most = 0;
    for (const Seconds& one : round) most = std::max(most, one.compute + one.transfer);
    sum += most;
  }
  return sum / static_cast<double>(rounds_.size());
}

double RecentRounds::late_share() const {
  const double limit = kStraggler * *std::min_element(means_.begin(), means_.end());
  double late = 0;
  for (const Round& round : rounds_) {
    for (const Seconds& one : round) late += one.compute + one.transfer > limit ? 1 : 0;
  }
  return late / static_cast<double>(rounds_.size() * means_.size());
}

// An iteration that takes several rounds adds its gradient once in so many; `applied`: of how many
// such gradients one is applied.
void RecentRounds::add_late(Outcome& to, double time, double applied) const {
  const double rounds = std::max(1.0, std::ceil(time / (to.length + apply_)));
  to.gradients += applied / rounds;
  to.delay += applied / rounds * (rounds - 1);
}

RecentRounds::Outcome RecentRounds::outcome(const SyncMode& mode, const Round& round) const {
  std::vector<double> times, sorted;
  for (const Seconds& one : round) times.push_back(one.compute + one.transfer);
  sorted = times;
  std::sort(sorted.begin(), sorted.end());
  const auto all = static_cast<double>(times.size());
  const size_t last = mode.count > 0 ? static_cast<size_t>(mode.count) - 1 : times.size() - 1;
  Outcome made;
  switch (mode.kind) {
    case SyncKind::Rebalanced:
      for (size_t i = 0; i < round.size(); ++i) {
        const double share = static_cast<double>(mode.shares[i]) / micros_;
        made.length = std::max(made.length, round[i].compute * share + round[i].transfer);
      }
      made.gradients = all;
      break;
    case SyncKind::Grace:
      made.length = std::min(sorted.back(), sorted[last] + seconds(mode.window));
      for (const double time : times) {
        if (time <= made.length) {
          made.gradients += 1;
        } else {
          add_late(made, time, 1);
        }
      }
      break;
    case SyncKind::Ring:
      for (size_t i = 0; i < times.size(); ++i) {
        if (static_cast<size_t>(mode.parents[i].value) != i) continue;
        made.length = std::max(made.length, times[i]);
        made.gradients += 1;
      }
      for (size_t i = 0; i < times.size(); ++i) {
        if (static_cast<size_t>(mode.parents[i].value) != i) add_late(made, times[i], 1);
      }
      break;
    case SyncKind::Backup:
      made.length = sorted[last];
      made.gradients = static_cast<double>(mode.count);
      // Of late gradients every second one is dropped.
      for (size_t i = last + 1; i < sorted.size(); ++i) add_late(made, sorted[i], 0.5);
      break;
    default:
      made = {sorted.back(), all, 0};
      break;
  }
  return made;
}

// A gradient of the round has half of the rest of its update as its age; each round that it is late
// adds one whole update.
SyncEstimate RecentRounds::by_rounds(const SyncMode& mode) const {
  Outcome sum;
  for (const Round& round : rounds_) {
    const Outcome one = outcome(mode, round);
    sum.length += one.length + apply_;
    sum.gradients += one.gradients;
    sum.delay += one.delay;
  }
  const auto rounds = static_cast<double>(rounds_.size());
  return {sum.gradients / sum.length, rounds / sum.length,
          std::max(0.0, sum.gradients / rounds - 1) / 2 + sum.delay / rounds, 0};
}

// While a group computes, the others apply what they make in this time: so gradients that are under
// way, W in all, are the age of those that are applied, apart from their own update.
SyncEstimate RecentRounds::by_groups(const std::vector<std::vector<size_t>>& groups) const {
  SyncEstimate all;
  double own = 0;
  for (const std::vector<size_t>& group : groups) {
    double length = 0;
    for (const Round& round : rounds_) {
      double most = 0;
      for (const size_t i : group) most = std::max(most, round[i].compute + round[i].transfer);
      length += most / static_cast<double>(rounds_.size());
    }
    const auto members = static_cast<double>(group.size());
    const double rate = members / (length + apply_);
    all.gradients += rate;
    all.updates += rate / members;
    own += rate * (members + 1) / 2;
  }
  all.age = static_cast<double>(means_.size()) - own / all.gradients;
  return all;
}

// The `count` fastest of a round wait for each other, the others come when they come.
SyncEstimate RecentRounds::by_count(int32_t count) const {
  std::vector<double> ranked(means_.size());  // mean time of the fastest, the next one, ...
  for (const Round& round : rounds_) {
    std::vector<double> times;
    for (const Seconds& one : round) times.push_back(one.compute + one.transfer);
    std::sort(times.begin(), times.end());
    for (size_t i = 0; i < times.size(); ++i) {
      ranked[i] += times[i] / static_cast<double>(rounds_.size());
    }
  }
  const auto together = static_cast<size_t>(count);
  SyncEstimate all;
  all.gradients = count / (ranked[together - 1] + apply_);
  for (size_t i = together; i < ranked.size(); ++i) all.gradients += 1 / (ranked[i] + apply_);
  all.updates = all.gradients / count;
  all.age = age_of_count(static_cast<int32_t>(means_.size()), count);
  return all;
}

SyncEstimate RecentRounds::estimate(const SyncMode& mode) const {
  const bool by_group = mode.kind == SyncKind::Groups || mode.kind == SyncKind::Asynchronous;
  SyncEstimate all = by_group                       ? by_groups(groups_of(mode, means_.size()))
                     : mode.kind == SyncKind::Count ? by_count(mode.count)
                                                    : by_rounds(mode);
  const auto scale = [&all](double factor) {
    all.gradients *= factor;
    all.updates *= factor;
  };
  if (mode.bound) {
    // In the end everybody goes at the pace of the slowest.
    const double slowest = *std::max_element(means_.begin(), means_.end()) + apply_;
    const double most = static_cast<double>(means_.size()) / slowest;
    if (all.gradients > most) scale(most / all.gradients);
  }
  all.demand = all.updates * apply_;
  if (all.demand > 1) scale(1 / all.demand);
  return all;
}

}  // namespace tenuto
