#include "adapt/order.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"
#include "sim/bound.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr int32_t kMoveReach = 4;  // places that one move carries an op
constexpr double kDetour = 0.3;    // share of the gap to the bound by which a move may lengthen
constexpr uint64_t kSeed = 7;

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
                            {"ring with one weight gradient put off", ring_quotas_within(line, 1)},
                            {"ring without room", ring_quotas(line, busiest(line))},
                            {"neighbours", neighbour_quotas(line)},
                            {"2 + delay", stepped_quotas(line, 2, true)},
                            {"filling", filling_quotas(line)},
                            {"even", even_quotas(line)},
                            {"2", stepped_quotas(line, 2, false)},
                            {"1", stepped_quotas(line, 1, false)}};
  std::set<Quotas> seen;
  std::vector<Named> different;
  for (Named& named : all) {
    if (seen.insert(named.quotas).second) different.push_back(std::move(named));
  }
  return different;
}

class Search {
 public:
  Search(const Line& line, const Effort& effort) : line_(line), effort_(effort), replay_(line) {
    Route route;
    route.legs = line.legs;
    for (int32_t k = 0; k < line.micros; ++k) route.micros.push_back({k});
    found_.bound = line_bound(route);
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
  bool optimal(const Ordered& ordered) const {
    return !ordered.sequences.empty() && ordered.makespan <= found_.bound;
  }
  bool spent() const { return played_ >= effort_.played_ops; }

  // Plays a policy and keeps what is better than before.
  void attempt(const Policy& policy, const std::string& how) {
    played_ += line_.ops();
    const std::optional<Played> played = play(line_, policy);
    if (!played) return;
    const auto keep = [&](Ordered& best) {
      if (!best.sequences.empty() && played->makespan >= best.makespan) return;
      best = {played->makespan, played->sequences, policy, how};
    };
    keep(found_.listed);
    if (policy.is_ready()) keep(found_.ready);
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

  // Moves single ops along critical paths. A move that makes the step no longer than a shrinking
  // allowance above the best is kept: the way to a better order often leads over a worse one.
  void move_ops() {
    const int64_t most =
        std::min(effort_.moves, effort_.replayed_ops / std::max<int64_t>(1, line_.ops()));
    std::vector<Sequence> now = found_.listed.sequences;
    std::optional<Duration> time = replay_.run(now);
    CHECK(time && *time <= found_.listed.makespan, "a replay takes what was found");
    Ordered best = found_.listed;
    Random random(kSeed);
    auto pairs = replay_.critical_pairs(now);
    for (int64_t i = 0; i < most && best.makespan > found_.bound && !pairs.empty(); ++i) {
      const auto [stage, place] =
          pairs[at(static_cast<int32_t>(random.below(static_cast<int64_t>(pairs.size()))))];
      const auto reach = static_cast<int32_t>(1 + random.below(kMoveReach));
      const int32_t by = random.below(2) == 0 ? reach : -reach;
      if (!move(now[at(stage)], stage, place, by)) continue;
      const std::optional<Duration> moved = replay_.run(now);
      const double left = 1 - static_cast<double>(i) / static_cast<double>(most);
      const Duration allowed = best.makespan + scaled(best.makespan - found_.bound, kDetour * left);
      if (!moved || *moved > std::max(allowed, *time)) {
        move_back(now[at(stage)], place, by);
        continue;
      }
      time = moved;
      pairs = replay_.critical_pairs(now);
      if (*moved < best.makespan)
        best = {*moved, now, best.policy, cat(found_.listed.how, ", ops moved")};
    }
    found_.listed = std::move(best);
  }

  // The op at `place` goes `by` places earlier (by < 0), or the one before it `by` places later.
  // False, and nothing changed, when that would break the order of a micro-batch or the room.
  bool move(Sequence& sequence, int32_t stage, int32_t place, int32_t by) const {
    const int32_t from = by < 0 ? place : place - 1;
    const int32_t to = from + by;
    if (to < 0 || to >= static_cast<int32_t>(sequence.size())) return false;
    const OpKind kind = sequence[at(from)];
    const OpKind before = sequence[at(to)];
    if (!may_pass(sequence, from, to)) return false;
    carry(sequence, from, to);
    if (kind == OpKind::BackwardWeight && by < 0) return true;  // frees room sooner
    if (before == OpKind::BackwardWeight || kind == OpKind::Forward || by > 0) {
      if (!keeps_room(line_.legs[at(stage)], sequence)) {
        carry(sequence, to, from);
        return false;
      }
    }
    return true;
  }
  static void move_back(Sequence& sequence, int32_t place, int32_t by) {
    const int32_t from = by < 0 ? place : place - 1;
    carry(sequence, from + by, from);
  }
  static void carry(Sequence& sequence, int32_t from, int32_t to) {
    const auto first = sequence.begin();
    if (from < to) {
      std::rotate(first + from, first + from + 1, first + to + 1);
    } else {
      std::rotate(first + to, first + from, first + from + 1);
    }
  }

  // Whether the op at `from` may go to `to`: past no op of its kind, and not past the op of its
  // micro-batch that it reads or that reads it.
  static bool may_pass(const Sequence& sequence, int32_t from, int32_t to) {
    const OpKind kind = sequence[at(from)];
    int32_t forwards = 0, backwards = 0, weights = 0;
    const auto count = [&](OpKind it) -> int32_t& {
      return it == OpKind::Forward ? forwards : it == OpKind::BackwardInput ? backwards : weights;
    };
    for (int32_t p = 0; p < std::min(from, to); ++p) ++count(sequence[at(p)]);
    // Played from the smaller place on in the new order: no count may overtake the one before it.
    std::vector<OpKind> changed;
    if (to < from) changed.push_back(kind);
    for (int32_t p = std::min(from, to); p <= std::max(from, to); ++p) {
      if (p == from) continue;
      if (sequence[at(p)] == kind) return false;
      changed.push_back(sequence[at(p)]);
    }
    if (to > from) changed.push_back(kind);
    for (const OpKind it : changed) {
      ++count(it);
      if (backwards > forwards || weights > backwards) return false;
    }
    return true;
  }

  const Line& line_;
  const Effort& effort_;
  Replay replay_;
  OrderSearch found_;
  int64_t played_ = 0;
};

}  // namespace

std::optional<OrderSearch> search_order(const Line& line, const Effort& effort) {
  return Search(line, effort).run();
}

}  // namespace tenuto
