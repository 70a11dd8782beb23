#include "sim/marks.h"

#include <algorithm>
#include <cstdint>

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr int32_t kChoices = 32;  // numbers of ended input gradients that are tried one by one

// When the next message has left its link, which carries one at a time and is free at `free_at`.
// Moves `free_at` to that time.
Duration leave(Duration& free_at, Duration ready, Duration busy) {
  free_at = std::max(free_at, ready) + busy;
  return free_at;
}

// The memory limit of a stage as counts: how many ops must have ended before a forward starts.
class Places {
 public:
  Places(const Leg& leg, int32_t micros, bool trains)
      : memory_(leg.memory), whole_(trains ? std::max(1, leg.memory.most_whole(micros)) : micros) {
    // A bound may assume that less memory is used than really is.
    memory_.late = std::min(memory_.late, memory_.whole);
    // If not even one micro-batch fits, no order runs, and any bound holds.
    for (int32_t k = 0; k < micros; ++k) {
      least_.push_back(k < whole_ ? 0 : std::min(k, weights(k, k)));
    }
  }
  // Micro-batches that can be between the start of their forward and the end of their input
  // gradient at once.
  int32_t whole() const { return whole_; }
  // How many weight gradients must have ended before the forward of `micro` starts, if `backwards`
  // input gradients have ended by then. A result above `backwards` means that the forward cannot
  // start: even all weight gradients that can have ended do not free enough.
  int32_t weights(int32_t micro, int32_t backwards) const {
    const int64_t over =
        memory_.whole * (micro + 1 - backwards) + memory_.late * backwards - memory_.most;
    if (memory_.most == 0 || over <= 0) return 0;
    return static_cast<int32_t>(std::min<int64_t>(
        memory_.late == 0 ? INT32_MAX : (over + memory_.late - 1) / memory_.late, backwards + 1));
  }
  // The fewest weight gradients that must have ended before the forward of `micro` starts, however
  // many input gradients have ended.
  int32_t least_weights(int32_t micro) const { return least_[at(micro)]; }

 private:
  MemoryLimit memory_;
  int32_t whole_;
  std::vector<int32_t> least_;
};

// How many ops of each kind, the first ones, must have ended before some op starts.
struct Done {
  int32_t forwards = 0, backwards = 0, weights = 0;
};

// A lower bound on when a worker has done the work of the first n ops. The starts of the ops are
// added one after the other; each op brings `each` of work, which cannot begin before that start.
// So end(n) is the largest start(i) + (n - i) x `each` over i < n.
class Peaks {
 public:
  explicit Peaks(Duration each) : each_(each) {}
  // The next op starts at `start`.
  void add(Duration start) {
    const Duration own = start - static_cast<int64_t>(most_.size()) * each_;
    most_.push_back(most_.empty() ? own : std::max(own, most_.back()));
  }
  // The bound for the work of the first `count` ops.
  Duration end(int32_t count) const {
    return count <= 0 ? Duration{} : most_[at(count) - 1] + count * each_;
  }
  // The bound if `more` work follows; zero if `count` is zero.
  Duration end(int32_t count, Duration more) const {
    return count <= 0 ? Duration{} : end(count) + more;
  }

 private:
  Duration each_;
  std::vector<Duration> most_;
};

// The heads of one stage, found micro-batch by micro-batch, first the forward, then the input
// gradient.
//
// No op of micro-batches k, k + 1, ... starts before forward k. So those of them that must have
// ended before an op X starts all run between the start of forward k and the start of X. In the
// same way, input gradient k, the later input gradients, their weight gradients, and the forwards
// that do not fit into memory before input gradient k all run after the start of input gradient k.
// Each k gives a bound on the start of X; the head of X is the largest one. A bound that leaves
// work out still holds, so each mixture of kinds of ops has its own Peaks, and the largest result
// counts.
class StageHeads {
 public:
  StageHeads(const Leg& leg, int32_t micros, bool trains)
      : leg_(leg), trains_(trains), places_(leg, micros, trains), marks_(at(micros)) {}

  // The earliest start of a forward whose activation comes at `arrival`.
  Duration forward(int32_t micro, Duration arrival) {
    const Duration head = std::max(arrival, memory_for(micro));
    for (Peaks* peaks : {&f_, &fb_, &fbw_}) peaks->add(head);
    return marks_.forward[at(micro)] = head;
  }
  // The earliest start of an input gradient whose gradient comes at `arrival`.
  Duration backward(int32_t micro, Duration arrival) {
    const Done done{micro + 1, micro, places_.least_weights(micro)};
    const Duration head = std::max(arrival, when(done));
    for (Peaks* peaks : {&b_, &bw_, &bf_, &bwf_}) peaks->add(head);
    return marks_.backward[at(micro)] = head;
  }
  // The heads of all, with those of the weight gradients.
  const Marks& all() {
    if (!trains_) return marks_;
    for (size_t k = 0; k < marks_.weight.size(); ++k) {
      const auto micro = static_cast<int32_t>(k);
      marks_.weight[k] = when({micro + 1, micro + 1, micro});
    }
    return marks_;
  }

 private:
  // The earliest time at which a forward can fit into memory. The fewer input gradients have ended,
  // the more weight gradients must have; takes the earliest of these choices.
  Duration memory_for(int32_t micro) const {
    if (micro < places_.whole()) return when({micro, 0, 0});
    Duration best = when({micro, micro, micro});
    const int32_t first = micro + 1 - places_.whole(), least = places_.least_weights(micro);
    for (int32_t backwards = first; backwards <= micro; ++backwards) {
      if (backwards > 0 && marks_.backward[at(backwards) - 1] + leg_.backward >= best) break;
      // After kChoices tries, one choice replaces all that are left. It needs the fewest weight
      // gradients, so the bound still holds.
      const bool rest = backwards - first >= kChoices;
      const int32_t weights = rest ? least : places_.weights(micro, backwards);
      if (weights <= backwards) best = std::min(best, when({micro, backwards, weights}));
      if (weights == least) break;
    }
    return best;
  }

  // The earliest time at which these ops can all have ended; forwards >= backwards >= weights.
  Duration when(const Done& done) const {
    const int32_t f = done.forwards, b = done.backwards, w = done.weights;
    const int32_t beyond = f - places_.whole();
    const auto more = [](Duration each, int32_t count) { return std::max(0, count) * each; };
    Duration most = std::max({f_.end(f), fb_.end(b, more(leg_.forward, f - b)),
                              fbw_.end(w, more(leg_.forward, f - w) + more(leg_.backward, b - w)),
                              b_.end(b), bw_.end(w, more(leg_.backward, b - w))});
    if (beyond > 0) {
      const int32_t first = std::min(b, beyond), all = std::min(w, beyond);
      most = std::max(
          {most,
           bf_.end(first, more(leg_.backward, b - first) + more(leg_.forward, beyond - first)),
           bwf_.end(all, more(leg_.backward, b - all) + more(leg_.weight, w - all) +
                             more(leg_.forward, beyond - all))});
    }
    return most;
  }

  const Leg& leg_;
  const bool trains_;
  Places places_;
  Marks marks_;
  // Work after a forward (f_, fb_, fbw_) and after an input gradient (b_, bw_, bf_, bwf_). The
  // letters are the kinds of ops that count: forward, backward (input gradient), weight gradient.
  Peaks f_{leg_.forward}, fb_{leg_.forward + leg_.backward},
      fbw_{leg_.forward + leg_.backward + leg_.weight}, b_{leg_.backward},
      bw_{leg_.backward + leg_.weight}, bf_{leg_.backward + leg_.forward},
      bwf_{leg_.backward + leg_.weight + leg_.forward};
};

// A lower bound on the time from op k on: from(k) is the largest (n - k) x `each` + besides(n) over
// the added ops n. Ops are added with falling numbers.
class Ahead {
 public:
  explicit Ahead(Duration each) : each_(each) {}
  // Adds op `number` with `besides` more time.
  void add(int32_t number, Duration besides) { most_ = std::max(most_, number * each_ + besides); }
  // The longest time from op `number` on; zero when no op has been added.
  Duration from(int32_t number) const {
    return most_ == kNone ? Duration{} : most_ - number * each_;
  }

 private:
  static constexpr Duration kNone = Duration::min();
  Duration each_;
  Duration most_ = kNone;
};

// The tails of one stage, found from the last micro-batch to the first, first the input gradient,
// then the forward. The tail of an op X is at least the work that must run between X and a later op
// Y, plus the tail of Y; the largest such sum over all Y counts.
//
// If X is a forward and Y the forward or the input gradient of a later micro-batch j, that work is:
// the forwards up to j; the input gradients up to j, or, if Y is the forward, those that must end
// before j fits into memory; and the weight gradients that must end before j fits. If X and Y are
// input gradients, it is the same work, but of the forwards only those that do not fit into memory
// before X.
class StageTails {
 public:
  StageTails(const Leg& leg, int32_t micros, bool trains)
      : leg_(leg),
        micros_(micros),
        trains_(trains),
        places_(leg, micros, trains),
        marks_(at(micros)) {}

  // The tail of a forward; `behind`: the time from its end that its own micro-batch still needs.
  Duration forward(int32_t micro, Duration behind) {
    const int32_t left = micros_ - 1 - micro;
    Duration tail = std::max(behind, left * leg_.forward);
    if (trains_) {
      tail = std::max({tail, left * leg_.forward + (left + 1) * (leg_.backward + leg_.weight),
                       backwards_.from(micro), backwards_late_.from(micro)});
    }
    for (const Ahead* ahead : {&forwards_, &forwards_late_, &held_, &held_late_}) {
      tail = std::max(tail, ahead->from(micro));
    }
    marks_.forward[at(micro)] = tail;
    const Duration weights = (places_.least_weights(micro) - micro) * leg_.weight;
    const Duration besides = (1 - places_.whole()) * leg_.backward + tail;
    forwards_.add(micro, tail);
    forwards_late_.add(micro, weights + tail);
    held_.add(micro, besides);
    held_late_.add(micro, weights + besides);
    return tail;
  }

  // The tail of an input gradient.
  Duration backward(int32_t micro, Duration behind) {
    const int32_t left = micros_ - 1 - micro, whole = places_.whole();
    Duration tail = std::max(behind, left * leg_.backward + (left + 1) * leg_.weight);
    if (const int32_t next = micro + whole; next < micros_) {
      // `next` is the first forward that does not fit into memory before this op; its tail includes
      // the later forwards.
      tail = std::max(tail, until_free(micro, next) + leg_.forward + marks_.forward[at(next)]);
      const Duration besides =
          (1 - whole) * leg_.forward - whole * leg_.backward + marks_.forward[at(next)];
      beyond_.add(next, besides);
      beyond_late_.add(next, (places_.least_weights(next) - next) * leg_.weight + besides);
      tail = std::max({tail, beyond_.from(micro), beyond_late_.from(micro)});
    }
    for (const Ahead* ahead : {&others_, &others_late_, &others_held_, &others_held_late_}) {
      tail = std::max(tail, ahead->from(micro));
    }
    marks_.backward[at(micro)] = tail;
    const Duration weights = (places_.least_weights(micro) - micro) * leg_.weight;
    const Duration places = (1 - whole) * leg_.forward;
    others_.add(micro, tail);
    others_late_.add(micro, weights + tail);
    others_held_.add(micro, places + tail);
    others_held_late_.add(micro, weights + places + tail);
    backwards_.add(micro, leg_.backward + tail);
    backwards_late_.add(micro, weights + leg_.backward + tail);
    return tail;
  }

  // The tails of all ops. The tail of a weight gradient covers the later weight gradients and the
  // forwards that fit into memory only after it.
  const Marks& all() {
    Ahead needing(leg_.weight);
    int32_t j = micros_;
    for (int32_t k = micros_; k-- > 0;) {
      for (; j > 0 && places_.least_weights(j - 1) > k; --j) {
        needing.add(places_.least_weights(j - 1) - 1, leg_.forward + marks_.forward[at(j) - 1]);
      }
      marks_.weight[at(k)] = std::max((micros_ - 1 - k) * leg_.weight, needing.from(k));
    }
    return marks_;
  }

 private:
  // The least time between the end of input gradient `micro` and the start of forward `next`, which
  // does not fit into memory before that end: the time of the input gradients that end in between
  // and of the weight gradients that are then still needed, minimized over the number of input
  // gradients that end in between.
  Duration until_free(int32_t micro, int32_t next) const {
    Duration least = (next - micro - 1) * leg_.backward + (next - micro) * leg_.weight;
    for (int32_t backwards = micro + 1; backwards <= next; ++backwards) {
      const Duration others = (backwards - micro - 1) * leg_.backward;
      if (others >= least) break;
      const int32_t weights = places_.weights(next, backwards);
      if (weights > backwards) continue;
      least = std::min(least, others + std::max(0, weights - micro) * leg_.weight);
    }
    return least;
  }

  const Leg& leg_;
  const int32_t micros_;
  const bool trains_;
  Places places_;
  Marks marks_;
  // After a forward: input gradients (backwards_), forwards alone (forwards_), forwards with the
  // input gradients that they need to fit into memory (held_). The ones named late_ also count the
  // weight gradients that are needed.
  Ahead backwards_{leg_.forward + leg_.backward},
      backwards_late_{leg_.forward + leg_.backward + leg_.weight}, forwards_{leg_.forward},
      forwards_late_{leg_.forward + leg_.weight}, held_{leg_.forward + leg_.backward},
      held_late_{leg_.forward + leg_.backward + leg_.weight};
  // After an input gradient: other input gradients (others_), these with the forwards between
  // (others_held_), forwards that do not fit before (beyond_).
  Ahead others_{leg_.backward}, others_late_{leg_.backward + leg_.weight},
      others_held_{leg_.backward + leg_.forward},
      others_held_late_{leg_.backward + leg_.forward + leg_.weight},
      beyond_{leg_.backward + leg_.forward},
      beyond_late_{leg_.backward + leg_.forward + leg_.weight};
};

}  // namespace

std::vector<Marks> heads_of(const Route& route) {
  const std::vector<Leg>& legs = route.legs;
  const auto micros = static_cast<int32_t>(route.micros.size());
  std::vector<StageHeads> heads;
  for (const Leg& leg : legs) heads.emplace_back(leg, micros, route.trains);
  std::vector<Duration> down(legs.size()), up(legs.size());  // when the links are free
  for (int32_t k = 0; k < micros; ++k) {
    Duration arrival{};
    for (size_t s = 0; s < legs.size(); ++s) {
      const Duration end = heads[s].forward(k, arrival) + legs[s].forward;
      arrival = leave(down[s], end, legs[s].down_busy) + legs[s].down;
    }
    arrival = {};
    for (size_t s = legs.size(); route.trains && s-- > 0;) {
      const Duration end = heads[s].backward(k, arrival) + legs[s].backward;
      arrival = leave(up[s], end, legs[s].up_busy) + legs[s].up;
    }
  }
  std::vector<Marks> marks;
  for (StageHeads& of : heads) marks.push_back(of.all());
  return marks;
}

std::vector<Marks> tails_of(const Route& route) {
  const std::vector<Leg>& legs = route.legs;
  const auto micros = static_cast<int32_t>(route.micros.size());
  std::vector<StageTails> tails;
  for (const Leg& leg : legs) tails.emplace_back(leg, micros, route.trains);
  // A message's tail counts from when its link takes it: later messages need the link too.
  std::vector<Duration> down(legs.size()), up(legs.size());
  const auto send = [](Duration& link, Duration busy, Duration latency, Duration behind) {
    return link = busy + std::max(link, latency + behind);
  };
  for (int32_t k = micros - 1; k >= 0; --k) {
    Duration behind{};
    for (size_t s = 0; route.trains && s < legs.size(); ++s) {
      behind = tails[s].backward(k, behind) + legs[s].backward;
      if (s + 1 == legs.size()) break;
      behind = send(up[s + 1], legs[s + 1].up_busy, legs[s + 1].up, behind);
    }
    behind = {};
    for (size_t s = legs.size(); s-- > 0;) {
      behind = tails[s].forward(k, behind) + legs[s].forward;
      if (s > 0) behind = send(down[s - 1], legs[s - 1].down_busy, legs[s - 1].down, behind);
    }
  }
  std::vector<Marks> marks;
  for (StageTails& of : tails) marks.push_back(of.all());
  return marks;
}

}  // namespace tenuto
