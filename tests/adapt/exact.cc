#include "adapt/exact.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "adapt/dispatch.h"
#include "base/check.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr Duration kUnknown = Duration::max();

struct Seat {
  int32_t forwards = 0, backwards = 0, weights = 0;  // in the order so far
  Duration free_at{}, down_free_at{}, up_free_at{};
};

// A partial order: the ops of each stage that are placed, and when their messages arrive.
struct Partial {
  std::vector<Seat> seats;
  std::vector<std::vector<Duration>> activation_at, gradient_at;  // by stage and micro-batch
};

struct Next {
  int32_t stage = 0;
  OpKind kind{};
  Duration start{}, end{};
};

struct Work {
  Duration head{}, time{}, tail{};
};

// The time that a stage needs for its works if it may interrupt them and always runs the available
// one with the longest tail.
Duration interruptible(std::vector<Work> works) {
  std::sort(works.begin(), works.end(),
            [](const Work& a, const Work& b) { return a.head < b.head; });
  Duration now{}, most{};
  std::vector<Work> open;
  size_t next = 0;
  while (next < works.size() || !open.empty()) {
    if (open.empty()) now = std::max(now, works[next].head);
    while (next < works.size() && works[next].head <= now) open.push_back(works[next++]);
    const auto longest = std::max_element(
        open.begin(), open.end(), [](const Work& a, const Work& b) { return a.tail < b.tail; });
    const Duration until = next < works.size() ? works[next].head : kUnknown;
    const Duration runs = std::min(longest->time, until - now);
    now += runs;
    longest->time -= runs;
    if (longest->time > Duration{}) continue;
    most = std::max(most, now + longest->tail);
    open.erase(longest);
  }
  return most;
}

class Tree {
 public:
  Tree(const Line& line, Duration known, int64_t most_nodes)
      : line_(line), best_(known), nodes_left_(most_nodes), most_nodes_(most_nodes) {
    set_tails();
  }

  std::optional<Exact> search() {
    Partial root;
    root.seats.resize(line_.legs.size());
    root.activation_at.assign(line_.legs.size(), {});
    root.gradient_at.assign(line_.legs.size(), {});
    root.activation_at[0].assign(at(line_.micros), Duration{});
    visit(root);
    if (nodes_left_ < 0) return std::nullopt;
    return Exact{best_, most_nodes_ - nodes_left_};
  }

 private:
  // The least time from the end of each op to the end of the step.
  void set_tails() {
    const int32_t micros = line_.micros, last = line_.stages() - 1;
    forward_tail_.assign(line_.legs.size(), std::vector<Duration>(at(micros)));
    backward_tail_ = forward_tail_;
    for (int32_t k = micros - 1; k >= 0; --k) {
      const int64_t left = micros - 1 - k;
      for (int32_t s = 0; s <= last; ++s) {
        const Leg& leg = line_.legs[at(s)];
        Duration tail = left * leg.backward + (left + 1) * leg.weight;
        if (s > 0) {
          tail = std::max(tail, leg.up_busy + leg.up + line_.legs[at(s) - 1].backward +
                                    backward_tail_[at(s) - 1][at(k)]);
        }
        if (left > 0) tail = std::max(tail, leg.backward + backward_tail_[at(s)][at(k) + 1]);
        backward_tail_[at(s)][at(k)] = tail;
      }
      for (int32_t s = last; s >= 0; --s) {
        const Leg& leg = line_.legs[at(s)];
        Duration tail = left * leg.forward + (left + 1) * (leg.backward + leg.weight);
        tail = std::max(tail, leg.backward + backward_tail_[at(s)][at(k)]);
        if (s < last) {
          tail = std::max(tail, leg.down_busy + leg.down + line_.legs[at(s) + 1].forward +
                                    forward_tail_[at(s) + 1][at(k)]);
        }
        if (left > 0) tail = std::max(tail, leg.forward + forward_tail_[at(s)][at(k) + 1]);
        forward_tail_[at(s)][at(k)] = tail;
      }
    }
  }

  bool has_memory(int32_t stage, const Seat& seat) const {
    const MemoryLimit& memory = line_.legs[at(stage)].memory;
    return memory.most == 0 || memory.whole * (seat.forwards - seat.backwards + 1) +
                                       memory.late * (seat.backwards - seat.weights) <=
                                   memory.most;
  }

  // The ops that can be placed next on any stage.
  std::vector<Next> possible(const Partial& partial) const {
    std::vector<Next> all;
    for (int32_t s = 0; s < line_.stages(); ++s) {
      const Seat& seat = partial.seats[at(s)];
      const Leg& leg = line_.legs[at(s)];
      const auto add = [&](OpKind kind, Duration here, Duration time) {
        const Duration start = std::max(seat.free_at, here);
        all.push_back({s, kind, start, start + time});
      };
      const auto& activations = partial.activation_at[at(s)];
      const auto& gradients = partial.gradient_at[at(s)];
      if (at(seat.forwards) < activations.size() && has_memory(s, seat)) {
        add(OpKind::Forward, activations[at(seat.forwards)], leg.forward);
      }
      if (at(seat.backwards) < gradients.size()) {
        add(OpKind::BackwardInput, gradients[at(seat.backwards)], leg.backward);
      }
      if (seat.weights < seat.backwards) add(OpKind::BackwardWeight, {}, leg.weight);
    }
    return all;
  }

  Partial placed(const Partial& before, const Next& next) const {
    Partial partial = before;
    Seat& seat = partial.seats[at(next.stage)];
    const Leg& leg = line_.legs[at(next.stage)];
    seat.free_at = next.end;
    if (next.kind == OpKind::Forward) {
      ++seat.forwards;
      if (next.stage + 1 == line_.stages()) {
        partial.gradient_at[at(next.stage)].push_back(next.end);
      } else {
        seat.down_free_at = std::max(next.end, seat.down_free_at) + leg.down_busy;
        partial.activation_at[at(next.stage) + 1].push_back(seat.down_free_at + leg.down);
      }
    } else if (next.kind == OpKind::BackwardInput) {
      ++seat.backwards;
      if (next.stage > 0) {
        seat.up_free_at = std::max(next.end, seat.up_free_at) + leg.up_busy;
        partial.gradient_at[at(next.stage) - 1].push_back(seat.up_free_at + leg.up);
      }
    } else {
      ++seat.weights;
    }
    return partial;
  }

  // The earliest starts of the ops not placed yet, by stage and micro-batch.
  struct Heads {
    std::vector<std::vector<Duration>> forward, backward;
  };
  Heads heads_of(const Partial& partial) const {
    const int32_t last = line_.stages() - 1;
    Heads heads;
    heads.forward.assign(line_.legs.size(), std::vector<Duration>(at(line_.micros)));
    heads.backward = heads.forward;
    std::vector<Seat> seats = partial.seats;  // free_at: when the next op of the kind could start
    std::vector<Duration> backward_free(seats.size());
    for (size_t s = 0; s < seats.size(); ++s) backward_free[s] = seats[s].free_at;
    for (int32_t k = 0; k < line_.micros; ++k) {
      for (int32_t s = 0; s <= last; ++s) {
        if (k < partial.seats[at(s)].forwards) continue;
        Duration head = seats[at(s)].free_at;
        if (at(k) < partial.activation_at[at(s)].size()) {
          head = std::max(head, partial.activation_at[at(s)][at(k)]);
        } else {
          Seat& before = seats[at(s) - 1];
          const Leg& leg = line_.legs[at(s) - 1];
          const Duration sent = heads.forward[at(s) - 1][at(k)] + leg.forward;
          before.down_free_at = std::max(sent, before.down_free_at) + leg.down_busy;
          head = std::max(head, before.down_free_at + leg.down);
        }
        const MemoryLimit& memory = line_.legs[at(s)].memory;
        const int64_t most = memory.most == 0 ? line_.micros : memory.most / memory.whole;
        if (k >= most) {
          const auto given_back = static_cast<int32_t>(k - most);
          if (given_back >= partial.seats[at(s)].backwards) {
            const Duration end = heads.backward[at(s)][at(given_back)] + line_.legs[at(s)].backward;
            head = std::max(head, end);
          }
        }
        heads.forward[at(s)][at(k)] = head;
        seats[at(s)].free_at = head + line_.legs[at(s)].forward;
      }
      for (int32_t s = last; s >= 0; --s) {
        if (k < partial.seats[at(s)].backwards) continue;
        Duration head = backward_free[at(s)];
        if (at(k) < partial.gradient_at[at(s)].size()) {
          head = std::max(head, partial.gradient_at[at(s)][at(k)]);
        } else {
          head = std::max(head, heads.forward[at(s)][at(k)] + line_.legs[at(s)].forward);
        }
        if (s < last && at(k) >= partial.gradient_at[at(s)].size()) {
          Seat& behind = seats[at(s) + 1];
          const Leg& leg = line_.legs[at(s) + 1];
          const Duration sent = heads.backward[at(s) + 1][at(k)] + leg.backward;
          behind.up_free_at = std::max(sent, behind.up_free_at) + leg.up_busy;
          head = std::max(head, behind.up_free_at + leg.up);
        }
        heads.backward[at(s)][at(k)] = head;
        backward_free[at(s)] = head + line_.legs[at(s)].backward;
      }
    }
    return heads;
  }

  Duration bound(const Partial& partial) const {
    const Heads heads = heads_of(partial);
    Duration most{};
    for (int32_t s = 0; s < line_.stages(); ++s) {
      const Seat& seat = partial.seats[at(s)];
      const Leg& leg = line_.legs[at(s)];
      std::vector<Work> works;
      for (int32_t k = seat.forwards; k < line_.micros; ++k) {
        works.push_back({heads.forward[at(s)][at(k)], leg.forward, forward_tail_[at(s)][at(k)]});
      }
      for (int32_t k = seat.backwards; k < line_.micros; ++k) {
        const Duration head = heads.backward[at(s)][at(k)];
        works.push_back({head, leg.backward, backward_tail_[at(s)][at(k)]});
      }
      for (int32_t k = seat.weights; k < line_.micros; ++k) {
        const Duration ready =
            k < seat.backwards ? seat.free_at : heads.backward[at(s)][at(k)] + leg.backward;
        works.push_back({ready, leg.weight, {}});
      }
      most = std::max({most, seat.free_at, interruptible(std::move(works))});
    }
    return most;
  }

  // True when the search has seen an order of the same ops that is nowhere later: every
  // continuation of this one could also continue that one.
  bool dominated(const Partial& partial) {
    uint64_t key = 0;
    std::vector<Duration> front;
    for (size_t s = 0; s < partial.seats.size(); ++s) {
      const Seat& seat = partial.seats[s];
      for (const int32_t count : {seat.forwards, seat.backwards, seat.weights}) {
        key = key << 4 | static_cast<uint64_t>(count);
      }
      // A stage uses a message or a link only when the stage itself is free, so a time before
      // `free_at` counts as `free_at`.
      front.push_back(seat.free_at);
      front.push_back(std::max(seat.free_at, seat.down_free_at));
      front.push_back(std::max(seat.free_at, seat.up_free_at));
      for (size_t k = at(seat.forwards); k < partial.activation_at[s].size(); ++k) {
        front.push_back(std::max(seat.free_at, partial.activation_at[s][k]));
      }
      for (size_t k = at(seat.backwards); k < partial.gradient_at[s].size(); ++k) {
        front.push_back(std::max(seat.free_at, partial.gradient_at[s][k]));
      }
    }
    auto& seen = seen_[key];
    const auto no_later = [](const std::vector<Duration>& a, const std::vector<Duration>& b) {
      return std::equal(a.begin(), a.end(), b.begin(),
                        [](Duration x, Duration y) { return x <= y; });
    };
    for (const auto& other : seen) {
      if (no_later(other, front)) return true;
    }
    std::erase_if(seen, [&](const auto& other) { return no_later(front, other); });
    seen.push_back(std::move(front));
    return false;
  }

  void visit(const Partial& partial) {
    if (--nodes_left_ < 0) return;
    const std::vector<Next> all = possible(partial);
    if (all.empty()) {
      finish(partial);
      return;
    }
    const Next& first = *std::min_element(
        all.begin(), all.end(), [](const Next& a, const Next& b) { return a.end < b.end; });
    std::vector<std::pair<Duration, Partial>> children;
    for (const Next& next : all) {
      if (next.stage != first.stage) continue;
      if (next.start >= first.end && next.kind != first.kind) continue;
      Partial child = placed(partial, next);
      const Duration least = bound(child);
      if (least < best_) children.emplace_back(least, std::move(child));
    }
    std::stable_sort(children.begin(), children.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [least, child] : children) {
      if (least < best_ && !dominated(child)) visit(child);
    }
  }

  void finish(const Partial& partial) {
    Duration makespan{};
    for (const Seat& seat : partial.seats) {
      CHECK(seat.weights == line_.micros, "an order that is not whole has a next op");
      makespan = std::max(makespan, seat.free_at);
    }
    best_ = std::min(best_, makespan);
  }

  const Line& line_;
  Duration best_;
  int64_t nodes_left_;
  const int64_t most_nodes_;
  std::vector<std::vector<Duration>> forward_tail_, backward_tail_;
  std::unordered_map<uint64_t, std::vector<std::vector<Duration>>> seen_;
};

// Every order of one stage within its memory limit.
void extend(const Leg& leg, int32_t micros, Sequence& now, std::vector<Sequence>& all) {
  if (now.size() == 3 * at(micros)) {
    if (fits_memory(leg, now)) all.push_back(now);
    return;
  }
  const auto count = [&](OpKind kind) { return std::count(now.begin(), now.end(), kind); };
  const auto forwards = count(OpKind::Forward), backwards = count(OpKind::BackwardInput);
  const auto weights = count(OpKind::BackwardWeight);
  const auto with = [&](OpKind kind) {
    now.push_back(kind);
    extend(leg, micros, now, all);
    now.pop_back();
  };
  if (forwards < micros) with(OpKind::Forward);
  if (backwards < forwards) with(OpKind::BackwardInput);
  if (weights < backwards) with(OpKind::BackwardWeight);
}

}  // namespace

std::optional<Exact> exact_makespan(const Line& line, Duration known, int64_t most_nodes) {
  CHECK(line.stages() <= 4 && line.micros <= 15, "a tiny line");
  for (const Leg& leg : line.legs)
    CHECK(leg.memory.late <= leg.memory.whole, "memory that shrinks");
  return Tree(line, known, most_nodes).search();
}

Duration enumerated_makespan(const Line& line) {
  std::vector<std::vector<Sequence>> orders(line.legs.size());
  std::vector<Sequence> now(line.legs.size());
  for (size_t s = 0; s < orders.size(); ++s) {
    Sequence empty;
    extend(line.legs[s], line.micros, empty, orders[s]);
    CHECK(!orders[s].empty(), "memory for one micro-batch");
  }
  Duration best = kUnknown;
  std::vector<size_t> chosen(orders.size(), 0);
  while (true) {
    for (size_t s = 0; s < orders.size(); ++s) now[s] = orders[s][chosen[s]];
    if (const auto time = follow(line, now)) best = std::min(best, *time);
    size_t s = 0;
    while (s < orders.size() && ++chosen[s] == orders[s].size()) chosen[s++] = 0;
    if (s == orders.size()) return best;
  }
}

}  // namespace tenuto
