#include "adapt/sums.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "collective/algorithm.h"
#include "ir/check.h"
#include "plan/lower.h"
#include "sim/procedure_price.h"
#include "sim/reduction_price.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// A message takes its worker some time beside its bytes and its latency, and no price knows how
// much. So no chunk is on its link for less.
constexpr Duration kLeastChunk = std::chrono::microseconds(50);
constexpr int32_t kMostChunksAMember = 8;

// A group's sums in the step as it is priced.
struct GroupSums {
  Bytes size;
  std::vector<Duration> starts;  // by place in the members
  WorkerId last;                 // the member that comes last, and by how much
  Duration lateness{};
};

// One way to sum, and when the last member has the sum then.
struct Way {
  Summing summing;
  Duration finish{};
};

// What might be tried for a group, and what that gains its sums alone.
struct Trial {
  std::vector<StageId> stages;
  Summing summing;
  GroupSums sums;
  Duration gain{};
};

std::vector<GroupSums> sums_of(const Plan& plan, const Model& model, const Timeline& timeline) {
  std::vector<GroupSums> all(plan.schedule.groups.size());
  for (size_t g = 0; g < all.size(); ++g) {
    all[g].starts.resize(plan.schedule.groups[g].members.size());
  }
  for (const Span& span : timeline.spans) {
    if (span.op.kind != OpKind::Reduce) continue;
    const Group& group = plan.schedule.groups[at(span.op.group.value)];
    GroupSums& sums = all[at(span.op.group.value)];
    sums.size = size_of_sum(stage_cost(model, plan.stages[at(span.op.stage.value)]).parameters,
                            model.tied, span.op);
    const auto place = std::find(group.members.begin(), group.members.end(), span.worker);
    sums.starts[static_cast<size_t>(place - group.members.begin())] = span.start;
  }
  for (size_t g = 0; g < all.size(); ++g) {
    std::vector<Duration> starts = all[g].starts;
    const auto last = std::max_element(starts.begin(), starts.end());
    if (starts.size() < 2) continue;
    all[g].last = plan.schedule.groups[g].members[static_cast<size_t>(last - starts.begin())];
    const Duration come = *last;
    starts.erase(last);
    all[g].lateness = come - *std::max_element(starts.begin(), starts.end());
  }
  return all;
}

// Counts of chunks to try where one member is late.
std::vector<int32_t> chunk_counts(const Group& group, const GroupSums& sums, const Cluster& now) {
  const auto members = static_cast<int32_t>(group.members.size());
  const Link link = now.link(group.members[0], group.members[1]);
  const auto most = static_cast<int32_t>(
      std::clamp<int64_t>(transfer_time(sums.size, link.bytes_per_second) / kLeastChunk, 1,
                          int64_t{kMostChunksAMember} * members));
  std::vector<int32_t> counts;
  for (const int32_t wanted :
       {best_chunks(members, sums.size, {link.latency, link.bytes_per_second}), members - 1,
        2 * (members - 1)}) {
    counts.push_back(std::min(wanted, most));
  }
  return counts;
}

// When all members have the sum; nothing where they cannot sum so.
std::optional<Duration> finish_of(const Group& group, const GroupSums& sums, const Cluster& now,
                                  const Summing& summing) {
  CollectiveShape shape;
  shape.members = group.members;
  shape.chunks = summing.chunks;
  if (summing.late.value >= 0) shape.late = {summing.late};
  const auto procedure = make_procedure(summing.algorithm, shape);
  if (!procedure.ok()) return std::nullopt;
  const auto finish = reduction_finish(procedure.value().collective, sums.starts, sums.size, now);
  return *std::max_element(finish.begin(), finish.end());
}

// The ways that the plan leaves open to a group, each with its best count of chunks.
std::vector<Way> ways_of(const Group& group, const GroupSums& sums, const Cluster& now,
                         bool any_algorithm) {
  std::vector<Way> ways;
  const auto weigh = [&](Summing summing) {
    const auto finish = finish_of(group, sums, now, summing);
    if (finish) ways.push_back({std::move(summing), *finish});
  };
  if (any_algorithm) {
    weigh({});
    weigh({"halving", {}, 0});
  }
  if (sums.lateness.count() == 0) return ways;
  const size_t first = ways.size();
  for (const int32_t chunks : chunk_counts(group, sums, now)) weigh({kLateOne, sums.last, chunks});
  if (ways.size() == first) return ways;
  const auto best = std::min_element(ways.begin() + static_cast<std::ptrdiff_t>(first), ways.end(),
                                     [](const Way& a, const Way& b) {
                                       return std::pair(a.finish, a.summing.chunks) <
                                              std::pair(b.finish, b.summing.chunks);
                                     });
  ways = {ways.begin(), ways.begin() + static_cast<std::ptrdiff_t>(first)};
  ways.push_back(*best);
  return ways;
}

// What is worth the price of a whole step, the most promising first.
std::vector<Trial> trials_of(const Plan& plan, const Model& model, const Cluster& now,
                             const Timeline& timeline) {
  const bool any_algorithm = plan.schedule.all_reduce == kAutoAllReduce;
  const std::vector<GroupSums> all = sums_of(plan, model, timeline);
  std::vector<Trial> trials;
  for (size_t g = 0; g < all.size(); ++g) {
    const Group& group = plan.schedule.groups[g];
    if (group.members.size() < 2) continue;
    const auto present = finish_of(group, all[g], now, group.summing);
    for (const Way& way : ways_of(group, all[g], now, any_algorithm)) {
      if (way.summing == group.summing || (present && way.finish >= *present)) continue;
      const Duration gain = present ? *present - way.finish : Duration{};
      trials.push_back({group.stages, way.summing, all[g], gain});
    }
  }
  std::stable_sort(trials.begin(), trials.end(),
                   [](const Trial& a, const Trial& b) { return a.gain > b.gain; });
  if (trials.size() > kMostSumTrials) trials.resize(kMostSumTrials);
  return trials;
}

std::string milliseconds(Duration time) {
  return cat(std::round(to_milliseconds(time) * 10) / 10, " ms");
}

std::string describe(const Trial& trial, Duration saved) {
  std::string stages;
  for (const StageId stage : trial.stages) stages += cat(stages.empty() ? "" : " and ", stage);
  std::string text = cat("sums of stage", trial.stages.size() > 1 ? "s " : " ", stages);
  if (trial.summing.late.value >= 0) {
    text += cat(" wait for worker ", trial.summing.late, ", ", milliseconds(trial.sums.lateness),
                " late");
  }
  text += cat(": ", trial.summing.algorithm);
  if (trial.summing.chunks > 0) text += cat(", k = ", trial.summing.chunks);
  return text + cat(", saves ", milliseconds(saved));
}

}  // namespace

Result<ChosenSums> choose_sums(const Plan& plan, const Model& model, const Cluster& now,
                               const PriceOptions& asked, double least_gain) {
  PriceOptions pricing = asked;
  pricing.update = true;
  pricing.spans = pricing.bytes = pricing.lower_bound = false;
  const auto before = price(plan, model, now, pricing);
  if (!before.ok()) return before.error();
  ChosenSums chosen{plan, before.value().period, before.value().period, false, ""};
  if (!sums_follow_cluster(plan.schedule)) return chosen;
  PriceOptions spans = pricing;
  spans.spans = true;
  spans.in_turn = false;  // who comes when in a step from empty
  const auto timeline = price(plan, model, now, spans);
  if (!timeline.ok()) return timeline.error();
  std::vector<std::pair<std::vector<StageId>, std::string>> reasons;  // by group
  for (const Trial& trial : trials_of(plan, model, now, timeline.value())) {
    Plan tried = with_summing(chosen.plan, trial.stages, trial.summing);
    const auto priced = price(tried, model, now, pricing);
    if (!priced.ok()) return priced.error();
    const Duration saved = chosen.price - priced.value().period;
    // Another way of a group that has changed already needs no gain of its own.
    const auto told = std::find_if(reasons.begin(), reasons.end(),
                                   [&](const auto& it) { return it.first == trial.stages; });
    const double least = told == reasons.end() ? least_gain : 0;
    if (saved.count() <= 0 ||
        static_cast<double>(saved.count()) < least * static_cast<double>(chosen.price.count())) {
      continue;
    }
    const std::string reason =
        describe(trial, told == reasons.end() ? saved : chosen.before - priced.value().period);
    if (told == reasons.end()) {
      reasons.emplace_back(trial.stages, reason);
    } else {
      told->second = reason;
    }
    chosen.plan = std::move(tried);
    chosen.price = priced.value().period;
    chosen.changed = true;
  }
  if (!chosen.changed) return chosen;
  const Status right = check(chosen.plan, sizes_of(model, chosen.plan.stages));
  if (!right.ok()) return right.error();
  for (const auto& [stages, reason] : reasons) {
    chosen.reason += cat(chosen.reason.empty() ? "" : "; ", reason);
  }
  return chosen;
}

}  // namespace tenuto
