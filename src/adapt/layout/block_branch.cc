#include <algorithm>

#include "adapt/layout/block_chain.h"

namespace tenuto {

namespace {

// The search recurses once for each choice, so it takes no steps with more ops than this.
constexpr size_t kMostOps = 1024;
// Bounds are sums in another order than times, so they may exceed them by rounding errors.
constexpr double kRounding = 1e-12;

// What is begun and known of a place.
struct Progress {
  double free = 0;                               // when the last op ends
  double hop_forward = 0, hop_backward = 0;      // when the hops that leave the place are free
  size_t forwards = 0, backwards = 0;            // begun
  size_t forwards_here = 0, backwards_here = 0;  // whose inputs have a known time
};

// Times that every order needs.
struct PlaceBound {
  double rest = 0;  // from the end of the last backward to the end of the step
  double last = 0;  // from the start of the last forward to the end of the step
};

class Branch {
 public:
  Branch(const BlockChain& chain, const OrderLimits& limits, int64_t nodes, FoundOrders& found)
      : chain_(chain),
        limits_(limits),
        nodes_left_(nodes),
        found_(found),
        count_(chain.places.size()),
        states_(count_),
        bounds_(count_),
        starts_(count_),
        forward_ready_(count_ * chain.micros),
        backward_ready_(count_ * chain.micros),
        orders_(chain.all_ops()) {
    states_[0].forwards_here = chain.micros;
    double rest = 0;
    for (size_t p = 0; p < count_; ++p) {
      const BlockPlace& place = chain.places[p];
      bounds_[p].rest = std::max(rest, place.reduction);
      rest = bounds_[p].rest + place.backward + (p + 1 < count_ ? chain.hops[p].backward : 0);
    }
    double down = 0;  // from the start of a forward to the end of the last place's backward
    for (size_t p = count_; p-- > 0;) {
      const BlockPlace& place = chain.places[p];
      down +=
          p + 1 < count_ ? place.forward + chain.hops[p].forward : place.forward + place.backward;
      bounds_[p].last = down + bounds_[count_ - 1].rest;
    }
  }

  // True when all orders have been looked at.
  bool run() { return extend(); }

 private:
  // An op that has been run, with what is needed to take it back.
  struct Ran {
    size_t place = 0;
    bool backward = false;
    double free = 0, hop = 0;  // before
  };

  double forward_start(size_t p) const {
    const Progress& state = states_[p];
    if (state.forwards == state.forwards_here ||
        state.forwards - state.backwards >= static_cast<size_t>(limits_.most[p])) {
      return kNeverEnds;
    }
    return std::max(state.free, forward_ready_[p * chain_.micros + state.forwards]);
  }
  double backward_start(size_t p) const {
    const Progress& state = states_[p];
    if (state.backwards == state.backwards_here) return kNeverEnds;
    return std::max(state.free, backward_ready_[p * chain_.micros + state.backwards]);
  }

  void run_op(size_t p, bool backward) {
    Progress& state = states_[p];
    const BlockPlace& place = chain_.places[p];
    orders_[p * chain_.ops() + state.forwards + state.backwards] = backward ? 1 : 0;
    ran_.push_back({p, backward, state.free, backward ? state.hop_backward : state.hop_forward});
    if (backward) {
      state.free = backward_start(p) + place.backward;
      ++state.backwards;
      if (p == 0) return;
      state.hop_backward = std::max(state.hop_backward, state.free) + chain_.hops[p - 1].backward;
      backward_ready_[(p - 1) * chain_.micros + states_[p - 1].backwards_here++] =
          state.hop_backward;
      return;
    }
    state.free = forward_start(p) + place.forward;
    ++state.forwards;
    if (p + 1 == count_) {
      backward_ready_[p * chain_.micros + state.backwards_here++] = state.free;
      return;
    }
    state.hop_forward = std::max(state.hop_forward, state.free) + chain_.hops[p].forward;
    forward_ready_[(p + 1) * chain_.micros + states_[p + 1].forwards_here++] = state.hop_forward;
  }

  void take_back(size_t ops) {
    for (; ran_.size() > ops; ran_.pop_back()) {
      const Ran& ran = ran_.back();
      Progress& state = states_[ran.place];
      state.free = ran.free;
      if (ran.backward) {
        --state.backwards;
        state.hop_backward = ran.hop;
        if (ran.place > 0) --states_[ran.place - 1].backwards_here;
      } else {
        --state.forwards;
        state.hop_forward = ran.hop;
        if (ran.place + 1 == count_) {
          --state.backwards_here;
        } else {
          --states_[ran.place + 1].forwards_here;
        }
      }
    }
  }

  // No order that begins like the present one is faster. A place does one thing at a time: its
  // work that is left; or its forwards, after which the last micro-batch goes on; or its backwards.
  double bound() {
    double least = 0, forward = 0;
    for (size_t p = 0; p < count_; ++p) {
      const Progress& state = states_[p];
      const BlockPlace& place = chain_.places[p];
      // Without a known time, the next forward is the same micro-batch as that of the place before.
      if (state.forwards < state.forwards_here) {
        forward = forward_ready_[p * chain_.micros + state.forwards];
      }
      starts_[p] = forward = std::max(forward, state.free);
      const size_t left = chain_.micros - state.forwards;
      if (left > 0) {
        least = std::max(least,
                         forward + static_cast<double>(left - 1) * place.forward + bounds_[p].last);
      }
      forward += place.forward;
      if (p + 1 == count_) break;
      forward = std::max(forward, state.hop_forward) + chain_.hops[p].forward;
      if (left > 1) {
        least = std::max(least, forward + static_cast<double>(left - 1) * chain_.hops[p].forward +
                                    bounds_[p + 1].last);
      }
    }
    double backward = forward;
    for (size_t p = count_; p-- > 0;) {
      const Progress& state = states_[p];
      const BlockPlace& place = chain_.places[p];
      if (state.backwards < state.backwards_here) {
        backward = backward_ready_[p * chain_.micros + state.backwards];
      }
      backward = std::max(backward, state.free);
      const auto forwards = static_cast<double>(chain_.micros - state.forwards);
      const auto backwards = static_cast<double>(chain_.micros - state.backwards);
      if (backwards == 0) {
        least = std::max(least, state.free + bounds_[p].rest);
        continue;
      }
      const double first = forwards > 0 ? std::min(starts_[p], backward) : backward;
      const double work = backwards * place.backward + bounds_[p].rest;
      least = std::max({least, backward + work, first + forwards * place.forward + work});
      backward += place.backward;
      if (p == 0) break;
      backward = std::max(backward, state.hop_backward) + chain_.hops[p - 1].backward;
    }
    return least;
  }

  // The ops of which the next one is chosen.
  struct Choice {
    size_t place = 0;
    bool forward = false, backward = false;
    bool backward_first = false;
  };
  Choice choice() const {
    Choice choice;
    double first_end = kNeverEnds;
    for (size_t p = 0; p < count_; ++p) {
      const double end = std::min(forward_start(p) + chain_.places[p].forward,
                                  backward_start(p) + chain_.places[p].backward);
      if (end < first_end) {
        first_end = end;
        choice.place = p;
      }
    }
    if (first_end == kNeverEnds) return choice;
    const double forward = forward_start(choice.place), backward = backward_start(choice.place);
    const BlockPlace& place = chain_.places[choice.place];
    // An op that takes no time ends when it starts; it is tried as well.
    choice.forward = forward < first_end || forward + place.forward <= first_end;
    choice.backward = backward < first_end || backward + place.backward <= first_end;
    choice.backward_first = backward <= forward;
    // At the last place a forward before a waiting backward delays it, and gains nothing.
    if (choice.place + 1 == count_ && choice.backward && choice.backward_first) {
      choice.forward = false;
    }
    return choice;
  }

  bool extend() {
    const size_t before = ran_.size();
    bool complete = true;
    if (bound() < found_.makespan * (1 - kRounding)) {
      Choice next = choice();
      while (next.forward != next.backward) {
        run_op(next.place, next.backward);
        next = choice();
      }
      if (!next.forward) {
        keep_result();
      } else if (nodes_left_-- <= 0) {
        complete = false;
      } else {
        complete =
            branch(next.place, next.backward_first) && branch(next.place, !next.backward_first);
      }
    }
    take_back(before);
    return complete;
  }
  bool branch(size_t place, bool backward) {
    if (found_.makespan <= limits_.least) return true;
    const size_t before = ran_.size();
    run_op(place, backward);
    const bool complete = extend();
    take_back(before);
    return complete;
  }

  void keep_result() {
    if (ran_.size() < orders_.size()) return;
    double latest = 0;
    for (size_t p = 0; p < count_; ++p) {
      latest = std::max(latest, states_[p].free + chain_.places[p].reduction);
    }
    if (latest < found_.makespan) found_ = {orders_, latest};
  }

  const BlockChain& chain_;
  const OrderLimits& limits_;
  int64_t nodes_left_;
  FoundOrders& found_;
  const size_t count_;
  std::vector<Progress> states_;
  std::vector<PlaceBound> bounds_;
  std::vector<double> starts_;  // of the next forward of each place, at least
  std::vector<double> forward_ready_, backward_ready_;  // [place * micros + micro]
  PlaceOrders orders_;
  std::vector<Ran> ran_;
};

}  // namespace

bool branch_orders(const BlockChain& chain, const OrderLimits& limits, int64_t nodes,
                   FoundOrders& found) {
  if (found.makespan <= limits.least) return true;
  if (chain.all_ops() > kMostOps) return false;
  return Branch(chain, limits, nodes, found).run();
}

}  // namespace tenuto
