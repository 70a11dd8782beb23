// All members of a collective on one thread: each member's Reduction, and the messages between
// them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "runtime/reduction.h"

namespace tenuto {

using Floats = std::vector<float>;
template <class Number>
using Sums = std::vector<std::vector<Number>>;  // of each member

template <class Number>
constexpr Element kElement = sizeof(Number) == sizeof(float) ? Element::Float32 : Element::Int64;

inline ReductionSettings settings_of(Element element) {
  ReductionSettings settings;
  settings.element = element;
  return settings;
}

inline std::vector<WorkerId> members(int32_t count, int32_t first = 0) {
  std::vector<WorkerId> all;
  for (int32_t m = 0; m < count; ++m) all.push_back({first + m});
  return all;
}

// Executes the collective round by round on a copy of the state before each round, as
// ir/collective.h defines it.
template <class Number>
Sums<Number> by_the_book(const Collective& collective, Sums<Number> state) {
  const auto chunks = static_cast<size_t>(collective.chunk_count);
  std::map<WorkerId, size_t> place;
  for (const WorkerId id : collective.members) place.emplace(id, place.size());
  for (const Round& round : collective.rounds) {
    const Sums<Number> before = state;
    for (const Move& move : round.moves) {
      const auto& from = before[place[move.from]];
      auto& to = state[place[move.to]];
      const auto c = static_cast<size_t>(move.chunk.value);
      for (size_t i = c * from.size() / chunks; i < (c + 1) * from.size() / chunks; ++i) {
        to[i] = move.add ? to[i] + from[i] : from[i];
      }
    }
  }
  return state;
}

// How the members execute the collective.
struct Way {
  Operation operation = Operation::Sum;
  bool in_place = false;
  bool takers = false;
  int32_t sends_at_once = 0;
  std::vector<WorkerId> owners;  // of a reduce-scatter, by chunk
};

// All members on one thread; messages wait for their receive and arrive in a random order.
template <class Number>
class Net {
 public:
  // `tallies`: one per member, of what it brings; empty: tallies of nothing.
  Net(const Collective& collective, Sums<Number>& own, uint64_t seed,
      const std::vector<uint64_t>& tallies = {}, const Way& way = {})
      : collective_(collective), random_(seed), way_(way) {
    totals_.assign(own.size(), {});
    for (size_t m = 0; m < own.size(); ++m) {
      totals_[m].assign(own[m].size(), Number{-77});
      if (way.in_place) totals_[m] = own[m];
      ReductionSettings settings = settings_of(kElement<Number>);
      settings.operation = way.operation;
      settings.sends_at_once = way.sends_at_once;
      settings.takers = way.takers;
      for (const WorkerId owner : way.owners) {
        settings.kept.push_back(owner == collective.members[m]);
      }
      const std::span<Number> total(totals_[m]);
      parts_.push_back(std::make_unique<Reduction>(
          collective, collective.members[m], settings,
          ReductionTensor{std::as_bytes(way.in_place ? total : std::span(own[m])),
                          std::as_writable_bytes(total), Duration(0),
                          tallies.empty() ? 0 : tallies[m]}));
    }
    under_way_.assign(own.size(), 0);
    last_.assign(own.size(), {-1, {-1}});
  }

  // Delivers until nothing moves.
  void run() {
    for (size_t m = 0; m < parts_.size(); ++m) collect(m);
    while (!ready_.empty()) {
      const auto pick = static_cast<size_t>(random_.below(static_cast<int64_t>(ready_.size())));
      const Pair pair = ready_[pick];
      ready_.erase(ready_.begin() + static_cast<int64_t>(pick));
      if (!pair.taken) bring(pair);
      const bool sender_first = random_.below(2) == 0;
      --under_way_[pair.from];
      if (sender_first) parts_[pair.from]->finish(pair.out.index, pair.out.ready);
      if (sender_first) collect(pair.from);
      parts_[pair.to]->finish(pair.in.index, pair.out.ready + Duration(10), pair.out.tally);
      collect(pair.to);
      if (!sender_first) parts_[pair.from]->finish(pair.out.index, pair.out.ready);
      if (!sender_first) collect(pair.from);
    }
  }

  const Reduction& part(size_t m) const { return *parts_[m]; }
  const std::vector<Number>& total(size_t m) const { return totals_[m]; }

 private:
  struct Pair {
    size_t from, to;
    ReductionCall out, in;
    bool taken;
  };
  using Name = std::tuple<WorkerId, WorkerId, int32_t, ChunkId>;

  size_t place(WorkerId id) const {
    for (size_t m = 0; m < collective_.members.size(); ++m) {
      if (collective_.members[m] == id) return m;
    }
    ADD_FAILURE() << "no member " << id.value;
    return 0;
  }

  // Copies a message to its target, or gives it to its taker. A taker's message begins at an odd
  // address, and the target holds garbage, since nothing has landed there.
  static void bring(const Pair& pair) {
    const auto& [source, target] = std::pair(pair.out.source, pair.in.target);
    ASSERT_EQ(source.size(), target.size());
    if (pair.in.taker.take == nullptr) {
      std::copy(source.begin(), source.end(), target.begin());
      return;
    }
    std::vector<std::byte> message(source.size() + 1);
    std::copy(source.begin(), source.end(), message.begin() + 1);
    std::fill(target.begin(), target.end(), std::byte{0x5a});
    pair.in.taker.take(pair.in.taker.self, std::span(message).subspan(1));
  }

  void collect(size_t m) {
    const WorkerId self = collective_.members[m];
    for (const ReductionCall& call : parts_[m]->startable()) {
      ASSERT_LT(call.index, Reduction::call_count(collective_, self));
      if (call.send) note_send(m, call);
      const Name name{call.send ? self : call.peer, call.send ? call.peer : self, call.round,
                      call.chunk};
      auto& here = call.send ? sends_ : receives_;
      auto& there = call.send ? receives_ : sends_;
      ASSERT_TRUE(here.emplace(name, call).second) << "a message was asked for twice";
      const auto match = there.find(name);
      if (match == there.end()) continue;
      const ReductionCall& out = call.send ? call : match->second;
      const ReductionCall& in = call.send ? match->second : call;
      Pair& pair = ready_.emplace_back(
          Pair{place(std::get<0>(name)), place(std::get<1>(name)), out, in, false});
      // The wire may call the taker before the member hears of the message.
      pair.taken = in.taker.take != nullptr && random_.below(2) == 0;
      if (pair.taken) bring(pair);
    }
  }

  // With a limit, that many sends at most are under way, and they leave in order.
  void note_send(size_t m, const ReductionCall& call) {
    ++under_way_[m];
    if (way_.sends_at_once == 0) return;
    ASSERT_LE(under_way_[m], way_.sends_at_once);
    const std::pair<int32_t, ChunkId> turn{call.round, call.chunk};
    ASSERT_LE(last_[m], turn) << "a send before its turn";
    last_[m] = turn;
  }

  const Collective& collective_;
  Random random_;
  const Way way_;
  std::vector<int32_t> under_way_;                 // sends of each member
  std::vector<std::pair<int32_t, ChunkId>> last_;  // the turn of each member's last send
  Sums<Number> totals_;
  std::vector<std::unique_ptr<Reduction>> parts_;
  std::map<Name, ReductionCall> sends_, receives_;
  std::vector<Pair> ready_;
};

template <class Number>
Sums<Number> random_sums(size_t member_count, size_t elements, uint64_t seed) {
  Random random(seed);
  const double size = kElement<Number> == Element::Float32 ? 1 : 0x1p50;
  Sums<Number> own(member_count, std::vector<Number>(elements));
  for (auto& each : own) {
    for (Number& number : each) number = static_cast<Number>((random.uniform() * 2 - 1) * size);
  }
  return own;
}

}  // namespace tenuto
