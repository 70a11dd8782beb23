#include <algorithm>
#include <utility>

#include "adapt/layout/block_chain.h"
#include "adapt/layout/block_schedule.h"
#include "base/check.h"

namespace tenuto {

namespace {

constexpr BlockPolicy kPolicies[] = {BlockPolicy::OneForwardOneBackward, BlockPolicy::WithTransfers,
                                     BlockPolicy::BackwardFirst, BlockPolicy::ForwardsFirst,
                                     BlockPolicy::Periodic};
// A makespan this close to a bound has reached it.
constexpr double kReached = 1e-12;
// Tiny steps need fewer choices than this for all orders, less than any other search.
constexpr int64_t kFirstNodes = 1000;
// Percent of the replays: at most for changed limits, and for all starts together; the rest is for
// the best of them. Measured on random steps of 8 to 32 stages and 16 to 256 micro-batches: starts
// help most with many stages, limits with many micro-batches.
constexpr int64_t kLimitsShare = 10, kStartsShare = 20;

// The most micro-batches in flight in an order.
int32_t most_in_flight(const uint8_t* order, size_t ops) {
  int32_t now = 0, most = 0;
  for (size_t i = 0; i < ops; ++i) most = std::max(most, now += order[i] != 0 ? -1 : 1);
  return most;
}

// The search for the schedule of one step.
class ScheduleSearch {
 public:
  ScheduleSearch(const LayoutLoads& loads, const BlockEffort& effort)
      : loads_(loads), effort_(effort), chain_(chain_of(loads)), player_(chain_) {
    limits_.least = least_makespan(loads) * (1 + kReached);
    for (const BlockPlace& place : chain_.places) {
      const bool free = place.stage < 0 || effort.most_in_flight.empty();
      limits_.most.push_back(free ? loads.micros
                                  : effort.most_in_flight[static_cast<size_t>(place.stage)]);
    }
  }

  BlockSchedule run() {
    for (const BlockPolicy policy : kPolicies) {
      starts_.push_back(
          {play_policy(loads_, chain_, policy, effort_.most_in_flight, player_), policy});
      if (starts_.back().makespan() < starts_[best_].makespan() * (1 - kReached)) {
        best_ = starts_.size() - 1;
      }
      if (at_least()) break;
    }
    const double played = starts_[best_].makespan();
    if (!at_least() && (effort_.replays > 0 || effort_.nodes > 0)) search();
    const Start& best = starts_[best_];
    BlockSchedule schedule = schedule_of(loads_, chain_, best.found, best.policy);
    schedule.improved = best.makespan() < played;
    return schedule;
  }

 private:
  // Orders from which the search goes on.
  struct Start {
    FoundOrders found;
    BlockPolicy policy = BlockPolicy::OneForwardOneBackward;
    double makespan() const { return found.makespan; }
  };
  bool at_least() const { return starts_[best_].makespan() <= limits_.least; }
  // These return true when no order is faster than the best.
  bool branch(int64_t nodes) {
    return nodes > 0 && branch_orders(chain_, limits_, nodes, starts_[best_].found);
  }
  bool exchange(size_t start, int64_t replays) {
    const bool done = exchange_ops(chain_, limits_, replays, starts_[start].found);
    if (starts_[start].makespan() < starts_[best_].makespan()) best_ = start;
    return done;
  }

  void search() {
    if (branch(std::min(effort_.nodes, kFirstNodes))) return;
    int64_t left = effort_.replays - vary_limits(effort_.replays * kLimitsShare / 100);
    if (at_least()) return;
    const int64_t each =
        effort_.replays * kStartsShare / 100 / static_cast<int64_t>(starts_.size());
    for (size_t start = 0; start < starts_.size(); ++start, left -= each) {
      if (exchange(start, each)) return;
    }
    if (exchange(best_, left / 2)) return;
    if (effort_.nodes > kFirstNodes && branch(effort_.nodes)) return;
    exchange(best_, left - left / 2);
  }

  // Changes the limits of the stages, one at a time, while this shortens the step: with many
  // micro-batches an exchange of two ops changes too little. Returns the number of steps played.
  int64_t vary_limits(int64_t plays) {
    if (plays == 0) return 0;
    std::vector<PlaceRule> rules(chain_.places.size());
    for (size_t p = 0; p < rules.size(); ++p) {
      if (chain_.places[p].stage < 0) continue;
      rules[p].most = most_in_flight(&starts_[best_].found.orders[p * chain_.ops()], chain_.ops());
    }
    Start start{{}, starts_[best_].policy};
    start.found.makespan = player_.play(rules, start.found.orders);
    int64_t played = 1;
    PlaceOrders tried;
    const auto shift = [&](size_t p, int32_t by) {
      const int32_t before = rules[p].most;
      rules[p].most = std::clamp(before + by, 1, limits_.most[p]);
      if (rules[p].most == before || played >= plays) return false;
      ++played;
      const double makespan = player_.play(rules, tried);
      if (makespan < start.makespan() * (1 - kReached)) {
        start.found = {std::exchange(tried, {}), makespan};
        return true;
      }
      rules[p].most = before;
      return false;
    };
    for (bool better = true; better && played < plays;) {
      better = false;
      for (size_t p = 0; p < rules.size(); ++p) {
        if (chain_.places[p].stage < 0) continue;
        for (const int32_t by : {1, -1, 2}) better = shift(p, by) || better;
      }
    }
    starts_.push_back(std::move(start));
    if (starts_.back().makespan() < starts_[best_].makespan()) best_ = starts_.size() - 1;
    return played;
  }

  const LayoutLoads& loads_;
  const BlockEffort& effort_;
  const BlockChain chain_;
  BlockPlayer player_;
  OrderLimits limits_;
  std::vector<Start> starts_;
  size_t best_ = 0;  // of starts_
};

}  // namespace

std::optional<BlockSchedule> best_schedule(const LayoutLoads& loads, const BlockEffort& effort) {
  const std::vector<int32_t>& most = effort.most_in_flight;
  CHECK(most.empty() || most.size() == loads.stages.size(), "each stage needs a limit");
  if (std::any_of(most.begin(), most.end(), [](int32_t limit) { return limit < 1; })) {
    return std::nullopt;
  }
  return ScheduleSearch(loads, effort).run();
}

}  // namespace tenuto
