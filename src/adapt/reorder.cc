#include "adapt/reorder.h"

#include <algorithm>
#include <tuple>

namespace tenuto {

namespace {

constexpr int32_t kReach = 10;      // the most places that an op is moved by
constexpr int64_t kLeastTabu = 8;   // moves for which a pair keeps its order
constexpr int64_t kMoreTabu = 12;   // and up to so many more, at random
constexpr size_t kPairs = 1 << 14;  // of ops, told apart by a hash
constexpr int64_t kPatience = 400;  // moves without a better step, before it goes back to the best

size_t at(int32_t index) { return static_cast<size_t>(index); }

}  // namespace

Reorder::Reorder(const Line& line)
    : line_(line),
      length_(3 * at(line.micros)),
      places_(line.legs.size() * length_),
      next_(line.legs.size()),
      ends_(line.legs.size()),
      behind_(line.legs.size()),
      tails_from_(line.legs.size()),
      true_from_(line.legs.size()),
      tabu_(kPairs, 0) {
  const size_t all = line.legs.size() * at(line.micros);
  forward_place_.resize(all);
  backward_place_.resize(all);
  activation_at_.resize(all);
  gradient_at_.resize(all);
}

std::optional<Duration> Reorder::improve(std::vector<Sequence>& sequences, Duration bound,
                                         int64_t most, Watch* watch) {
  set(sequences);
  if (!time_all()) return std::nullopt;
  std::fill(tabu_.begin(), tabu_.end(), 0);
  Duration best = makespan_;
  const int64_t first = made_;
  int64_t best_at = made_;
  while (made_ - first < most && best > bound && !is_over(watch)) {
    if (made_ - best_at >= kPatience) {
      set(sequences);
      time_all();
      best_at = made_;
    }
    set_tails();
    find_blocks();
    const std::optional<Move> move = choose(made_, best);
    if (!move) break;
    ++made_;
    forbid(*move, made_ + kLeastTabu + random_.below(kMoreTabu));
    make(*move);
    if (!time_all()) {
      make({move->stage, move->to, move->from});
      time_all();
      continue;
    }
    if (makespan_ >= best) continue;
    best = makespan_;
    best_at = made_;
    sequences = this->sequences();
  }
  return best;
}

void Reorder::set(const std::vector<Sequence>& sequences) {
  for (int32_t s = 0; s < line_.stages(); ++s) {
    const Leg& leg = line_.legs[at(s)];
    int32_t count[3] = {0, 0, 0};
    int64_t held = 0;
    for (size_t p = 0; p < length_; ++p) {
      const OpKind kind = sequences[at(s)][p];
      Place& place = places_[at(s) * length_ + p];
      place = {};
      place.kind = kind;
      place.micro = count[static_cast<size_t>(kind)]++;
      place.time = kind == OpKind::Forward         ? leg.forward
                   : kind == OpKind::BackwardInput ? leg.backward
                                                   : leg.weight;
      place.held = held;
      held += leg.memory.change(kind);
    }
    put(s, 0, static_cast<int32_t>(length_) - 1);
  }
  forget_all_times();
}

// Notes where the ops of these places are.
void Reorder::put(int32_t stage, int32_t from, int32_t to) {
  for (int32_t p = from; p <= to; ++p) {
    const Place& place = places_[index(stage, p)];
    if (place.kind == OpKind::Forward) forward_place_[cell(stage, place.micro)] = p;
    if (place.kind == OpKind::BackwardInput) backward_place_[cell(stage, place.micro)] = p;
  }
}

std::vector<Sequence> Reorder::sequences() const {
  std::vector<Sequence> all(line_.legs.size());
  for (size_t s = 0; s < all.size(); ++s) {
    for (size_t p = 0; p < length_; ++p) all[s].push_back(places_[s * length_ + p].kind);
  }
  return all;
}

void Reorder::forget_all_times() {
  std::fill(next_.begin(), next_.end(), 0);
  std::fill(ends_.begin(), ends_.end(), Ends{});
  std::fill(tails_from_.begin(), tails_from_.end(), static_cast<int32_t>(length_));
  pieces_.clear();
}

void Reorder::forget_times(int32_t stage, int32_t low, int32_t high) {
  size_t first = pieces_.size(), behind = pieces_.size();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (piece.stage != stage) continue;
    if (piece.to > low) first = std::min(first, i);
    if (piece.from <= high) behind = i + 1;
  }
  std::fill(true_from_.begin(), true_from_.end(), static_cast<int32_t>(length_));
  for (size_t i = pieces_.size(); i-- > first;) {
    const Piece& piece = pieces_[i];
    if (i >= behind) true_from_[at(piece.stage)] = piece.from;
    next_[at(piece.stage)] = piece.from;
    ends_[at(piece.stage)] = piece.before;
  }
  pieces_.resize(first);
  for (size_t s = 0; s < true_from_.size(); ++s) {
    tails_from_[s] = std::max(tails_from_[s], true_from_[s]);
  }
}

bool Reorder::time_all() {
  for (int32_t s = line_.stages(); s-- > 0;) {
    if (at(next_[at(s)]) < length_) queue_.push_back(s);
  }
  while (!queue_.empty()) {
    const int32_t stage = queue_.back();
    queue_.pop_back();
    run_stage(stage);
  }
  makespan_ = {};
  for (int32_t s = 0; s < line_.stages(); ++s) {
    if (at(next_[at(s)]) < length_) return false;
    makespan_ = std::max(makespan_, places_[index(s, static_cast<int32_t>(length_) - 1)].end());
  }
  return true;
}

// Whether the message that the op reads has a time.
bool Reorder::has_arrived(int32_t stage, const Place& place) const {
  if (place.kind == OpKind::Forward && stage > 0) {
    return forward_place_[cell(stage - 1, place.micro)] < next_[at(stage - 1)];
  }
  if (place.kind == OpKind::BackwardInput && stage + 1 < line_.stages()) {
    return backward_place_[cell(stage + 1, place.micro)] < next_[at(stage + 1)];
  }
  return true;
}

// Times a stage as far as the arrivals of its messages are known.
void Reorder::run_stage(int32_t stage) {
  const int32_t from = next_[at(stage)];
  const Ends before = ends_[at(stage)];
  int32_t p = from;
  Duration free_at = p == 0 ? Duration{} : places_[index(stage, p - 1)].end();
  bool down = false, up = false;
  for (; at(p) < length_; ++p) {
    Place& place = places_[index(stage, p)];
    if (!has_arrived(stage, place)) break;
    if (place.kind == OpKind::Forward) {
      place.arrival = activation_at_[cell(stage, place.micro)];
    } else if (place.kind == OpKind::BackwardInput) {
      place.arrival = gradient_at_[cell(stage, place.micro)];
    }
    place.start = std::max(free_at, place.arrival);
    free_at = place.end();
    if (!send(stage, place)) continue;
    (place.kind == OpKind::Forward ? down : up) = true;
  }
  next_[at(stage)] = p;
  if (p > from) pieces_.push_back({stage, from, p, before});
  if (up) queue_.push_back(stage - 1);
  if (down) queue_.push_back(stage + 1);
}

// True when the op sends something to another stage.
bool Reorder::send(int32_t stage, const Place& place) {
  const Leg& leg = line_.legs[at(stage)];
  Ends& ends = ends_[at(stage)];
  if (place.kind == OpKind::Forward && stage + 1 < line_.stages()) {
    ends.down = std::max(place.end(), ends.down) + leg.down_busy;
    activation_at_[cell(stage + 1, place.micro)] = ends.down + leg.down;
    return true;
  }
  if (place.kind == OpKind::BackwardInput && stage > 0) {
    ends.up = std::max(place.end(), ends.up) + leg.up_busy;
    gradient_at_[cell(stage - 1, place.micro)] = ends.up + leg.up;
    return true;
  }
  return false;
}

// Sets the tails; begins with the pieces that were timed last. Keeps tails that are right already.
void Reorder::set_tails() {
  for (int32_t s = 0; s < line_.stages(); ++s)
    behind_[at(s)] = first_messages(s, tails_from_[at(s)]);
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    const int32_t s = piece->stage;
    const int32_t to = std::min(piece->to, tails_from_[at(s)]);
    const Leg& leg = line_.legs[at(s)];
    Ends& ends = behind_[at(s)];
    const auto behind = [&](size_t next) { return places_[next].time + places_[next].tail; };
    Duration after = at(to) < length_ ? behind(index(s, to)) : Duration{};
    for (int32_t p = to; p-- > piece->from;) {
      Place& place = places_[index(s, p)];
      place.message = {};
      if (place.kind == OpKind::Forward && s + 1 < line_.stages()) {
        const size_t reader = index(s + 1, forward_place_[cell(s + 1, place.micro)]);
        ends.down = leg.down_busy + std::max(ends.down, leg.down + behind(reader));
        place.message = ends.down;
      } else if (place.kind == OpKind::BackwardInput && s > 0) {
        const size_t reader = index(s - 1, backward_place_[cell(s - 1, place.micro)]);
        ends.up = leg.up_busy + std::max(ends.up, leg.up + behind(reader));
        place.message = ends.up;
      }
      place.tail = std::max(after, place.message);
      after = place.time + place.tail;
    }
  }
  std::fill(tails_from_.begin(), tails_from_.end(), 0);
}

// For the first message that a stage sends down, and the first one up, from this place on: the time
// from it to the end of the step.
Reorder::Ends Reorder::first_messages(int32_t stage, int32_t from) const {
  Ends ends;
  bool down = stage + 1 < line_.stages(), up = stage > 0;  // still to be found
  for (int32_t p = from; at(p) < length_ && (down || up); ++p) {
    const Place& place = places_[index(stage, p)];
    if (down && place.kind == OpKind::Forward) {
      ends.down = place.message;
      down = false;
    }
    if (up && place.kind == OpKind::BackwardInput) {
      ends.up = place.message;
      up = false;
    }
  }
  return ends;
}

// Finds one critical path, from its end to its start; where it divides, takes a random branch.
void Reorder::find_blocks() {
  blocks_.clear();
  int32_t stage = 0, place = static_cast<int32_t>(length_) - 1;
  for (int32_t s = 0; s < line_.stages(); ++s) {
    if (places_[index(s, place)].end() == makespan_) stage = s;
  }
  Block block{stage, place, place};
  while (true) {
    const Place& now = places_[index(stage, place)];
    const bool waits = now.arrival == now.start && now.start > Duration{};
    const bool follows = place > 0 && places_[index(stage, place - 1)].end() == now.start;
    if (follows && (!waits || random_.below(2) == 0)) {
      block.first = --place;
      continue;
    }
    blocks_.push_back(block);
    if (!waits) return;
    std::tie(stage, place) = sender(stage, now);
    block = {stage, place, place};
  }
}

// The stage and place of the op whose message an op waited for; if earlier messages held the link,
// of the op that sent the first of them.
std::pair<int32_t, int32_t> Reorder::sender(int32_t stage, const Place& place) const {
  const bool forward = place.kind == OpKind::Forward;
  const int32_t from = forward ? stage - 1 : stage + 1;
  const Leg& leg = line_.legs[at(from)];
  const auto& where = forward ? forward_place_ : backward_place_;
  const auto& arrivals = forward ? activation_at_ : gradient_at_;
  const Duration takes = forward ? leg.down_busy + leg.down : leg.up_busy + leg.up;
  int32_t micro = place.micro;
  const auto end = [&] { return places_[index(from, where[cell(from, micro)])].end(); };
  while (micro > 0 && end() + takes < arrivals[cell(stage, micro)]) --micro;
  return {from, where[cell(from, micro)]};
}

std::optional<Reorder::Move> Reorder::choose(int64_t now, Duration best) {
  free_ = any_ = {};
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const auto [stage, first, last] = blocks_[b];
    // blocks_[0] is the path's last block: a new last op there gains nothing, nor does a new first
    // op in the path's first block.
    for (int32_t p = std::max(first, last - kReach); b > 0 && p < last; ++p) {
      consider({stage, p, last}, now, best);
      if (p + 1 < last) consider({stage, last, p}, now, best);
    }
    for (int32_t p = std::min(last, first + kReach); b + 1 < blocks_.size() && p > first; --p) {
      consider({stage, p, first}, now, best);
      if (p - 1 > first) consider({stage, first, p}, now, best);
    }
  }
  return free_.move ? free_.move : any_.move;
}

void Reorder::consider(const Move& move, int64_t now, Duration best) {
  if (!may(move)) return;
  const Duration estimated = estimate(move);
  const auto keep = [&](Best& of) {
    if (estimated > of.estimate) return;
    of.equal = estimated < of.estimate ? 1 : of.equal + 1;
    of.estimate = estimated;
    if (of.equal == 1 || random_.below(of.equal) == 0) of.move = move;
  };
  if (estimated < best || !forbidden(move, now)) keep(free_);
  keep(any_);
}

// True when the move keeps the memory limit and the op passes no op of its kind, none that it reads
// from and none that reads from it. Leaves the new order in window_.
bool Reorder::may(const Move& move) {
  const Place& moved = places_[index(move.stage, move.from)];
  const int32_t low = std::min(move.from, move.to), high = std::max(move.from, move.to);
  for (int32_t p = low; p <= high; ++p) {
    if (p == move.from) continue;
    const Place& passed = places_[index(move.stage, p)];
    if (passed.kind == moved.kind) return false;
    if (passed.micro != moved.micro) continue;
    const Place& earlier = move.from < move.to ? moved : passed;
    const Place& later = move.from < move.to ? passed : moved;
    if (static_cast<int>(later.kind) == static_cast<int>(earlier.kind) + 1) return false;
  }
  window_.clear();
  if (move.to < move.from) window_.push_back(moved);
  for (int32_t p = low; p <= high; ++p) {
    if (p != move.from) window_.push_back(places_[index(move.stage, p)]);
  }
  if (move.from < move.to) window_.push_back(moved);
  const MemoryLimit& memory = line_.legs[at(move.stage)].memory;
  int64_t held = places_[index(move.stage, low)].held;
  for (const Place& place : window_) {
    held += memory.change(place.kind);
    if (memory.most > 0 && held > memory.most) return false;
  }
  return true;
}

// How long the longest path through the ops of window_ would be.
Duration Reorder::estimate(const Move& move) {
  const int32_t low = std::min(move.from, move.to), high = std::max(move.from, move.to);
  Duration free_at = low > 0 ? places_[index(move.stage, low - 1)].end() : Duration{};
  for (Place& place : window_) {
    place.start = std::max(free_at, place.arrival);
    free_at = place.end();
  }
  Duration after{};
  if (at(high) + 1 < length_) {
    const Place& next = places_[index(move.stage, high + 1)];
    after = next.time + next.tail;
  }
  Duration longest{};
  for (auto place = window_.rbegin(); place != window_.rend(); ++place) {
    const Duration tail = std::max(after, place->message);
    longest = std::max(longest, place->end() + tail);
    after = place->time + tail;
  }
  return longest;
}

void Reorder::make(const Move& move) {
  const auto first = places_.begin() + static_cast<std::ptrdiff_t>(index(move.stage, 0));
  const int32_t low = std::min(move.from, move.to), high = std::max(move.from, move.to);
  int64_t held = (first + low)->held;
  if (move.from < move.to) {
    std::rotate(first + move.from, first + move.from + 1, first + move.to + 1);
  } else {
    std::rotate(first + move.to, first + move.from, first + move.from + 1);
  }
  for (auto place = first + low; place <= first + high; ++place) {
    place->held = held;
    held += line_.legs[at(move.stage)].memory.change(place->kind);
  }
  put(move.stage, low, high);
  forget_times(move.stage, low, high);
}

uint64_t Reorder::pair_of(int32_t stage, const Place& before, const Place& after) const {
  const auto code = [&](const Place& place) {
    return static_cast<uint64_t>(3 * place.micro) + static_cast<uint64_t>(place.kind);
  };
  uint64_t key = (static_cast<uint64_t>(stage) << 40) ^ (code(before) << 20) ^ code(after);
  key *= 0x9e3779b97f4a7c15;
  return key >> 50;
}

// True when `see` holds for any pair of ops whose order the move changes, given in the new order.
template <class See>
bool Reorder::any_pair(const Move& move, See see) const {
  const Place& moved = places_[index(move.stage, move.from)];
  const int32_t low = std::min(move.from, move.to), high = std::max(move.from, move.to);
  for (int32_t p = low; p <= high; ++p) {
    if (p == move.from) continue;
    const Place& passed = places_[index(move.stage, p)];
    const bool first = move.to < move.from;
    if (see(pair_of(move.stage, first ? moved : passed, first ? passed : moved),
            pair_of(move.stage, first ? passed : moved, first ? moved : passed))) {
      return true;
    }
  }
  return false;
}

// Until move `until` no move may put these pairs back into their present order.
void Reorder::forbid(const Move& move, int64_t until) {
  any_pair(move, [&](uint64_t, uint64_t present) {
    tabu_[present] = until;
    return false;
  });
}

bool Reorder::forbidden(const Move& move, int64_t now) const {
  return any_pair(move, [&](uint64_t changed, uint64_t) { return tabu_[changed] > now; });
}

}  // namespace tenuto
