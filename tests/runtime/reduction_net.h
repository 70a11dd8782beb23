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
#include "world/cluster.h"

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
  bool grows = false;            // inputs are made meanwhile, in pieces
  Duration growth{1};            // each piece at a moment before this one
  Link link{Duration(10), 0};    // between any two members
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
    made_at_.assign(own.size(), {});
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
                          tallies.empty() ? 0 : tallies[m], way.grows}));
      if (way.grows) take_away(m, way.in_place ? total : std::span(own[m]));
    }
    under_way_.assign(own.size(), 0);
    last_.assign(own.size(), {-1, {-1}});
  }

  // Delivers until nothing moves.
  void run() {
    for (size_t m = 0; m < parts_.size(); ++m) collect(m);
    while (!ready_.empty() || !pieces_.empty()) {
      if (!pieces_.empty() && (ready_.empty() || random_.below(4) == 0)) {
        give_back();
        continue;
      }
      const auto pick = static_cast<size_t>(random_.below(static_cast<int64_t>(ready_.size())));
      const Pair pair = ready_[pick];
      ready_.erase(ready_.begin() + static_cast<int64_t>(pick));
      if (!pair.taken) bring(pair);
      const bool sender_first = random_.below(2) == 0;
      --under_way_[pair.from];
      if (sender_first) parts_[pair.from]->finish(pair.out.index, pair.left);
      if (sender_first) collect(pair.from);
      parts_[pair.to]->finish(pair.in.index, pair.left + way_.link.latency, pair.out.tally);
      collect(pair.to);
      if (!sender_first) parts_[pair.from]->finish(pair.out.index, pair.left);
      if (!sender_first) collect(pair.from);
    }
  }

  const Reduction& part(size_t m) const { return *parts_[m]; }
  const std::vector<Number>& total(size_t m) const { return totals_[m]; }
  // When a member's input was complete in these elements.
  Duration complete_at(size_t m, ElementRange range) const {
    const auto first = made_at_[m].begin() + range.first, end = made_at_[m].begin() + range.end;
    return first == end ? Duration{} : *std::max_element(first, end);
  }

 private:
  static constexpr auto kGarbage = static_cast<Number>(-1'000'000);
  struct Pair {
    size_t from, to;
    ReductionCall out, in;
    Duration left{};  // when the link is free again
    bool taken = false;
  };
  struct Piece {
    size_t member;
    ElementRange range;
    std::span<Number> place;      // the member's input
    std::vector<Number> numbers;  // of the range
    Duration at{};
  };
  using Name = std::tuple<WorkerId, WorkerId, int32_t, ChunkId>;

  size_t place(WorkerId id) const {
    for (size_t m = 0; m < collective_.members.size(); ++m) {
      if (collective_.members[m] == id) return m;
    }
    ADD_FAILURE() << "no member " << id.value;
    return 0;
  }

  // Cuts a member's input at random into pieces that are not there yet. Garbage is in their place.
  void take_away(size_t m, std::span<Number> own) {
    const auto count = static_cast<int64_t>(own.size());
    for (int64_t first = 0; first < count;) {
      const int64_t end = first + 1 + random_.below(count - first);
      const auto piece = own.subspan(static_cast<size_t>(first), static_cast<size_t>(end - first));
      const Duration at(random_.below(way_.growth.count()));
      pieces_.push_back({m, {first, end}, own, {piece.begin(), piece.end()}, at});
      made_at_[m].insert(made_at_[m].end(), piece.size(), at);
      std::fill(piece.begin(), piece.end(), kGarbage);
      first = end;
    }
  }

  // Makes one of the pieces that are missing.
  void give_back() {
    const auto pick = static_cast<size_t>(random_.below(static_cast<int64_t>(pieces_.size())));
    const Piece piece = std::move(pieces_[pick]);
    pieces_.erase(pieces_.begin() + static_cast<int64_t>(pick));
    EXPECT_FALSE(parts_[piece.member]->done()) << "its input is not complete";
    const auto place = piece.place.subspan(static_cast<size_t>(piece.range.first));
    for (size_t i = 0; i < piece.numbers.size(); ++i) {
      EXPECT_EQ(place[i], kGarbage) << "an input in the making was written";
      place[i] = piece.numbers[i];
    }
    parts_[piece.member]->grow(piece.range, piece.at);
    collect(piece.member);
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
      const Name name{call.send ? self : call.peer, call.send ? call.peer : self, call.round,
                      call.chunk};
      if (call.send) note_send(m, call);
      if (call.send) left_[name] = pass(call, self);
      auto& here = call.send ? sends_ : receives_;
      auto& there = call.send ? receives_ : sends_;
      ASSERT_TRUE(here.emplace(name, call).second) << "a message was asked for twice";
      const auto match = there.find(name);
      if (match == there.end()) continue;
      const ReductionCall& out = call.send ? call : match->second;
      const ReductionCall& in = call.send ? match->second : call;
      Pair& pair = ready_.emplace_back(
          Pair{place(std::get<0>(name)), place(std::get<1>(name)), out, in, left_[name]});
      // The wire may call the taker before the member hears of the message.
      pair.taken = in.taker.take != nullptr && random_.below(2) == 0;
      if (pair.taken) bring(pair);
    }
  }

  // When a message has left over its link, which carries one at a time, in the order of the calls.
  Duration pass(const ReductionCall& call, WorkerId self) {
    Duration& free_at = free_at_[{self, call.peer}];
    const Bytes size{static_cast<int64_t>(call.source.size())};
    return free_at =
               std::max(free_at, call.ready) + transfer_time(size, way_.link.bytes_per_second);
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
  std::map<Name, Duration> left_;
  std::map<std::pair<WorkerId, WorkerId>, Duration> free_at_;  // of the links
  std::vector<std::vector<Duration>> made_at_;                 // of each element, if inputs grow
  std::vector<Pair> ready_;
  std::vector<Piece> pieces_;
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
