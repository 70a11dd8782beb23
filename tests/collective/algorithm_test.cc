// Every algorithm of the table is right, has the rounds that its card says, and refuses shapes that
// it does not support.
#include "collective/algorithm.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "collective/shapes.h"
#include "ir/check.h"
#include "ir/golden.h"
#include "ir/text.h"
#include "sanitized.h"

namespace tenuto {
namespace {

TEST(Algorithm, EverySizeIsRight) {
  const int32_t most = kSanitized ? 20 : 70;
  for (const NamedAlgorithm& algorithm : algorithms()) {
    for (int32_t count = 1; count <= most; ++count) {
      if (!takes(algorithm.card, count)) continue;
      for (const int32_t chunks : {0, 1, 2, 5, 2 * count + 1}) {
        if (chunks != 0 && !algorithm.card.free_chunks) continue;
        SCOPED_TRACE(cat(algorithm.card.name, " n ", count, " k ", chunks));
        const auto made =
            make_procedure(algorithm.card.name, shape_for(algorithm.card, count, chunks));
        ASSERT_TRUE(made.ok()) << made.error().message;
        const Procedure& procedure = made.value();
        const auto facts = check(procedure);
        ASSERT_TRUE(facts.ok()) << facts.error().message;
        EXPECT_EQ(procedure.name, algorithm.card.name);
        EXPECT_EQ(procedure.goal, algorithm.card.goal);
        EXPECT_LE(facts.value().port_messages, 1);
        EXPECT_EQ(facts.value().idle_puts, 0);
        if (!procedure.sections.empty()) {
          EXPECT_EQ(procedure.sections.back().round_end, facts.value().rounds);
        }
        if (algorithm.card.round_count == nullptr) continue;
        const auto rounds = algorithm.card.round_count(count, procedure.collective.chunk_count);
        EXPECT_EQ(last_rounds(procedure), rounds);
      }
    }
  }
}

// Each member receives and sends 2 (n - 1) / n of the tensor, as the card says.
TEST(Algorithm, BandwidthOptimalAlgorithmsMoveTheLeastBytes) {
  for (const char* name : {"ring", "halving", "direct"}) {
    for (const int32_t count : {2, 3, 6, 7, 8, 13, 16, 33}) {
      const auto made = make_procedure(name, shape_for({}, count));
      const auto facts = check(made.value());
      EXPECT_EQ(facts.value().most_sent, 2 * (count - 1)) << name << count;
      EXPECT_EQ(facts.value().most_received, 2 * (count - 1)) << name << count;
    }
  }
}

TEST(Algorithm, TreeRoundsNearTheCard) {
  for (const int32_t count : {4, 7, 8, 16, 33, 64}) {
    CollectiveShape shape = shape_for({}, count);
    shape.chunks = 100;
    const auto made = make_procedure("tree", shape);
    EXPECT_LE(made.value().collective.rounds.size(),
              static_cast<size_t>(3 * doublings(count) + 250));
  }
}

TEST(Algorithm, LateTogetherNeedsFewerRoundsThanTheRing) {
  // Rounds per chunk after the late members have come; the ring takes 2 (n - 1) / n.
  const auto rounds = [](int32_t count, int32_t late) {
    CollectiveShape shape = shape_for({}, count);
    for (int32_t i = 0; i < late; ++i) shape.late.push_back(shape.members[static_cast<size_t>(i)]);
    const auto made = make_procedure("late-together", shape);
    EXPECT_TRUE(check(made.value()).ok());
    return static_cast<double>(last_rounds(made.value())) / made.value().collective.chunk_count;
  };
  EXPECT_LE(rounds(8, 2), 1.40);
  EXPECT_LE(rounds(16, 2), 1.25);
  EXPECT_LE(rounds(16, 4), 1.45);
  EXPECT_LE(rounds(32, 2), 1.15);
  EXPECT_LE(rounds(32, 4), 1.25);
}

TEST(Algorithm, Refusals) {
  const auto message = [](std::string_view name, const CollectiveShape& shape, Code code) {
    const auto made = make_procedure(name, shape);
    EXPECT_FALSE(made.ok());
    if (made.ok()) return std::string();
    EXPECT_EQ(made.error().code, code);
    return made.error().message;
  };
  const std::vector<WorkerId> four = {{0}, {1}, {2}, {3}};
  EXPECT_EQ(message("rign", {four}, Code::Invalid),
            "there is no algorithm 'rign': did you mean 'ring'?");
  EXPECT_EQ(message("ring", {}, Code::Invalid), "a collective needs a member");
  EXPECT_EQ(message("ring", {{{1}, {1}}}, Code::Invalid),
            "the members must be different workers, found 1 again");
  EXPECT_EQ(message("ring", {four, 9}, Code::Infeasible),
            "ring has one chunk for each member, found 9 for 4: leave the chunks out");
  EXPECT_EQ(message("late-one", {four}, Code::Infeasible),
            "late-one of 4 members takes 1 late one, found 0");
  EXPECT_EQ(message("late-join", {four, 0, {{0}, {1}, {2}}}, Code::Infeasible),
            "late-join of 4 members takes 1 to 2 late ones, found 3");
  EXPECT_EQ(message("late-one", {four, 0, {{7}}}, Code::Invalid), "late worker 7 is no member");
  EXPECT_EQ(message("late-join", {four, 0, {{1}, {1}}}, Code::Invalid),
            "late worker 1 comes twice");
  EXPECT_EQ(message("late-one", {{{0}}, 0, {{0}}}, Code::Infeasible),
            "late-one needs two members, found 1");
  EXPECT_EQ(message("broadcast", {four, 0, {}, {9}}, Code::Invalid), "root 9 is no member");
  EXPECT_EQ(message("broadcast", {four, -1}, Code::Invalid),
            "expected 1 to 1048576 chunks, found -1");
  EXPECT_EQ(message("tree", {shape_for({}, 100).members, 1 << 20}, Code::Infeasible),
            "members x chunks are 104857600: expected 16777216 at most, take fewer chunks");
}

TEST(Algorithm, TextReadsBackEqual) {
  for (const NamedAlgorithm& algorithm : algorithms()) {
    const auto made = make_procedure(algorithm.card.name, shape_for(algorithm.card, 7));
    const std::string text = to_text(made.value());
    const auto read = procedure_from_text(text, "here");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read.value(), made.value()) << text;
  }
  const auto message = [](std::string_view text) {
    const auto read = procedure_from_text(text, "here");
    return read.ok() ? std::string() : read.error().message;
  };
  EXPECT_EQ(message("\n# nothing\n"),
            "here: expected a procedure, such as 'ring all-reduce members 0 1 chunks 2', found "
            "nothing");
  EXPECT_EQ(
      message("mine sum members 0 1"),
      "here, line 1: expected all-reduce, reduce-scatter or all-gather behind the name, found "
      "'sum'");
  EXPECT_EQ(message("mine all-reduce members 0 x"),
            "here, line 1: expected members, chunks, late or owners, with numbers, found 'x'");
  EXPECT_EQ(message("mine all-reduce chunks"),
            "here, line 1: expected a count behind chunks, found ''");
  EXPECT_EQ(message("mine all-reduce members 0 1 chunks 1\n round 0>1.0+\n rund"),
            "here, line 3: expected round or section, found 'rund'");
  EXPECT_EQ(message("mine all-reduce members 0 1 chunks 1\n round 0>1"),
            "here, line 2: expected a move such as 0>1.0 or 0>1.0+, found '0>1'");
}

TEST(Algorithm, Table) {
  std::set<std::string> names;
  for (const NamedAlgorithm& algorithm : algorithms()) {
    const AlgorithmCard& card = algorithm.card;
    EXPECT_TRUE(names.insert(card.name).second) << card.name;
    EXPECT_EQ(find_algorithm(card.name), &algorithm);
    for (const std::string* words :
         {&card.summary, &card.rounds, &card.bytes, &card.phases, &card.source, &card.good_for}) {
      EXPECT_FALSE(words->empty()) << card.name;
    }
  }
  EXPECT_EQ(find_algorithm("ruler"), nullptr);
}

TEST(Algorithm, Golden) {
  const auto expect = [](const std::string& file, const char* name, int32_t count, int32_t chunks,
                         std::vector<WorkerId> late) {
    CollectiveShape shape;
    for (int32_t i = 0; i < count; ++i) shape.members.push_back({i});
    shape.chunks = chunks;
    shape.late = std::move(late);
    const auto made = make_procedure(name, shape);
    ASSERT_TRUE(made.ok()) << made.error().message;
    expect_golden("collective/golden/" + file, to_text(made.value()));
  };
  expect("halving-6.txt", "halving", 6, 0, {});
  expect("tree-5.txt", "tree", 5, 4, {});
  expect("late-one-5.txt", "late-one", 5, 4, {{4}});
  expect("late-one-6-late-2.txt", "late-one", 6, 3, {{2}});
  expect("late-one-7.txt", "late-one", 7, 6, {{6}});
  expect("late-one-8.txt", "late-one", 8, 7, {{7}});
  expect("late-join-6.txt", "late-join", 6, 5, {{1}, {4}});
  expect("late-together-5.txt", "late-together", 5, 6, {{3}, {4}});
  expect("slow-one-5.txt", "slow-one", 5, 8, {{4}});
  expect("slow-one-8.txt", "slow-one", 8, 14, {{7}});
  expect("broadcast-6.txt", "broadcast", 6, 3, {});
}

}  // namespace
}  // namespace tenuto
