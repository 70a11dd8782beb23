// Which all-reduce a call uses: the reason that is given, what changes the choice, and that all
// members choose the same.
#include "collective/choose.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/text.h"
#include "collective/algorithm.h"
#include "collective/late.h"

namespace tenuto {
namespace {

const AlphaBeta kLink{std::chrono::microseconds(10), 12.5e9};
constexpr int64_t kLarge = int64_t{64} << 20;

// A call in which `late` comes `late_us` after all others.
std::vector<uint32_t> waits(int32_t members, int32_t late = 0, uint32_t late_us = 0) {
  std::vector<uint32_t> waited(static_cast<size_t>(members), 2000);
  waited[static_cast<size_t>(late)] += late_us;
  return waited;
}

// The number of calls until the chooser waits for `late`; -1: more than `most`.
int32_t calls_until_late(AlgorithmChooser& chooser, const std::vector<uint32_t>& waited,
                         int32_t late, int32_t most) {
  for (int32_t call = 1; call <= most; ++call) {
    const Choice choice = chooser.choose(kLarge);
    if (choice.algorithm == "late-one" && choice.late == late) return call;
    chooser.note(waited, kLarge);
  }
  return -1;
}

// The closed form gives the same length as the rounds themselves.
TEST(Choose, EarlyLengthEqualsTheLengthOfTheRounds) {
  for (int32_t count = 2; count <= 70; ++count) {
    for (const int32_t asked :
         {1, 2, 3, 5, count / 2, count - 2, count - 1, count, 3 * count + 1}) {
      if (asked < 1) continue;
      const int32_t chunks = late_chunks(count, asked);
      CollectiveShape shape;
      for (int32_t i = 0; i < count; ++i) shape.members.push_back({i});
      shape.chunks = chunks;
      shape.late = {{count - 1}};
      const auto made = make_procedure("late-one", shape);
      ASSERT_TRUE(made.ok()) << made.error().message;
      const auto& all = made.value().collective.rounds;
      const auto end = all.end() - exchange_rounds(count, chunks);
      const RoundLength found = length_of({all.begin(), end});
      const RoundLength counted = early_length(count, chunks);
      EXPECT_EQ(counted.rounds, found.rounds) << "n " << count << " k " << chunks;
      EXPECT_EQ(counted.chunks, found.chunks) << "n " << count << " k " << chunks;
    }
  }
}

TEST(Choose, GivesAReason) {
  AlgorithmChooser chooser(8, kLink);
  const auto said = [&](int64_t bytes) {
    const Choice choice = chooser.choose(bytes);
    return cat(choice.algorithm, " ", choice.chunks, " ", choice.late, ": ", choice.reason);
  };
  EXPECT_EQ(said(kLarge), "ring 0 -1: the first 3 calls measure who is late, 0 are done");
  for (int i = 0; i < 4; ++i) chooser.note(waits(8, 3, 12'100), kLarge);
  EXPECT_EQ(said(kLarge),
            "late-one 35 3: member 3 came 12.1 ms after the others in 4 of 4 calls; late-one saves "
            "3.5 ms of 9.5 ms a call");
  // A kilobyte: only the number of rounds counts, and all times are microseconds.
  EXPECT_EQ(said(1024),
            "late-one 1 3: member 3 came 12.1 ms after the others in 4 of 4 calls; late-one saves "
            "0.030 ms of 0.060 ms a call");
  for (int i = 0; i < 20; ++i) chooser.note(waits(8, 3, 700), kLarge);
  EXPECT_EQ(said(kLarge),
            "ring 0 -1: member 3 came 0.700 ms after the others in 16 of 16 calls; late-one would "
            "lose 0.472 ms of 9.5 ms a call");
  EXPECT_EQ(AlgorithmChooser(2, kLink).choose(kLarge).reason,
            "with 2 members no two can add up while one is late");
}

// Nobody is late: halving if the rounds dominate the cost, the ring if the bytes do.
TEST(Choose, NobodyIsLate) {
  for (const int32_t count : {1, 2, 3, 4, 7, 8, 64}) {
    AlgorithmChooser chooser(count, kLink);
    for (int i = 0; i < 20; ++i) chooser.note(waits(count), kLarge);
    EXPECT_EQ(chooser.choose(int64_t{1} << 30).algorithm, "ring") << count;
    EXPECT_EQ(chooser.choose(1024).algorithm, count <= 3 ? "ring" : "halving") << count;
    EXPECT_EQ(chooser.choose(0).late, -1) << count;
  }
}

// Lateness from the first call on, and lateness after a hundred calls with another member slightly
// late.
TEST(Choose, PersistentLatenessIsWaitedForWithinFourCalls) {
  for (const int32_t count : {4, 5, 6, 7, 8, 16, 64}) {
    AlgorithmChooser chooser(count, kLink);
    AlgorithmChooser certain(count, kLink);
    for (int i = 0; i < 4; ++i) certain.note(waits(count, 2, 10'000'000), kLarge);
    const int32_t chunks = certain.choose(kLarge).chunks;
    const Duration sum = early_sum_time(count, chunks, {kLarge}, kLink);
    // The lateness at which late-one (early sum and exchange) costs as much as the ring.
    const Duration even = sum + late_exchange_time(count, chunks, {kLarge}, kLink) -
                          ring_time(count, {kLarge}, kLink);
    const auto us = [](Duration time) { return static_cast<uint32_t>(time.count() / 1000); };
    EXPECT_EQ(calls_until_late(chooser, waits(count, 2, us(even + sum)), 2, 10), 4) << count;
    AlgorithmChooser other(count, kLink);
    EXPECT_EQ(calls_until_late(other, waits(count, 1, us(even) * 9 / 10), 1, 100), -1) << count;
    EXPECT_LE(calls_until_late(other, waits(count, 2, us(even + sum)), 2, 10), 5) << count;
  }
}

// The closed form gives the number of chunks, but no chunk is smaller than 16 KiB.
TEST(Choose, ChunksOfSixteenKibibytesAtLeast) {
  for (const int32_t count : {4, 6, 7, 8, 64}) {
    AlgorithmChooser chooser(count, {std::chrono::microseconds(1), 50e9});
    for (int i = 0; i < 8; ++i) chooser.note(waits(count, 1, 1'000'000), kLarge);
    for (int64_t bytes = 1; bytes <= int64_t{1} << 34; bytes = bytes * 7 / 2 + 1) {
      const Choice choice = chooser.choose(bytes);
      ASSERT_EQ(choice.algorithm, "late-one") << count << " " << bytes;
      EXPECT_TRUE(choice.chunks == 1 || bytes / choice.chunks >= 16 << 10)
          << count << " " << bytes << " " << choice.chunks;
      EXPECT_EQ(late_chunks(count, choice.chunks), choice.chunks) << count << " " << bytes;
      if (bytes >= int64_t{1} << 28) {
        EXPECT_GT(choice.chunks, 20) << count << " " << bytes;
      }
    }
  }
}

std::vector<uint32_t> drawn_waits(Random& random, int32_t members) {
  std::vector<uint32_t> waited(static_cast<size_t>(members));
  for (uint32_t& one : waited) one = static_cast<uint32_t>(random.below(3000));
  if (random.below(3) > 0) waited[static_cast<size_t>(random.below(2))] += 40'000;
  return waited;
}

// Members that note the same calls choose the same, whatever else each of them asks.
TEST(Choose, AllMembersAgree) {
  const uint64_t seed = 3;
  Random random(seed);
  const int32_t count = 6;
  std::vector<AlgorithmChooser> choosers(static_cast<size_t>(count),
                                         AlgorithmChooser(count, kLink));
  for (int call = 0; call < 10'000; ++call) {
    const int64_t bytes = int64_t{1} << (10 + random.below(18));
    const std::vector<uint32_t> waited = drawn_waits(random, count);
    const Choice first = choosers[0].choose(bytes);
    for (size_t i = 0; i < choosers.size(); ++i) {
      if (i % 2 == 1) choosers[i].choose(bytes * 2 + static_cast<int64_t>(i));
      const Choice choice = choosers[i].choose(bytes);
      ASSERT_EQ(choice.algorithm, first.algorithm) << "seed " << seed << " call " << call;
      ASSERT_EQ(choice.late, first.late) << "seed " << seed << " call " << call;
      ASSERT_EQ(choice.chunks, first.chunks) << "seed " << seed << " call " << call;
      choosers[i].note(waited, bytes);
      ASSERT_EQ(choosers[i].fingerprint(), choosers[0].fingerprint()) << "seed " << seed;
    }
  }
}

// If one number of one call differs, the fingerprints differ from then on.
TEST(Choose, AnyDifferenceChangesTheFingerprint) {
  const uint64_t seed = 4;
  Random random(seed);
  const int32_t count = 5;
  for (int trial = 0; trial < 300; ++trial) {
    AlgorithmChooser one(count, kLink), other(count, kLink);
    for (int call = 0; call < 6; ++call) {
      std::vector<uint32_t> waited = drawn_waits(random, count);
      one.note(waited, kLarge);
      if (call == 2) waited[static_cast<size_t>(random.below(count))] ^= 1u << random.below(32);
      other.note(waited, kLarge);
      ASSERT_EQ(one.fingerprint() == other.fingerprint(), call < 2) << "seed " << seed;
    }
  }
  ChooserRules rules;
  rules.least_hits = 2;
  const uint64_t plain = AlgorithmChooser(count, kLink).fingerprint();
  EXPECT_NE(AlgorithmChooser(count, kLink, rules).fingerprint(), plain);
  EXPECT_NE(AlgorithmChooser(count + 1, kLink).fingerprint(), plain);
  EXPECT_NE(AlgorithmChooser(count, {kLink.alpha, kLink.bytes_per_second + 1e6}).fingerprint(),
            plain);
  AlgorithmChooser one(count, kLink), other(count, kLink);
  one.note(waits(count), kLarge);
  other.note(waits(count), kLarge + 1);
  EXPECT_NE(one.fingerprint(), other.fingerprint());
}

// Nothing overflows with the largest numbers, a link without cost, or empty tensors.
TEST(Choose, Extremes) {
  for (const AlphaBeta link : {AlphaBeta{}, AlphaBeta{Duration(1), 0.1}, AlphaBeta{{}, 1e30}}) {
    for (const int32_t count : {1, 2, 3, 6, 1024}) {
      AlgorithmChooser chooser(count, link);
      for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1} << 50}) {
        for (int i = 0; i < 5; ++i) {
          chooser.note(waits(count, count / 2, 0xfffff000), bytes);
          const Choice choice = chooser.choose(bytes);
          EXPECT_NE(find_algorithm(choice.algorithm), nullptr);
          EXPECT_GE(choice.chunks, choice.late < 0 ? 0 : 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tenuto
