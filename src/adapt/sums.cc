#include "adapt/sums.h"

#include <algorithm>
#include <cmath>
#include <map>
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

// The worker's time for a message beside its bytes and its latency. Prices do not count it; without
// it more chunks would always be better.
constexpr Duration kMessage = std::chrono::microseconds(20);
constexpr int32_t kMostChunksAMember = 8;

// A group's sums in the step as it is priced.
struct GroupSums {
  Bytes size;
  std::vector<Duration> starts;  // by place in the members
  WorkerId last;                 // the member that comes last, and by how much
  Duration lateness{};
  bool in_turn = false;  // steps follow one another, see PriceOptions
};

// One way to sum, and when the last member has the sum then.
struct Way {
  Summing summing;
  Duration finish{};
};

// A change to try for a group, and what its sums alone gain by it.
struct Trial {
  std::vector<StageId> stages;
  Summing summing, before;
  Duration lateness{}, gain{};
};

std::vector<GroupSums> sums_of(const Plan& plan, const Model& model, const Timeline& timeline,
                               bool in_turn) {
  std::vector<GroupSums> all(plan.schedule.groups.size());
  for (size_t g = 0; g < all.size(); ++g) {
    all[g].starts.resize(plan.schedule.groups[g].members.size());
    all[g].in_turn = in_turn;
  }
  for (const Span& span : timeline.spans) {
    if (span.op.kind != OpKind::Reduce) continue;
    const Group& group = plan.schedule.groups[at(span.op.group.value)];
    GroupSums& sums = all[at(span.op.group.value)];
    sums.size = size_of_sum(stage_cost(model, plan.stages[at(span.op.stage.value)]).parameters,
                            model.tied, span.op.part);
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
  const int32_t most = kMostChunksAMember * members;
  std::vector<int32_t> counts;
  for (const int32_t wanted :
       {best_chunks(members, sums.size, {link.latency, link.bytes_per_second}), members - 1,
        2 * (members - 1)}) {
    counts.push_back(std::min(wanted, most));
  }
  return counts;
}

// Messages of the member that has most of them.
int32_t most_messages(const Collective& collective) {
  std::map<WorkerId, int32_t> counts;
  for (const Round& round : collective.rounds) {
    for (const Move& move : round.moves) ++counts[move.from], ++counts[move.to];
  }
  int32_t most = 0;
  for (const auto& [member, count] : counts) most = std::max(most, count);
  return most;
}

// When all members have the sum; nothing if they cannot sum in this way. With steps in turn, a
// member that came x earlier than the last one may get the sum x later, because the sums of the
// next step wait for the last member again.
std::optional<Duration> finish_of(const Group& group, const GroupSums& sums, const Cluster& now,
                                  const Summing& summing) {
  CollectiveShape shape;
  shape.members = group.members;
  shape.chunks = summing.chunks;
  if (summing.late.value >= 0) shape.late = {summing.late};
  const auto procedure = make_procedure(summing.algorithm, shape);
  if (!procedure.ok()) return std::nullopt;
  const Collective& collective = procedure.value().collective;
  auto finish = reduction_finish(collective, sums.starts, sums.size, now);
  const Duration last = *std::max_element(sums.starts.begin(), sums.starts.end());
  for (size_t i = 0; i < finish.size() && sums.in_turn; ++i) finish[i] -= last - sums.starts[i];
  return *std::max_element(finish.begin(), finish.end()) + most_messages(collective) * kMessage;
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
  const auto late = ways.begin() + static_cast<std::ptrdiff_t>(first);
  std::iter_swap(late, std::min_element(late, ways.end(), [](const Way& a, const Way& b) {
                   return std::pair(a.finish, a.summing.chunks) <
                          std::pair(b.finish, b.summing.chunks);
                 }));
  ways.resize(first + 1);
  return ways;
}

// The changes that might gain, the most promising first.
std::vector<Trial> trials_of(const Plan& plan, const Model& model, const Cluster& now,
                             const Timeline& timeline, bool in_turn) {
  const bool any_algorithm = plan.schedule.all_reduce == kAutoAllReduce;
  const std::vector<GroupSums> all = sums_of(plan, model, timeline, in_turn);
  std::vector<Trial> trials;
  for (size_t g = 0; g < all.size(); ++g) {
    const Group& group = plan.schedule.groups[g];
    if (group.members.size() < 2) continue;
    const auto present = finish_of(group, all[g], now, group.summing);
    if (!present) continue;
    for (const Way& way : ways_of(group, all[g], now, any_algorithm)) {
      if (way.summing == group.summing || way.finish >= *present) continue;
      trials.push_back(
          {group.stages, way.summing, group.summing, all[g].lateness, *present - way.finish});
    }
  }
  std::stable_sort(trials.begin(), trials.end(),
                   [](const Trial& a, const Trial& b) { return a.gain > b.gain; });
  return trials;
}

std::string milliseconds(Duration time) {
  return cat(std::round(to_milliseconds(time) * 10) / 10, " ms");
}

std::string describe(const Trial& trial) {
  std::string stages;
  for (const StageId stage : trial.stages) stages += cat(stages.empty() ? "" : " and ", stage);
  std::string text = cat("sums of stage", trial.stages.size() > 1 ? "s " : " ", stages);
  if (trial.summing.late.value >= 0) {
    text +=
        cat(" wait for worker ", trial.summing.late, ", ", milliseconds(trial.lateness), " late");
  }
  text += cat(": ", trial.summing.algorithm);
  return trial.summing.chunks > 0 ? cat(text, ", k = ", trial.summing.chunks) : text;
}

// Chooses among trials by the price of the whole step.
class Chooser {
 public:
  Chooser(const Plan& plan, const Model& model, const Cluster& now, const PriceOptions& pricing,
          double least_gain)
      : model_(model), now_(now), pricing_(pricing), least_gain_(least_gain) {
    chosen_.plan = plan;
  }

  Result<ChosenSums> run() {
    const auto before = price_of(chosen_.plan);
    if (!before.ok()) return before.error();
    chosen_.before = chosen_.price = before.value();
    if (!sums_follow_cluster(chosen_.plan.schedule)) return chosen_;
    PriceOptions spans = pricing_;
    spans.spans = true;
    spans.in_turn = false;  // arrivals in one step that begins with all workers idle
    const auto timeline = price(chosen_.plan, model_, now_, spans);
    if (!timeline.ok()) return timeline.error();
    const auto trials = trials_of(chosen_.plan, model_, now_, timeline.value(), pricing_.in_turn);
    for (const auto step : {&Chooser::take_together, &Chooser::take_back, &Chooser::take_others}) {
      if (const Status status = (this->*step)(trials); !status.ok()) return status.error();
    }
    if (taken_.empty()) return chosen_;
    const Status right = check(chosen_.plan, sizes_of(model_, chosen_.plan.stages));
    if (!right.ok()) return right.error();
    chosen_.changed = true;
    for (const auto& [stages, trial] : taken_) {
      chosen_.reason += cat(chosen_.reason.empty() ? "" : "; ", describe(trial));
    }
    chosen_.reason += cat(", saves ", milliseconds(chosen_.before - chosen_.price));
    return std::move(chosen_);
  }

 private:
  Result<Duration> price_of(const Plan& plan) const {
    const auto priced = price(plan, model_, now_, pricing_);
    if (!priced.ok()) return priced.error();
    return priced.value().period;
  }
  bool is_enough(Duration gain) const {
    return gain.count() > 0 && static_cast<double>(gain.count()) >=
                                   least_gain_ * static_cast<double>(chosen_.before.count());
  }

  // Gives all groups their best ways, if that makes the step faster: stages that wait for each
  // other gain together.
  Status take_together(const std::vector<Trial>& trials) {
    Plan tried = chosen_.plan;
    std::map<std::vector<StageId>, Trial> best;
    for (const Trial& trial : trials) best.try_emplace(trial.stages, trial);
    for (const auto& [stages, trial] : best) {
      tried = with_summing(std::move(tried), stages, trial.summing);
    }
    if (best.empty()) return ok();
    const auto priced = price_of(tried);
    if (!priced.ok()) return priced.error();
    if (!is_enough(chosen_.price - priced.value())) return ok();
    chosen_.plan = std::move(tried);
    chosen_.price = priced.value();
    taken_ = std::move(best);
    return ok();
  }

  // Takes back each change whose removal does not make the step longer.
  Status take_back(const std::vector<Trial>& trials) {
    if (taken_.size() < 2) return ok();
    for (auto trial = trials.rbegin(); trial != trials.rend() && left_ > 0; ++trial) {
      const auto taken = taken_.find(trial->stages);
      if (taken == taken_.end() || taken->second.summing != trial->summing) continue;
      Plan tried = with_summing(chosen_.plan, trial->stages, trial->before);
      const auto priced = price_of(tried);
      --left_;
      if (!priced.ok()) return priced.error();
      if (priced.value() > chosen_.price) continue;
      chosen_.plan = std::move(tried);
      chosen_.price = priced.value();
      taken_.erase(taken);
    }
    return ok();
  }

  // Tries other ways for single groups: a changed group must get better, another one must gain
  // enough.
  Status take_others(const std::vector<Trial>& trials) {
    for (const Trial& trial : trials) {
      const auto taken = taken_.find(trial.stages);
      if (taken != taken_.end() && taken->second.summing == trial.summing) continue;
      if (left_ == 0) break;
      Plan tried = with_summing(chosen_.plan, trial.stages, trial.summing);
      const auto priced = price_of(tried);
      --left_;
      if (!priced.ok()) return priced.error();
      const Duration gain = chosen_.price - priced.value();
      if (taken == taken_.end() ? !is_enough(gain) : gain.count() <= 0) continue;
      chosen_.plan = std::move(tried);
      chosen_.price = priced.value();
      taken_.insert_or_assign(trial.stages, trial);
    }
    return ok();
  }

  const Model& model_;
  const Cluster& now_;
  const PriceOptions pricing_;
  const double least_gain_;
  ChosenSums chosen_;
  std::map<std::vector<StageId>, Trial> taken_;  // by the stages of a group
  int32_t left_ = kMostSumTrials;
};

}  // namespace

Result<ChosenSums> choose_sums(const Plan& plan, const Model& model, const Cluster& now,
                               const PriceOptions& asked, double least_gain) {
  PriceOptions pricing = asked;
  pricing.update = true;
  pricing.spans = pricing.bytes = pricing.lower_bound = false;
  return Chooser(plan, model, now, pricing, least_gain).run();
}

}  // namespace tenuto
