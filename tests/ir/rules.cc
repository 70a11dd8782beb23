#include "ir/rules.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// How far a micro-batch is at a stage.
enum class Done : uint8_t { Nothing, Arrival, Forward, Backward, Weight };

// The whole state in one word: for each stage and micro-batch three bits for its progress, and two
// for its place among the messages in transit between the same two workers.
struct State {
  uint64_t word = 0;

  Done done(int32_t cell) const { return static_cast<Done>(word >> (3 * cell) & 7); }
  void advance(int32_t cell) { word += uint64_t{1} << (3 * cell); }
  int32_t place(int32_t cell) const { return static_cast<int32_t>(word >> (36 + 2 * cell) & 3); }
  void set_place(int32_t cell, int32_t place) {
    word &= ~(uint64_t{3} << (36 + 2 * cell));
    word |= static_cast<uint64_t>(place) << (36 + 2 * cell);
  }
};

class Search {
 public:
  Search(const RuleNetwork& network, const Rule& rule) : network_(network), rule_(rule) {}

  bool run() {
    State begin;
    for (int32_t m = 0; m < network_.micros; ++m) begin.advance(cell(0, m));
    return visit(begin);
  }

 private:
  int32_t cell(int32_t stage, int32_t micro) const { return stage * network_.micros + micro; }
  // True when messages may have to wait. Only then is their arrival an event of its own.
  bool waits_for_buffers() const { return rule_.buffers > 0; }
  int32_t owner(int32_t s, int32_t m) const { return network_.owners[at(s)][at(m)]; }

  // True when every micro-batch of the worker before `m` has reached `so_far`.
  bool all_before(const State& state, int32_t s, int32_t m, bool own, Done so_far) const {
    const int32_t worker = owner(s, m);
    const auto& order = network_.own_orders[at(s)][at(worker)];
    for (int32_t i = 0; i < network_.micros; ++i) {
      const int32_t other = own ? order[at(i)] : i;
      if (other == m) return true;
      if (owner(s, other) == worker && state.done(cell(s, other)) < so_far) return false;
    }
    return true;
  }

  bool in_turn(const State& state, int32_t s, int32_t m, Done next) const {
    if (rule_.taking == Taking::Free) return true;
    if (rule_.taking == Taking::Sums && next != Done::Weight) return true;
    return all_before(state, s, m, rule_.taking == Taking::Own, next);
  }

  // Number of micro-batches of m's worker at the stage that are between `first` and `last`.
  int32_t count(const State& state, int32_t s, int32_t m, Done first, Done last) const {
    int32_t count = 0;
    for (int32_t other = 0; other < network_.micros; ++other) {
      const Done done = state.done(cell(s, other));
      count += owner(s, other) == owner(s, m) && done >= first && done <= last;
    }
    return count;
  }

  // `most` places, of which `taken` are taken; `reserves`: the last one may only be taken by the
  // first micro-batch that has had none.
  struct Places {
    int32_t most = 0, taken = 0;
    bool reserves = false;
  };
  // True when m may take one of them.
  bool has_place(const State& state, int32_t s, int32_t m, Places places, Done next) const {
    if (places.taken >= places.most) return false;
    return !places.reserves || places.most - places.taken > 1 ||
           all_before(state, s, m, false, next);
  }

  bool may(const State& state, int32_t s, int32_t m) const {
    switch (state.done(cell(s, m))) {
      case Done::Nothing:
        if (s == 0 || state.done(cell(s - 1, m)) < Done::Forward) return false;
        if (!waits_for_buffers()) return true;
        if (rule_.in_line && state.place(cell(s - 1, m)) > 0) return false;
        return has_place(state, s, m,
                         {rule_.buffers, count(state, s, m, Done::Arrival, Done::Arrival),
                          rule_.reserves_buffers},
                         Done::Arrival);
      case Done::Arrival:
        return in_turn(state, s, m, Done::Forward) &&
               has_place(state, s, m,
                         {network_.slots, count(state, s, m, Done::Forward, Done::Backward),
                          rule_.reserves},
                         Done::Forward);
      case Done::Forward:
        return in_turn(state, s, m, Done::Backward) &&
               (s + 1 == network_.stages || state.done(cell(s + 1, m)) >= Done::Backward);
      case Done::Backward:
        return in_turn(state, s, m, Done::Weight);
      default:
        return false;
    }
  }

  bool on_the_way(const State& state, int32_t s, int32_t m) const {
    return state.done(cell(s, m)) >= Done::Forward && state.done(cell(s + 1, m)) == Done::Nothing;
  }
  bool same_line(int32_t s, int32_t a, int32_t b) const {
    return owner(s, a) == owner(s, b) && owner(s + 1, a) == owner(s + 1, b);
  }

  State after(State state, int32_t s, int32_t m) const {
    if (rule_.in_line && state.done(cell(s, m)) == Done::Nothing) {  // it arrives
      for (int32_t other = 0; other < network_.micros; ++other) {
        if (other == m || !on_the_way(state, s - 1, other) || !same_line(s - 1, other, m)) continue;
        state.set_place(cell(s - 1, other), state.place(cell(s - 1, other)) - 1);
      }
    }
    if (rule_.in_line && state.done(cell(s, m)) == Done::Arrival && s + 1 < network_.stages) {
      int32_t ahead = 0;
      for (int32_t other = 0; other < network_.micros; ++other) {
        ahead += on_the_way(state, s, other) && same_line(s, other, m);
      }
      state.set_place(cell(s, m), ahead);
    }
    state.advance(cell(s, m));
    return state;
  }

  bool visit(const State& state) {
    if (!seen_.insert(state.word).second) return false;
    bool moved = false, left = false;
    for (int32_t s = 0; s < network_.stages; ++s) {
      for (int32_t m = 0; m < network_.micros; ++m) {
        left = left || state.done(cell(s, m)) != Done::Weight;
        if (!may(state, s, m)) continue;
        moved = true;
        if (visit(after(state, s, m))) return true;
        // An arrival that never has to wait may always be the next event: try no other one.
        if (state.done(cell(s, m)) == Done::Nothing && !waits_for_buffers()) return false;
      }
    }
    return left && !moved;
  }

  const RuleNetwork& network_;
  const Rule& rule_;
  std::unordered_set<uint64_t> seen_;
};

}  // namespace

RuleNetwork draw_network(Random& random, int32_t stages, int32_t micros) {
  RuleNetwork network;
  network.stages = stages;
  network.micros = micros;
  network.slots = 1 + static_cast<int32_t>(random.below(2));
  for (int32_t s = 0; s < stages; ++s) {
    auto& owners = network.owners.emplace_back();
    for (int32_t m = 0; m < micros; ++m) {
      const int32_t home = m % network.holders;
      const auto any = static_cast<int32_t>(random.below(network.holders));
      owners.push_back(random.below(2) == 0 ? home : any);
    }
    auto& orders = network.own_orders.emplace_back();
    for (int32_t i = 0; i < network.holders; ++i) {
      auto& order = orders.emplace_back();
      for (int32_t m = 0; m < micros; ++m) {
        order.insert(order.begin() + random.below(m + 1), m);
      }
    }
  }
  return network;
}

bool can_stand_still(const RuleNetwork& network, const Rule& rule) {
  return Search(network, rule).run();
}

}  // namespace tenuto
