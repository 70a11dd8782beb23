#include "adapt/order.h"

#include <algorithm>
#include <set>
#include <utility>

#include "adapt/reorder.h"
#include "base/random.h"
#include "base/text.h"
#include "sim/bound.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr uint64_t kSeed = 7;
// How many orders are improved by moving ops: more in a small pipeline, which needs fewer moves.
constexpr int64_t kLeastStarts = 6, kMostStarts = 12;
constexpr int64_t kFirstShare = 20;   // percent of the moves for the best order, before others are
                                      // looked for
constexpr int64_t kStartsShare = 30;  // for all starts together; the rest is for the best again
constexpr const char* kMoved = ", ops moved";
constexpr int32_t kDelayLevels = 24;  // from none to the longest
constexpr int32_t kShaken = 32;       // lines with other times
constexpr double kShake = 0.08;       // share by which times differ, delays three times that
constexpr int32_t kCoarseSteps = 30;  // steps of a coarse clock within the longest op

Duration scaled(Duration time, double by) {
  return Duration(static_cast<int64_t>(static_cast<double>(time.count()) * by));
}

// Quotas under a name.
struct Named {
  std::string name;
  Quotas quotas;
};

std::vector<Named> portfolio_of(const Line& line) {
  std::vector<Named> all = {{"ring", ring_quotas_within(line, 0)},
                            {"none", Quotas(line.legs.size(), 0)},
                            {"ring with one weight gradient delayed", ring_quotas_within(line, 1)},
                            {"ring without a memory limit", ring_quotas(line, busiest(line))},
                            {"neighbours", neighbour_quotas(line)},
                            {"2 + delay", stepped_quotas(line, 2, 1)},
                            {"2 + round trip", stepped_quotas(line, 2, 2)},
                            {"filling", filling_quotas(line)},
                            {"even", even_quotas(line)},
                            {"2", stepped_quotas(line, 2, 0)},
                            {"1", stepped_quotas(line, 1, 0)}};
  std::set<Quotas> seen;
  std::vector<Named> different;
  for (Named& named : all) {
    named.quotas = within_memory(line, std::move(named.quotas));
    if (seen.insert(named.quotas).second) different.push_back(std::move(named));
  }
  return different;
}

// A fixed order: forwards ahead, then backward and forward in turn, weight gradients `lag` behind.
Sequence in_turn(int32_t micros, int32_t ahead, int32_t lag) {
  Sequence sequence(at(ahead), OpKind::Forward);
  int32_t weights = 0;
  for (int32_t k = 0; k < micros; ++k) {
    sequence.push_back(OpKind::BackwardInput);
    for (; weights + lag <= k; ++weights) sequence.push_back(OpKind::BackwardWeight);
    if (ahead + k < micros) sequence.push_back(OpKind::Forward);
  }
  sequence.insert(sequence.end(), at(micros - weights), OpKind::BackwardWeight);
  return sequence;
}

// The fixed order in which each stage runs `step` more forwards ahead than the next, and defers its
// weight gradients by `step` for each stage before it, or by less if memory requires. Empty if it
// does not fit even then. Step 1: ZB-H1, 2: ZB-H2.
std::vector<Sequence> fixed_order(const Line& line, int32_t step) {
  const Quotas ahead = within_memory(line, stepped_quotas(line, step, 0));
  std::vector<Sequence> sequences;
  for (int32_t s = 0; s < line.stages(); ++s) {
    const Leg& leg = line.legs[at(s)];
    int32_t lag = std::min(line.micros, step * s);
    Sequence sequence = in_turn(line.micros, ahead[at(s)], lag);
    while (lag > 0 && !fits_memory(leg, sequence))
      sequence = in_turn(line.micros, ahead[at(s)], --lag);
    if (!fits_memory(leg, sequence)) return {};
    sequences.push_back(std::move(sequence));
  }
  return sequences;
}

// The line on a coarse clock: every time rounded up to a step.
Line coarse(Line line) {
  Duration longest{};
  for (const Leg& leg : line.legs) {
    longest = std::max({longest, leg.forward, leg.backward, leg.weight});
  }
  const Duration step = std::max(std::chrono::nanoseconds(1), longest / kCoarseSteps);
  for (Leg& leg : line.legs) {
    leg.down += std::exchange(leg.down_busy, {});
    leg.up += std::exchange(leg.up_busy, {});
    for (Duration* time : {&leg.forward, &leg.backward, &leg.weight, &leg.down, &leg.up}) {
      *time = step * ((*time + step - std::chrono::nanoseconds(1)) / step);
    }
  }
  return line;
}

// The line with the same delay on every link that has one, both ways.
Line with_delay(Line line, Duration delay) {
  for (size_t s = 0; s + 1 < line.legs.size(); ++s) {
    Leg& leg = line.legs[s];
    Leg& next = line.legs[s + 1];
    if (leg.down.count() != 0 || next.up.count() != 0) leg.down = next.up = delay;
  }
  return line;
}

// The line with random changes of all times; delays change most.
Line shaken(Line line, Random& random, double share) {
  const auto shake = [&](Duration& time, double by) {
    time = scaled(time, 1 + by * (2 * random.uniform() - 1));
  };
  for (Leg& leg : line.legs) {
    for (Duration* time : {&leg.forward, &leg.backward, &leg.weight}) shake(*time, share);
    for (Duration* time : {&leg.down, &leg.up}) shake(*time, 3 * share);
  }
  return line;
}

class Search {
 public:
  Search(const Line& line, const Effort& effort, Watch* watch)
      : line_(line), effort_(effort), watch_(watch), replay_(line), reorder_(line) {
    Route route;
    route.legs = line.legs;
    for (int32_t k = 0; k < line.micros; ++k) route.micros.push_back({k});
    found_.bound = line_bound(route);
    const int64_t ops = std::max<int64_t>(1, line.ops());
    moves_ = std::min(effort.moves, effort.moved_ops / ops);
    start_count_ = static_cast<size_t>(
        std::clamp(2 * moves_ * kStartsShare / 100 / ops, kLeastStarts, kMostStarts));
  }

  std::optional<OrderSearch> run() {
    play_portfolio();
    if (found_.listed.sequences.empty()) return std::nullopt;
    if (!optimal(found_.ready)) shift_quotas(found_.ready, true);
    if (!optimal(found_.listed)) shift_quotas(found_.listed, false);
    if (!optimal(found_.listed)) move_ops();
    return std::move(found_);
  }

 private:
  // True when the search ends: nothing better exists, or no time is left.
  bool optimal(const Ordered& ordered) const {
    if (ordered.sequences.empty()) return false;
    return ordered.makespan <= found_.bound || is_over(watch_);
  }
  bool spent() const { return played_ >= effort_.played_ops; }

  // Plays a policy and keeps what is better than before.
  void attempt(const Policy& policy, const std::string& how) {
    if (!found_.ready.sequences.empty() && is_over(watch_)) return;
    count_item(watch_);
    std::optional<Played> played = play(line_, policy, worth(policy), &played_);
    if (!played) return;
    // Waiting for messages may make the step longer; the fixed sequence does not wait.
    if (!policy.is_ready()) played->makespan = replay_.run(played->sequences).value();
    const auto keep = [&](Ordered& best) {
      if (!best.sequences.empty() && played->makespan >= best.makespan) return;
      best = {played->makespan, played->sequences, policy, how};
    };
    keep(found_.listed);
    if (policy.is_ready()) keep(found_.ready);
    remember({played->makespan, std::move(played->sequences), policy, how});
  }

  // A step that lasts longer than this is not kept. The limit is higher for a policy that waits for
  // messages, since its sequence may be faster without the waits.
  Duration worth(const Policy& policy) const {
    if (found_.listed.sequences.empty() || starts_.size() < start_count_) return Duration::max();
    Duration most = starts_.back().makespan;
    if (!policy.is_ready()) return most + most / 100;
    return found_.ready.sequences.empty() ? Duration::max() : std::max(most, found_.ready.makespan);
  }

  // Keeps the fastest different orders: a better one may be fewer moves away from the second best
  // than from the best.
  void remember(Ordered ordered) {
    const auto place = std::lower_bound(
        starts_.begin(), starts_.end(), ordered,
        [](const Ordered& a, const Ordered& b) { return a.makespan < b.makespan; });
    for (auto same = place; same != starts_.end() && same->makespan == ordered.makespan; ++same) {
      if (same->sequences == ordered.sequences) return;
    }
    starts_.insert(place, std::move(ordered));
    if (starts_.size() > start_count_) starts_.pop_back();
  }

  // Tries orders that no policy plays on this line: fixed ones, and those that policies play on
  // slightly different lines, where ties and near ties are broken in another way.
  void take_others() {
    for (const int32_t step : {1, 2}) take(fixed_order(line_, step), "fixed");
    take_played_on(coarse(line_), "on a coarse clock");
    Duration longest{};
    for (const Leg& leg : line_.legs) longest = std::max({longest, leg.down, leg.up});
    for (int32_t level = 0; level <= kDelayLevels && longest.count() > 0; ++level) {
      take_played_on(with_delay(line_, longest * level / kDelayLevels), "for other delays");
    }
    for (int32_t i = 0; i < kShaken; ++i) {
      take_played_on(shaken(line_, random_, kShake), "for other times");
    }
  }
  void take_played_on(const Line& other, const std::string& how) {
    for (const Quotas& quotas :
         {ring_quotas_within(other, 0), neighbour_quotas(other), stepped_quotas(other, 2, 1),
          stepped_quotas(other, 2, 2), Quotas(other.legs.size(), 0)}) {
      if (optimal(found_.listed) || played_ >= 3 * effort_.played_ops) return;
      auto played = play(other, {within_memory(other, quotas), {}}, Duration::max(), &played_);
      if (played) take(std::move(played->sequences), how);
    }
  }
  void take(std::vector<Sequence> sequences, const std::string& how) {
    if (sequences.empty()) return;
    const std::optional<Duration> time = replay_.run(sequences);
    if (!time) return;
    Ordered ordered{*time, std::move(sequences), found_.listed.policy, how};
    if (*time < found_.listed.makespan) found_.listed = ordered;
    remember(std::move(ordered));
  }

  void play_portfolio() {
    const std::vector<Named> all = portfolio_of(line_);
    for (const Named& named : all) attempt({named.quotas, {}}, named.name);
    for (const Named& named : all) {
      if (optimal(found_.ready) || spent()) return;
      if (named.name != "none") {
        attempt({named.quotas, named.quotas}, cat(named.name, ", as many held"));
      }
    }
    for (const Named& named : all) {
      for (const bool strict : {true, false}) {
        for (const int32_t look_ahead : {0, 1, 2}) {
          for (const bool weights_first : {false, true}) {
            for (const bool limited : {false, true}) {
              if (optimal(found_.listed) || spent()) return;
              const bool done = strict && look_ahead == 0 && !weights_first;
              const bool empty = named.name == "none" && (limited || weights_first || !strict);
              if (done || empty) continue;
              Policy policy{named.quotas, {}, strict, look_ahead, weights_first};
              if (limited) policy.most = named.quotas;
              attempt(policy, named.name);
            }
          }
        }
      }
    }
  }

  // Tries quotas a little higher and lower, twice.
  void shift_quotas(const Ordered& best, bool ready) {
    for (int round = 0; round < 2; ++round) {
      const Duration before = best.makespan;
      for (int32_t s = -1; s < line_.stages(); ++s) {
        for (const int32_t by : {1, -1, 2, -2}) {
          if (optimal(best) || played_ >= 2 * effort_.played_ops) return;
          if (s < 0 && std::abs(by) > 1) continue;
          shift(best, s, by, ready);
        }
      }
      if (best.makespan == before) return;
    }
  }

  // Shifts the quota of one stage, or of all with stage -1.
  void shift(const Ordered& best, int32_t stage, int32_t by, bool ready) {
    Policy policy = best.policy;
    if (ready != policy.is_ready() && ready) return;
    for (int32_t s = 0; s < line_.stages(); ++s) {
      if (stage >= 0 && s != stage) continue;
      policy.warm_up[at(s)] = std::clamp(policy.warm_up[at(s)] + by, 0, line_.micros);
      if (!policy.most.empty()) policy.most[at(s)] = std::max(1, policy.most[at(s)] + by);
    }
    attempt(policy, cat(best.how.substr(0, best.how.find(", shifted")), ", shifted"));
  }

  // Moves ops of the best for a while; if that does not reach the bound, looks for other orders and
  // moves ops of each of the fastest for a while, then of the best.
  void move_ops() {
    move_ops(Ordered(found_.listed), moves_ * kFirstShare / 100);
    if (optimal(found_.listed)) return;
    take_others();
    for (const Ordered& start : starts_) {
      if (optimal(found_.listed)) return;
      move_ops(start, moves_ * kStartsShare / 100 / static_cast<int64_t>(starts_.size()));
    }
    if (optimal(found_.listed)) return;
    move_ops(Ordered(found_.listed), moves_ * (100 - kFirstShare - kStartsShare) / 100);
  }

  void move_ops(Ordered start, int64_t most) {
    const auto time = reorder_.improve(start.sequences, found_.bound, most, watch_);
    if (!time || *time >= found_.listed.makespan) return;
    start.makespan = *time;
    if (!start.how.ends_with(kMoved)) start.how += kMoved;
    found_.listed = std::move(start);
  }

  const Line& line_;
  const Effort& effort_;
  Watch* const watch_;
  Replay replay_;
  Reorder reorder_;
  OrderSearch found_;
  std::vector<Ordered> starts_;  // the fastest first
  size_t start_count_ = 0;       // of them, at most
  int64_t moves_ = 0;            // of ops, in all
  Random random_{kSeed};
  int64_t played_ = 0;
};

}  // namespace

std::optional<OrderSearch> search_order(const Line& line, const Effort& effort, Watch* watch) {
  return Search(line, effort, watch).run();
}

}  // namespace tenuto
