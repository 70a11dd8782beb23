// A reduction as a dataflow: in whatever order messages arrive, all members end with the same bits,
// those of the collective's own order of additions.
#include "runtime/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "base/random.h"
#include "collective/algorithm.h"
#include "collective/ring.h"
#include "collective/slice.h"
#include "reduction_net.h"
#include "runtime/tally.h"
#include "sim/reduction_price.h"

namespace tenuto {
namespace {

template <class Number>
void expect_right_of(const Collective& collective, size_t elements, uint64_t seed) {
  auto own = random_sums<Number>(collective.members.size(), elements, seed);
  const Sums<Number> untouched = own;
  const Sums<Number> expected = by_the_book(collective, own);
  Net<Number> net(collective, own, seed);
  net.run();
  for (size_t m = 0; m < own.size(); ++m) {
    SCOPED_TRACE(testing::Message() << "member " << m << " of " << own.size() << ", " << elements
                                    << " elements, seed " << seed);
    ASSERT_TRUE(net.part(m).done());
    EXPECT_EQ(own[m], untouched[m]) << "the worker's own sum was written";
    ASSERT_EQ(net.total(m).size(), elements);
    if (elements == 0) continue;
    EXPECT_EQ(std::memcmp(net.total(m).data(), expected[m].data(), elements * sizeof(Number)), 0);
    EXPECT_EQ(std::memcmp(net.total(m).data(), net.total(0).data(), elements * sizeof(Number)), 0);
  }
}

void expect_right(const Collective& collective, size_t elements, uint64_t seed) {
  expect_right_of<float>(collective, elements, seed);
  expect_right_of<int64_t>(collective, elements, seed);
}

TEST(Reduction, RingsOfEverySizeSumBitForBit) {
  for (int32_t count = 1; count <= 9; ++count) {
    const Collective ring = make_ring(members(count, 3));
    for (const size_t elements : {0, 1, 2, 5, 8, 9, 64, 1001}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) expect_right(ring, elements, seed);
    }
  }
}

// Executes each all-reduce of the table as it is, also those with late members.
TEST(Reduction, EveryAlgorithmSumsBitForBit) {
  for (const NamedAlgorithm& algorithm : algorithms()) {
    if (algorithm.card.goal != Goal::AllReduce) continue;
    for (int32_t count = 2; count <= 9; ++count) {
      CollectiveShape shape;
      shape.members = members(count, 3);
      if (algorithm.card.late_most != 0) shape.late = {shape.members.front()};
      if (algorithm.card.late_most < 0 && count > 3) shape.late.push_back(shape.members[2]);
      const auto made = make_procedure(algorithm.card.name, shape);
      ASSERT_TRUE(made.ok()) << made.error().message;
      for (const size_t elements : {0, 5, 64, 1001}) {
        for (uint64_t seed = 1; seed <= 3; ++seed) {
          expect_right(made.value().collective, elements, seed);
        }
      }
    }
  }
}

// All members send everything to the first, which sends the sum back: one round has more adds into
// one chunk than there are scratch slots.
TEST(Reduction, StarAddsInTheOrderOfItsRound) {
  Collective star{members(8), 1, {Round{}, Round{}}};
  for (int32_t m = 1; m < 8; ++m) {
    star.rounds[0].moves.push_back({{m}, {0}, {0}, true});
    star.rounds[1].moves.push_back({{0}, {m}, {0}, false});
  }
  for (uint64_t seed = 1; seed <= 50; ++seed) expect_right(star, 33, seed);
}

// Partners exchange everything and add, at doubling distance: each sends the chunk that it also
// receives in the same round.
TEST(Reduction, ExchangeReadsTheStateBeforeTheRound) {
  Collective exchange{members(8), 1, {}};
  for (int32_t distance = 1; distance < 8; distance *= 2) {
    Round round;
    for (int32_t m = 0; m < 8; ++m) round.moves.push_back({{m}, {m ^ distance}, {0}, true});
    exchange.rounds.push_back(round);
  }
  for (uint64_t seed = 1; seed <= 50; ++seed) expect_right(exchange, 17, seed);
}

// Two members swap a chunk by plain moves, again and again: a message must not overwrite a chunk
// that is still being sent.
TEST(Reduction, ASwapDoesNotWaitForItself) {
  const Round both{{{{0}, {1}, {0}, false}, {{1}, {0}, {0}, false}}};
  const Collective swap{members(2), 1, {both, both, both}};
  auto own = random_sums<float>(2, 6, 4);
  Net<float> net(swap, own, 9);
  net.run();
  ASSERT_TRUE(net.part(0).done());
  ASSERT_TRUE(net.part(1).done());
  EXPECT_EQ(net.total(0), own[1]);
  EXPECT_EQ(net.total(1), own[0]);
}

template <class Number>
Number average_of(Number sum, size_t count) {
  return kElement<Number> == Element::Float32 ? sum / static_cast<Number>(count)
                                              : sum / static_cast<int64_t>(count);
}

// A delay for each chunk, often the same for several.
std::vector<int32_t> random_delays(Random& random, int32_t chunks) {
  std::vector<int32_t> delays;
  for (int32_t c = 0; c < chunks; ++c) {
    delays.push_back(static_cast<int32_t>(random.below(chunks)));
  }
  return delays;
}

// Runs a procedure sliced or whole, its chunks delayed or not, in place or not, with a limit of
// sends or without, with inputs that are complete from the start or grow. Each member's result is
// that of by_the_book(), bit for bit.
void expect_right_in_every_way(const Procedure& made, size_t elements, uint64_t seed) {
  Random random(seed);
  const auto slices = static_cast<int32_t>(1 + random.below(4));
  Collective cut = sliced(made.collective, slices);
  if (random.below(2) == 0) cut = delayed(cut, random_delays(random, cut.chunk_count));
  const auto own = random_sums<float>(made.collective.members.size(), elements, seed);
  const Sums<float> expected = by_the_book(made.collective, own);
  for (int kind = 0; kind < 16; ++kind) {
    Way way;
    way.grows = random.below(2) == 0;
    way.takers = (kind & 8) != 0;
    way.in_place = (kind & 1) != 0;
    way.sends_at_once = (kind & 2) != 0 ? static_cast<int32_t>(1 + random.below(5)) : 0;
    if (made.goal != Goal::AllGather && (kind & 4) != 0) way.operation = Operation::Average;
    for (const WorkerId owner : made.owners) {
      if (made.goal != Goal::ReduceScatter) continue;
      way.owners.insert(way.owners.end(), static_cast<size_t>(slices), owner);
    }
    Sums<float> mine = own;
    Net<float> net(cut, mine, seed, {}, way);
    net.run();
    for (size_t m = 0; m < own.size(); ++m) {
      SCOPED_TRACE(testing::Message()
                   << made.name << ", member " << m << " of " << own.size() << ", " << elements
                   << " elements in " << slices << " slices, way " << kind << ", seed " << seed);
      ASSERT_TRUE(net.part(m).done());
      for (size_t i = 0; i < elements; ++i) {
        const auto chunks = static_cast<size_t>(made.collective.chunk_count);
        size_t chunk = i * chunks / elements;  // near the one that holds i
        while (chunk * elements / chunks > i) --chunk;
        while ((chunk + 1) * elements / chunks <= i) ++chunk;
        const bool scattered = made.goal == Goal::ReduceScatter;
        if (scattered && made.owners[chunk] != made.collective.members[m]) continue;
        float wanted = expected[m][i];
        if (way.operation == Operation::Average) wanted = average_of(wanted, own.size());
        ASSERT_EQ(std::memcmp(&net.total(m)[i], &wanted, sizeof(float)), 0) << "element " << i;
      }
    }
  }
}

TEST(Reduction, EveryProcedureIsRightInEveryWay) {
  for (const NamedAlgorithm& algorithm : algorithms()) {
    for (int32_t count = 1; count <= 9; ++count) {
      CollectiveShape shape;
      shape.members = members(count, 3);
      if (algorithm.card.late_most != 0 && count < 2) continue;
      if (algorithm.card.late_most != 0) shape.late = {shape.members.front()};
      shape.root = shape.members.back();
      const auto made = make_procedure(algorithm.card.name, shape);
      ASSERT_TRUE(made.ok()) << made.error().message;
      for (const size_t elements : {0, 3, 64, 257}) {
        expect_right_in_every_way(made.value(), elements,
                                  static_cast<uint64_t>(count) * 1000 + elements);
      }
    }
  }
}

// In a ring no add waits for its turn, so takers add every message where the wire has it.
TEST(Reduction, TakersAddEveryMessageOfARing) {
  for (const bool takers : {false, true}) {
    ReductionSettings settings = settings_of(Element::Float32);
    settings.takers = takers;
    Floats own(8, 1), total(8);
    Reduction part(make_ring(members(4)), {0}, settings,
                   {std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(total))});
    int32_t receives = 0, taken = 0;
    for (const ReductionCall& call : part.startable()) {
      receives += !call.send;
      taken += call.taker.take != nullptr;
    }
    EXPECT_EQ(receives, 4);  // three to add, one to copy
    EXPECT_EQ(taken, takers ? 3 : 0);
  }
}

// A member's own moves are enough for all of its calls, and each chunk alone is a valid collective.
TEST(Reduction, AMembersMovesAndAChunksMovesSuffice) {
  const auto made = make_procedure("late-one", {members(7), 12, {{2}}, {}});
  ASSERT_TRUE(made.ok());
  const Collective& whole = made.value().collective;
  for (const WorkerId self : whole.members) {
    const Collective own = own_moves(whole, self);
    EXPECT_EQ(Reduction::call_count(own, self), Reduction::call_count(whole, self));
    for (const Round& round : own.rounds) {
      for (const Move& move : round.moves) EXPECT_TRUE(move.from == self || move.to == self);
    }
  }
  for (int32_t chunk = 0; chunk < whole.chunk_count; ++chunk) {
    const auto facts = examine(of_chunk(whole, {chunk}));
    EXPECT_TRUE(facts.ok()) << facts.error().message;
  }
}

TEST(Slices, CoverTheirChunkExactly) {
  for (const int64_t elements : {0, 1, 5, 17, 1000, 1023}) {
    for (const int64_t chunks : {1, 3, 7, 16}) {
      for (const int64_t slices : {1, 2, 5, 33}) {
        for (int64_t c = 0; c <= chunks; ++c) {
          EXPECT_EQ(c * slices * elements / (chunks * slices), c * elements / chunks);
        }
      }
    }
  }
  EXPECT_EQ(slices_for(1 << 20, 4, 256 << 10), 1);
  EXPECT_EQ(slices_for((1 << 20) + 1, 4, 256 << 10), 2);
  EXPECT_EQ(slices_for(0, 4, 256 << 10), 1);
  EXPECT_EQ(slices_for(int64_t{1} << 40, 1, 1), kMostSlices);
  EXPECT_EQ(slices_for(int64_t{1} << 40, 1, 0), 1);
}

// Each move is so many rounds later as its chunk is delayed, in rounds that are counted without
// those that have no move.
TEST(Slices, DelayedKeepTheMovesOfEachChunk) {
  Random random(11);
  for (const char* name : {"ring", "halving", "tree", "direct"}) {
    const auto made = make_procedure(name, {members(6), 0, {}, {}});
    ASSERT_TRUE(made.ok()) << made.error().message;
    const Collective cut = sliced(made.value().collective, 3);
    const std::vector<int32_t> delays = random_delays(random, cut.chunk_count);
    std::map<int64_t, std::multiset<Move>> expected;
    for (size_t r = 0; r < cut.rounds.size(); ++r) {
      for (const Move& move : cut.rounds[r].moves) {
        expected[static_cast<int64_t>(r) + delays[static_cast<size_t>(move.chunk.value)]].insert(
            move);
      }
    }
    const Collective after = delayed(cut, delays);
    EXPECT_EQ(after.members, cut.members);
    ASSERT_EQ(after.rounds.size(), expected.size());
    size_t place = 0;
    for (const auto& [round, moves] : expected) {
      const std::vector<Move>& found = after.rounds[place++].moves;
      EXPECT_EQ(std::multiset<Move>(found.begin(), found.end()), moves) << name << ", " << round;
    }
    const auto facts = examine(after);
    EXPECT_TRUE(facts.ok()) << facts.error().message;
    EXPECT_EQ(delayed(cut, std::vector<int32_t>(delays.size(), 7)), cut);
  }
}

// Inputs grow from their end to their start, as gradients do. With slices in a pipeline, the sum
// ends soon after they are complete, and over slow links not later than a sum of whole inputs.
TEST(Slices, DelayedSumsOfGrowingInputsEndSooner) {
  const Bytes size{1 << 20};
  const Duration grown = std::chrono::milliseconds(10);  // from the last element to the first
  for (int32_t count = 2; count <= 6; ++count) {
    const Collective ring = make_ring(members(count));
    const Collective cut = sliced(ring, 8);
    const int32_t chunks = cut.chunk_count;
    std::vector<int32_t> delays;
    std::vector<Duration> starts;
    for (int32_t c = 0; c < chunks; ++c) delays.push_back(chunks - 1 - c);
    for (int32_t i = 0; i < count * chunks; ++i) {
      starts.push_back(grown - grown * (i % chunks) / chunks);
    }
    const Collective pipeline = delayed(cut, delays);
    for (const double share : {0.1, 0.3, 1.0, 2.0}) {  // a whole sum takes this share of `grown`
      const double moved = 2.0 * (count - 1) / count * static_cast<double>(size.count);
      const double seconds = share * to_milliseconds(grown) / 1000;
      const Cluster cluster =
          uniform_cluster(count, {std::chrono::microseconds(20), moved / seconds});
      const auto whole = reduction_finish(
          ring, std::vector<Duration>(static_cast<size_t>(count), grown), size, cluster);
      PortSides ports(cluster);
      const auto parts = reduction_finish_in_parts(pipeline, starts, size, cluster, ports);
      const Duration before = *std::max_element(whole.begin(), whole.end()) - grown;
      const Duration after = *std::max_element(parts.begin(), parts.end()) - grown;
      // Up to `share` 0.3 the links keep up with the growth.
      EXPECT_LT(to_milliseconds(after), (share < 0.5 ? 0.4 : 1) * to_milliseconds(before))
          << count << " members, share " << share;
    }
  }
}

// The upper half of the inputs is complete first, and its sum is whole before the rest is.
TEST(Reduction, SumsThePartsOfAnInputAsTheyCome) {
  const Collective ring = sliced(make_ring(members(2)), 2);
  const Collective ordered = delayed(ring, std::vector<int32_t>{2, 2, 0, 0});
  const Floats own[2] = {{1, 2, 3, 4, 5, 6, 7, 8}, {10, 20, 30, 40, 50, 60, 70, 80}};
  Floats totals[2] = {Floats(8), Floats(8)};
  std::vector<std::unique_ptr<Reduction>> parts;
  for (size_t m = 0; m < 2; ++m) {
    parts.push_back(
        std::make_unique<Reduction>(ordered, ordered.members[m], settings_of(Element::Float32),
                                    ReductionTensor{std::as_bytes(std::span(own[m])),
                                                    std::as_writable_bytes(std::span(totals[m])),
                                                    {},
                                                    0,
                                                    true}));
  }
  // Moves what can be moved; each message takes 10 ns.
  std::vector<ReductionCall> calls[2];
  const auto move_all = [&] {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t m = 0; m < 2; ++m) {
        for (const ReductionCall& call : parts[m]->startable()) calls[m].push_back(call);
      }
      for (size_t m = 0; m < 2 && !moved; ++m) {
        for (size_t i = 0; i < calls[m].size() && !moved; ++i) {
          const ReductionCall out = calls[m][i];
          if (!out.send) continue;
          auto& there = calls[1 - m];
          const auto in = std::find_if(there.begin(), there.end(), [&](const ReductionCall& it) {
            return !it.send && it.round == out.round && it.chunk == out.chunk;
          });
          if (in == there.end()) continue;
          std::copy(out.source.begin(), out.source.end(), in->target.begin());
          const int32_t index = in->index;
          there.erase(in);
          calls[m].erase(calls[m].begin() + static_cast<int64_t>(i));
          parts[m]->finish(out.index, out.ready);
          parts[1 - m]->finish(index, out.ready + Duration(10));
          moved = true;
        }
      }
    }
  };
  move_all();
  parts[0]->grow({4, 8}, Duration(100));
  move_all();
  EXPECT_EQ(parts[0]->chunk_state({2}), ChunkState::Own);
  parts[1]->grow({6, 8}, Duration(200));
  parts[1]->grow({4, 6}, Duration(300));
  move_all();
  for (size_t m = 0; m < 2; ++m) {
    EXPECT_FALSE(parts[m]->done());
    for (const int32_t chunk : {2, 3}) EXPECT_TRUE(parts[m]->is_complete({chunk}));
    EXPECT_EQ(Floats(totals[m].begin() + 4, totals[m].end()), (Floats{55, 66, 77, 88}));
    for (const int32_t chunk : {0, 1}) EXPECT_EQ(parts[m]->chunk_state({chunk}), ChunkState::Own);
  }
  for (auto& part : parts) part->grow({0, 4}, Duration(1000));
  move_all();
  for (size_t m = 0; m < 2; ++m) {
    EXPECT_TRUE(parts[m]->done());
    EXPECT_EQ(totals[m], (Floats{11, 22, 33, 44, 55, 66, 77, 88}));
  }
  EXPECT_EQ(std::max(parts[0]->done_at(), parts[1]->done_at()), Duration(1020));
}

// Growing inputs take the time that the price says, chunk by chunk.
TEST(Reduction, GrowingInputsTakeTheirPrice) {
  Random random(17);
  for (const char* name : {"ring", "halving", "tree", "direct"}) {
    for (int32_t count = 2; count <= 7; ++count) {
      const auto made = make_procedure(name, {members(count), 0, {}, {}});
      ASSERT_TRUE(made.ok()) << made.error().message;
      const auto slices = static_cast<int32_t>(1 + random.below(3));
      const Collective cut = sliced(made.value().collective, slices);
      const Collective ordered = delayed(cut, random_delays(random, cut.chunk_count));
      const int64_t of_chunk = 1 + random.below(5);
      const int64_t elements = of_chunk * ordered.chunk_count;  // all chunks alike, none empty
      Way way;
      way.grows = true;
      way.growth = Duration(1 + random.below(2000));
      way.link.latency = Duration(random.below(50));
      way.link.bytes_per_second = 1e9;  // 1 ns a byte
      auto own = random_sums<float>(static_cast<size_t>(count), static_cast<size_t>(elements), 3);
      Net<float> net(ordered, own, static_cast<uint64_t>(count), {}, way);
      net.run();
      std::vector<Duration> starts;
      for (size_t m = 0; m < static_cast<size_t>(count); ++m) {
        for (int32_t c = 0; c < ordered.chunk_count; ++c) {
          starts.push_back(net.complete_at(m, chunk_range(elements, c, ordered.chunk_count)));
        }
      }
      const Cluster cluster = uniform_cluster(count, way.link);
      PortSides ports(cluster);
      const Bytes size{elements * static_cast<int64_t>(sizeof(float))};
      const auto priced = reduction_finish_in_parts(ordered, starts, size, cluster, ports);
      for (size_t m = 0; m < static_cast<size_t>(count); ++m) {
        ASSERT_TRUE(net.part(m).done());
        EXPECT_EQ(net.part(m).done_at(), priced[m])
            << name << ", member " << m << " of " << count << ", " << slices << " slices";
      }
    }
  }
}

// Alone, a member has its total when its input is complete.
TEST(Reduction, AGroupOfOneWaitsForItsInput) {
  const Floats own = {1, 2, 3};
  Floats total(3);
  Reduction alone(
      {members(1), 1, {}}, {0}, settings_of(Element::Float32),
      {std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(total)), {}, 0, true});
  EXPECT_FALSE(alone.is_complete({0}));
  alone.grow({0, 2}, Duration(5));
  EXPECT_FALSE(alone.done());
  EXPECT_EQ(alone.chunk_state({0}), ChunkState::Own);
  alone.grow({2, 3}, Duration(9));
  ASSERT_TRUE(alone.done());
  EXPECT_EQ(alone.done_at(), Duration(9));
  EXPECT_EQ(total, own);
}

// Each chunk goes from this member's own part to the whole sum.
TEST(Reduction, ReportsTheStateOfEachChunk) {
  const Collective ring = make_ring(members(3));
  const Floats own(6, 1.0F);
  Floats total(6);
  Reduction part(ring, {0}, settings_of(Element::Float32),
                 {std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(total))});
  std::vector<ReductionCall> open;
  std::vector<std::string> seen;
  const auto look = [&] {
    std::string states;
    for (int32_t c = 0; c < 3; ++c) states += "opw"[static_cast<int>(part.chunk_state({c}))];
    if (seen.empty() || seen.back() != states) seen.push_back(states);
    for (const ReductionCall& call : part.startable()) open.push_back(call);
  };
  look();
  while (!open.empty()) {
    const ReductionCall call = open.front();
    open.erase(open.begin());
    part.finish(call.index, {});
    look();
  }
  ASSERT_TRUE(part.done());
  // Member 0 passes on a partial sum of chunk 2, completes chunk 1, and receives 0 and 2 complete.
  EXPECT_EQ(seen, (std::vector<std::string>{"ooo", "oop", "owp", "wwp", "www"}));
}

TEST(Reduction, ReceivesAheadAreBounded) {
  Collective star{members(40), 1, {Round{}}};
  for (int32_t m = 1; m < 40; ++m) star.rounds[0].moves.push_back({{m}, {0}, {0}, true});
  const Floats own(10);
  Floats total(10);
  Reduction root(star, {0}, settings_of(Element::Float32),
                 {std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(total))});
  EXPECT_EQ(root.startable().size(), static_cast<size_t>(kScratchSlots));
  EXPECT_TRUE(root.startable().empty());
  root.finish(0, {});
  EXPECT_EQ(root.startable().size(), 1U);
  EXPECT_FALSE(root.done());
}

// On the virtual clock each of the 2 (n - 1) rounds of a ring takes as long as a message, 10 ns.
TEST(Reduction, VirtualTimesAddUpOverTheRounds) {
  const Collective ring = make_ring(members(4));
  auto own = random_sums<float>(4, 16, 2);
  Net<float> net(ring, own, 3);
  net.run();
  for (size_t m = 0; m < 4; ++m) EXPECT_EQ(net.part(m).done_at(), Duration(60));
}

// Contributions are dealt to the members at random; every chunk ends with the tally of all.
TEST(Reduction, W4TalliesAddUpAsTheSumsDo) {
  Random random(5);
  for (int32_t count = 1; count <= 7; ++count) {
    const Collective ring = make_ring(members(count));
    std::vector<std::vector<Contribution>> brought(static_cast<size_t>(count));
    std::vector<Contribution> all;
    for (int32_t m = 0; m < 12; ++m) {
      all.push_back({{1}, {m}});
      brought[static_cast<size_t>(random.below(count))].push_back(all.back());
    }
    for (const size_t elements : {2, 9, 64}) {
      // 0: no bug; 1: one is left out; 2: one is summed twice; 3: one replaces another.
      for (int bug = 0; bug < 4; ++bug) {
        SCOPED_TRACE(testing::Message() << count << " members, bug " << bug);
        std::vector<std::vector<Contribution>> faulty = brought;
        const auto last = static_cast<size_t>(count) - 1;
        for (auto& each : faulty) {
          if (bug == 1 || bug == 3) std::erase(each, Contribution{{1}, {7}});
        }
        if (bug == 2 || bug == 3) faulty[last].push_back({{1}, {4}});
        std::vector<uint64_t> tallies;
        for (const auto& each : faulty) tallies.push_back(tally_of(each));
        auto own = random_sums<float>(static_cast<size_t>(count), elements, 8);
        Net<float> net(ring, own, 3, tallies);
        net.run();
        const uint64_t wanted = tally_of(all);
        for (size_t m = 0; m <= last; ++m) {
          ASSERT_TRUE(net.part(m).done());
          const uint64_t found = net.part(m).tally_beside(wanted);
          EXPECT_EQ(found == wanted, bug == 0) << "member " << m;
          if (bug == 0) continue;
          const std::string said = difference_of(all, found, faulty[m]);
          const bool twice = said.find("micro-batch 4 of stage 1 is in it twice") != said.npos;
          const bool gone = said.find("micro-batch 7 of stage 1 is not in it") != said.npos;
          EXPECT_EQ(gone, bug == 1 || bug == 3) << said;
          EXPECT_TRUE(bug != 2 || twice) << said;
          EXPECT_TRUE(bug != 3 || said.find("micro-batch 4 of stage 1 twice") != said.npos) << said;
        }
      }
    }
  }
}

// A stale message brings a part that the receiver has already: the tally shows it twice in the sum.
TEST(Reduction, W4AStalePartIsDetected) {
  const Collective pair{members(2), 1, {Round{{{{0}, {1}, {0}, true}, {{1}, {0}, {0}, true}}}}};
  const Floats own(4, 1.0F);
  Floats total(4);
  const uint64_t mine = tally_of(Contribution{{0}, {0}}), yours = tally_of(Contribution{{0}, {1}});
  for (const bool stale : {false, true}) {
    Reduction part(
        pair, {0}, settings_of(Element::Float32),
        {std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(total)), {}, mine});
    std::vector<int32_t> receives;
    for (const ReductionCall& call : part.startable()) {
      EXPECT_EQ(call.tally, call.send ? mine : 0);
      receives.push_back(call.index);
    }
    for (const int32_t index : receives) part.finish(index, {}, stale ? mine : yours);
    ASSERT_TRUE(part.done());
    EXPECT_EQ(part.tally_beside(mine + yours), stale ? 2 * mine : mine + yours);
  }
}

TEST(Tally, ErrorsNameUpToTwoContributions) {
  std::vector<Contribution> all;
  for (int32_t m = 0; m < 6; ++m) all.push_back({{2}, {m}});
  const auto said = [&](std::initializer_list<int32_t> in) {
    std::vector<Contribution> found;
    for (const int32_t m : in) found.push_back({{2}, {m}});
    return difference_of(all, tally_of(found), found);
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(said({0, 1, 2, 3}),
                  "micro-batch 4 of stage 2 and micro-batch 5 of stage 2 are "
                  "not in it") ||
              has(said({0, 1, 2, 3}),
                  "micro-batch 5 of stage 2 and micro-batch 4 of stage 2 are "
                  "not in it"));
  EXPECT_TRUE(has(said({0, 1, 2, 3}), "this worker contributed stage 2: 0-3"))
      << said({0, 1, 2, 3});
  EXPECT_TRUE(has(said({0, 1, 2, 3}), "must contain stage 2: 0-5, each once"));
  EXPECT_TRUE(has(said({0, 1, 2, 3, 4, 5, 5}), "micro-batch 5 of stage 2 is in it twice"));
  EXPECT_TRUE(has(said({0}), "more than two of them"));
  EXPECT_TRUE(has(said({}), "this worker contributed nothing"));
}

TEST(Tally, ErrorsNameContributionsAmongVeryMany) {
  std::vector<Contribution> all;
  for (int32_t m = 0; m < 20'000; ++m) all.push_back({{0}, {m}});
  std::vector<Contribution> found = all;
  std::erase(found, Contribution{{0}, {7}});
  found.push_back({{0}, {19'998}});
  const std::string said = difference_of(all, tally_of(found), found);
  EXPECT_NE(said.find("micro-batch 7 of stage 0 is not in it, and micro-batch 19998 of stage 0 "
                      "twice"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace tenuto
