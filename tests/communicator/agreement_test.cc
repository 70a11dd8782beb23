// Agreement: what members tell each other, what they conclude, and which messages they refuse.
#include "communicator/agreement.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

MemberSet set_of(int32_t members, const std::vector<int32_t>& places) {
  MemberSet set(members);
  for (const int32_t place : places) set.add(place);
  return set;
}

MemberReport drawn_report(Random& random, int32_t members) {
  const auto drawn_set = [&] {
    MemberSet set(members);
    for (int32_t place = 0; place < members; ++place) {
      if (random.below(2) == 1) set.add(place);
    }
    return set;
  };
  MemberReport report;
  report.next = random.below(9);
  report.calls.resize(static_cast<size_t>(random.below(4)));
  for (CallReport& call : report.calls) {
    call.number = random.below(100);
    call.generation = random.below(5) - 1;
    call.fingerprint = random.next();
    call.elements = random.below(1000);
    call.chunks = static_cast<int32_t>(random.below(5));
    call.completes = random.below(2) == 1;
    call.intact = random.below(2) == 1;
    call.lost = random.below(2) == 1;
    call.holding.ended = random.below(2) == 1;
    if (call.holding.ended) call.holding.contributors = drawn_set();
    call.holding.chunks.resize(static_cast<size_t>(call.chunks));
    for (ChunkHolding& chunk : call.holding.chunks) chunk = {random.below(2) == 1, drawn_set()};
  }
  report.messages.resize(static_cast<size_t>(random.below(4)));
  for (OpenMessage& each : report.messages) {
    each = {{static_cast<int32_t>(random.below(members))},
            random.below(2) == 1,
            {random.below(9), random.below(9), random.next()},
            random.below(1 << 20)};
  }
  return report;
}

TEST(Agreement, ReportsGoOverTheWire) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Random random(mix(61, seed));
    const auto members = static_cast<int32_t>(1 + random.below(130));
    const MemberReport report = drawn_report(random, members);
    const std::vector<int64_t> words = to_words(report);
    const auto back = report_from_words(words, members);
    ASSERT_TRUE(back.ok()) << "seed " << seed;
    ASSERT_EQ(to_words(back.value()), words) << "seed " << seed;
    ASSERT_EQ(back.value().calls.size(), report.calls.size());
    for (size_t i = 0; i < report.calls.size(); ++i) {
      const CallReport& one = report.calls[i];
      const CallReport& other = back.value().calls[i];
      ASSERT_EQ(one.number, other.number) << "seed " << seed;
      ASSERT_EQ(one.generation, other.generation) << "seed " << seed;
      ASSERT_EQ(one.lost, other.lost) << "seed " << seed;
      ASSERT_EQ(one.holding.chunks, other.holding.chunks) << "seed " << seed;
    }
  }
}

TEST(Agreement, DamagedReportsAreRefused) {
  int64_t refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(mix(62, seed));
    const auto members = static_cast<int32_t>(1 + random.below(70));
    std::vector<int64_t> words = to_words(drawn_report(random, members));
    const bool shorter = random.below(2) == 1;
    if (shorter) {
      words.resize(static_cast<size_t>(random.below(std::ssize(words))));
    } else {
      words[static_cast<size_t>(random.below(std::ssize(words)))] =
          random.below(2) == 1 ? static_cast<int64_t>(random.next()) : random.below(20);
    }
    const auto back = report_from_words(words, members);  // must return, whatever the words are
    EXPECT_FALSE(shorter && back.ok()) << "seed " << seed;
    refused += !back.ok();
  }
  EXPECT_GT(refused, 1000);
}

TEST(Agreement, ADifferentSetOfDeadBeginsTheNextAttempt) {
  Agreement mine(4, 0, 3);
  mine.lose(3);
  mine.begin({});
  EXPECT_EQ(mine.attempt(), 1);
  EXPECT_EQ(mine.stand(), Agreement::Stand::Waits);
  EXPECT_EQ(mine.missing(), set_of(4, {1, 2}));
  for (const int32_t peer : {1, 2}) {
    mine.hear_dead(1, peer, set_of(4, {3}));
    EXPECT_EQ(mine.stand(), Agreement::Stand::Waits);
    mine.hear_report(1, peer, {});
  }
  EXPECT_EQ(mine.stand(), Agreement::Stand::Agreed);
  // A member that had not heard of the death yet begins the next attempt, too.
  Agreement other(4, 1, 3);
  other.begin({});
  other.hear_dead(1, 0, set_of(4, {3}));
  EXPECT_EQ(other.stand(), Agreement::Stand::Next);
  // So does a member that knew of it, when the other's set of dead lacks a member.
  Agreement third(4, 2, 3);
  third.lose(3);
  third.begin({});
  third.hear_dead(1, 1, set_of(4, {}));
  EXPECT_EQ(third.stand(), Agreement::Stand::Next);
  // Messages of other attempts are ignored.
  third.begin({});
  third.hear_dead(1, 1, set_of(4, {0}));
  EXPECT_EQ(third.stand(), Agreement::Stand::Waits);
}

TEST(Agreement, TooFewSurvivorsAndExpelledMembersAreRefused) {
  Agreement few(4, 0, 3);
  few.lose(2);
  few.lose(3);
  few.begin({});
  EXPECT_EQ(few.stand(), Agreement::Stand::Refused);
  EXPECT_EQ(few.refusal(),
            "of 4 members 2 are alive, expected at least 3: the others may be alive and continue "
            "without these");
  Agreement out(4, 0, 2);
  out.begin({});
  out.hear_dead(1, 1, set_of(4, {0}));
  EXPECT_EQ(out.stand(), Agreement::Stand::Refused);
  EXPECT_EQ(out.refusal(), "the other members have declared this one dead");
}

// Three survivors of four members, and their reports about call 7.
class Decisions : public testing::Test {
 protected:
  Decisions() {
    for (const size_t place : {0, 1, 2}) {
      reports_[place].next = 8;
      CallReport& call = reports_[place].calls.emplace_back();
      call.number = 7;
      call.fingerprint = 5;
      call.elements = 10;
      call.chunks = 1;
      call.completes = call.intact = true;
      call.holding.chunks = {{true, MemberSet(4)}};
    }
  }
  CallReport& call(size_t place) { return reports_[place].calls.front(); }
  void end(size_t place) { call(place).holding = {{}, true, set_of(4, {0, 1, 2, 3})}; }
  CallOutcomes decided() { return outcomes_of_calls(members_, set_of(4, {0, 1, 2}), reports_); }
  CallOutcome::Kind kind() {
    const CallOutcomes outcomes = decided();
    EXPECT_FALSE(outcomes.broken) << *outcomes.broken;
    return outcomes.calls.at(7).kind;
  }

  const std::vector<WorkerId> members_{{0}, {1}, {2}, {3}};
  std::vector<MemberReport> reports_{4};
};

TEST_F(Decisions, ACallThatAllHaveBegunIsCompleted) {
  EXPECT_EQ(kind(), CallOutcome::Kind::Complete);
  EXPECT_EQ(decided().calls.at(7).completion.contributors, set_of(4, {0, 1, 2}));
  end(1);
  EXPECT_EQ(decided().calls.at(7).completion.contributors, set_of(4, {0, 1, 2, 3}));
  end(0);
  end(2);
  EXPECT_TRUE(decided().calls.empty()) << "it is over";
}

TEST_F(Decisions, ACallThatSomeHaveNotBegunIsRepeated) {
  reports_[2].calls.clear();
  reports_[2].next = 7;
  EXPECT_EQ(kind(), CallOutcome::Kind::Again);
  call(1).intact = false;
  EXPECT_EQ(kind(), CallOutcome::Kind::Lost);
  end(0);
  EXPECT_TRUE(decided().broken) << "it cannot have ended";
}

TEST_F(Decisions, ACallOfAnotherGenerationIsRepeated) {
  call(1).generation = 2;
  EXPECT_EQ(kind(), CallOutcome::Kind::Again);
  call(1).generation = -1;
  EXPECT_EQ(kind(), CallOutcome::Kind::Again);
}

TEST_F(Decisions, ACallLostForOneIsLostForAll) {
  call(0).lost = true;
  EXPECT_EQ(kind(), CallOutcome::Kind::Lost);
  end(1);
  EXPECT_TRUE(decided().broken);
  end(2);
  EXPECT_TRUE(decided().calls.empty());
}

TEST_F(Decisions, AReleasedCallThatOthersNeedEndsTheGroup) {
  reports_[0].calls.clear();
  const CallOutcomes outcomes = decided();
  ASSERT_TRUE(outcomes.broken);
  EXPECT_NE(outcomes.broken->find("have released its memory"), std::string::npos);
}

TEST_F(Decisions, DifferingFingerprintsEndTheGroup) {
  call(2).fingerprint = 6;
  const CallOutcomes outcomes = decided();
  ASSERT_TRUE(outcomes.broken);
  EXPECT_NE(outcomes.broken->find("made different calls as call 7"), std::string::npos);
}

TEST_F(Decisions, CallsWithoutIntactInputsAreLost) {
  for (const size_t place : {0, 1, 2}) call(place).completes = call(place).intact = false;
  EXPECT_EQ(kind(), CallOutcome::Kind::Lost);
}

}  // namespace
}  // namespace tenuto
