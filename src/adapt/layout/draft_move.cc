#include "adapt/layout/draft_move.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tenuto {

namespace {

// Of two drafts whose bounds differ little, the one with the shorter way for a micro-batch is the
// better guess. The bound is a maximum, so many moves of cuts do not change it at all.
constexpr double kLatencyShare = 0.02;
constexpr int32_t kBalanceRounds = 4;  // over all cuts

size_t at(int32_t index) { return static_cast<size_t>(index); }

int32_t layer_count(const DraftStage& stage) { return stage.layers.end - stage.layers.first; }

// The place with the most work in a step.
int32_t busiest_stage(const LayoutLoads& loads) {
  int32_t busiest = 0;
  double most = -1;
  for (size_t n = 0; n < loads.stages.size(); ++n) {
    const double load = loads.micros * loads.stages[n].both() + loads.stages[n].reduction;
    const double link = n < loads.links.size() ? loads.micros * loads.links[n].both() : 0;
    if (std::max(load, link) <= most) continue;
    most = std::max(load, link);
    busiest = static_cast<int32_t>(n);
  }
  return busiest;
}

// The numbers of devices to move of so many of a kind: one, two, all.
std::vector<int32_t> amounts_of(int32_t count) {
  std::vector<int32_t> amounts = {1};
  if (count >= 2) amounts.push_back(2);
  if (count > 2) amounts.push_back(count);
  return amounts;
}

// Lists the moves of a draft's devices.
class MoveLister {
 public:
  explicit MoveLister(const Draft& draft)
      : draft_(draft), count_(static_cast<int32_t>(draft.stages.size())) {}

  // About how many moves there are.
  size_t estimate() const {
    size_t entries = draft_.idle.size();
    for (const DraftStage& stage : draft_.stages) entries += stage.devices.size();
    const size_t stages = at(count_);
    return entries * (stages + 1) * 4 + entries * entries / 2 + 3 * stages * stages;
  }

  std::vector<DraftMove> all() {
    for (int32_t one = kIdle; one < count_; ++one) {
      for (const KindCount& some : devices(one)) {
        for (const int32_t amount : amounts_of(some.count)) take({some.kind, amount}, one);
      }
    }
    for (int32_t one = kIdle; one < count_; ++one) {
      for (int32_t other = one + 1; other < count_; ++other) exchange(one, other);
    }
    for (int32_t one = 0; one < count_ && count_ > 1; ++one) {
      for (int32_t other = kIdle; other < count_; ++other) remove(one, other);
    }
    return std::move(moves_);
  }

  // Random moves, half of them at the busiest stage.
  std::vector<DraftMove> some(size_t most, Random& random) {
    const int32_t busiest = busiest_stage(draft_.loads);
    for (size_t tries = 0; tries < 4 * most && moves_.size() < most; ++tries) {
      int32_t one = static_cast<int32_t>(random.below(count_ + 1)) - 1;
      int32_t other = static_cast<int32_t>(random.below(count_ + 1)) - 1;
      if (random.below(2) == 0) (random.below(2) == 0 ? one : other) = busiest;
      if (random.below(3) == 0)
        other = std::clamp(one + (random.below(2) == 0 ? 1 : -1), 0, count_ - 1);
      if (one == other) continue;
      const size_t before = moves_.size();
      switch (random.below(4)) {
        case 0:
          if (count_ > 1 && one != kIdle) remove(one, other);
          break;
        case 1:
          exchange(std::min(one, other), std::max(one, other));
          break;
        default:
          if (devices(one).empty()) break;
          const auto pick =
              static_cast<size_t>(random.below(static_cast<int64_t>(devices(one).size())));
          const KindCount some = devices(one)[pick];
          const std::vector<int32_t> amounts = amounts_of(some.count);
          const auto size = static_cast<size_t>(random.below(static_cast<int64_t>(amounts.size())));
          take({some.kind, amounts[size]}, one);
      }
      keep_one_since(before, random);
    }
    return std::move(moves_);
  }

 private:
  const std::vector<KindCount>& devices(int32_t stage) const {
    return stage == kIdle ? draft_.idle : draft_.stages[at(stage)].devices;
  }

  // Moves that take devices away from `one`.
  void take(KindCount some, int32_t one) {
    if (one != kIdle && draft_.stages[at(one)].replicas <= some.count) return;
    for (int32_t other = kIdle; other < count_; ++other) {
      if (other != one) moves_.push_back({DraftMoveKind::Give, one, other, 0, some, {}, false});
      if (other == kIdle || layer_count(draft_.stages[at(other)]) < 2) continue;
      for (const bool after : {false, true}) {
        moves_.push_back({DraftMoveKind::Insert, one, other, 0, some, {}, after});
      }
    }
  }

  void exchange(int32_t one, int32_t other) {
    if (one != kIdle && devices(one) != devices(other)) {
      moves_.push_back({DraftMoveKind::Exchange, one, other, 0, {}, {}, false});
    }
    for (const KindCount& some : devices(one)) {
      for (const KindCount& back : devices(other)) {
        if (some.kind == back.kind) continue;
        moves_.push_back(
            {DraftMoveKind::Swap, one, other, 0, {some.kind, 1}, {back.kind, 1}, false});
        if (some.count < 2 || back.count < 2) continue;
        moves_.push_back({DraftMoveKind::Swap, one, other, 0, some, back, false});
      }
    }
  }

  void remove(int32_t one, int32_t other) {
    if (one == other) return;
    for (const bool after : {false, true}) {
      if (after ? one + 1 == count_ : one == 0) continue;
      moves_.push_back({DraftMoveKind::Remove, one, other, 0, {}, {}, after});
    }
  }

  // Of the moves from `before` on, keeps one.
  void keep_one_since(size_t before, Random& random) {
    if (moves_.size() <= before + 1) return;
    const auto kept =
        before + static_cast<size_t>(random.below(static_cast<int64_t>(moves_.size() - before)));
    moves_[before] = moves_[kept];
    moves_.resize(before + 1);
  }

  const Draft& draft_;
  int32_t count_;
  std::vector<DraftMove> moves_;
};

// The layer that divides a stage's work into about equal parts, with a layer left on each side.
int32_t middle_layer(const LayoutProblem& problem, Layers layers) {
  const auto work = [&](int32_t end) {
    return problem.forward({layers.first, end}) + problem.backward({layers.first, end});
  };
  int32_t middle = layers.first + 1;
  while (middle + 1 < layers.end && 2 * work(middle) < work(layers.end)) ++middle;
  return middle;
}

}  // namespace

double guess_of(const LayoutLoads& loads) {
  double latency = 0;
  for (const StageLoad& stage : loads.stages) latency += stage.both();
  for (const LinkLoad& link : loads.links) latency += link.both();
  return least_makespan(loads) + kLatencyShare * latency;
}

std::vector<DraftMove> cut_moves(const Draft& draft) {
  std::vector<DraftMove> moves;
  const auto cuts = static_cast<int32_t>(draft.loads.links.size());
  for (int32_t n = 0; n < cuts; ++n) {
    const int32_t back = layer_count(draft.stages[at(n)]);
    const int32_t forth = layer_count(draft.stages[at(n + 1)]);
    for (int32_t by = 1, next = 2; by < std::max(back, forth);) {
      if (by < forth) moves.push_back({DraftMoveKind::Cut, n, n + 1, by, {}, {}, false});
      if (by < back) moves.push_back({DraftMoveKind::Cut, n, n + 1, -by, {}, {}, false});
      by = std::exchange(next, by + next);
    }
  }
  return moves;
}

std::vector<DraftMove> device_moves(const Draft& draft, size_t most, size_t sample,
                                    Random& random) {
  MoveLister lister(draft);
  return lister.estimate() <= most ? lister.all() : lister.some(sample, random);
}

void make_move(const DraftTable& table, const DraftMove& move, Draft& draft) {
  switch (move.kind) {
    case DraftMoveKind::Cut:
      table.set_cut(draft, move.one, draft.stages[at(move.one)].layers.end + move.layers);
      break;
    case DraftMoveKind::Give:
      table.move_devices(draft, move.one, move.other, move.devices);
      break;
    case DraftMoveKind::Swap:
      table.move_devices(draft, move.other, move.one, move.back);
      table.move_devices(draft, move.one, move.other, move.devices);
      break;
    case DraftMoveKind::Exchange:
      table.exchange(draft, move.one, move.other);
      break;
    case DraftMoveKind::Insert: {
      if (move.one != kIdle) table.move_devices(draft, move.one, kIdle, move.devices);
      const Layers layers = draft.stages[at(move.other)].layers;
      table.insert(draft, move.other, middle_layer(table.problem(), layers), move.after,
                   move.devices);
      break;
    }
    case DraftMoveKind::Remove:
      table.remove(draft, move.one, !move.after, move.other);
      break;
  }
}

namespace {

// Moves cuts of a draft while less memory is missing then, or guess_of() is lower.
class CutBalance {
 public:
  CutBalance(const DraftTable& table, Draft& draft)
      : table_(table), draft_(draft), least_(guess_of(draft.loads)) {}

  // Moves a cut by some layers, if then less memory is missing, or the guess is lower.
  bool improve(int32_t cut, int32_t by) {
    if (cut < 0 || at(cut) >= draft_.loads.links.size()) return false;
    const int32_t layer = draft_.stages[at(cut)].layers.end;
    const int32_t other = layer + by;
    if (other <= draft_.stages[at(cut)].layers.first) return false;
    if (other >= draft_.stages[at(cut + 1)].layers.end) return false;
    const double missed = missing(cut);
    table_.set_cut(draft_, cut, other);
    ++bounds_;
    const double guess = guess_of(draft_.loads), misses = missing(cut);
    if (misses < missed || (misses == missed && guess < least_)) {
      least_ = guess;
      return true;
    }
    table_.set_cut(draft_, cut, layer);
    return false;
  }

  // Takes layers away from the busiest stage, many at first.
  void relieve_busiest() {
    for (int32_t step = 8; step > 0; step /= 2) {
      for (int32_t tries = 0; tries < 16; ++tries) {
        const int32_t busiest = busiest_stage(draft_.loads);
        const bool moved =
            improve(busiest, -step) || improve(busiest - 1, step) || improve(busiest, step);
        if (!moved) break;
      }
    }
  }

  int64_t bounds() const { return bounds_; }

 private:
  // In the stages on both sides of a cut.
  double missing(int32_t cut) const {
    if (!table_.problem().memory_is_limited()) return 0;
    return table_.missing(draft_, cut) + table_.missing(draft_, cut + 1);
  }

  const DraftTable& table_;
  Draft& draft_;
  double least_ = 0;
  int64_t bounds_ = 1;
};

}  // namespace

int64_t balance_cuts(const DraftTable& table, int32_t first, int32_t last, Draft& draft) {
  CutBalance balance(table, draft);
  balance.relieve_busiest();
  const int32_t end = std::min(last, static_cast<int32_t>(draft.loads.links.size()) - 1);
  bool improved = true;
  for (int32_t rounds = 0; improved && rounds < kBalanceRounds; ++rounds) {
    improved = false;
    for (int32_t cut = std::max(0, first - 1); cut <= end; ++cut) {
      for (const int32_t by : {1, -1}) {
        while (balance.improve(cut, by)) improved = true;
      }
    }
  }
  return balance.bounds();
}

}  // namespace tenuto
