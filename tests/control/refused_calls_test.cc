// Refused calls are kept in small number and for a limited time; the clock is an argument.
#include "control/refused_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace tenuto {
namespace {

constexpr Duration kStep = std::chrono::milliseconds(1);

TEST(RefusedCalls, OneMoreTakesThePlaceOfTheOldest) {
  RefusedCalls calls;
  std::vector<size_t> cancelled;
  std::vector<int> names(RefusedCalls::kMost + 3);
  for (size_t i = 0; i < names.size(); ++i) {
    calls.add(
        &names[i], [&cancelled, i] { cancelled.push_back(i); }, Duration{});
  }
  EXPECT_EQ(calls.size(), RefusedCalls::kMost);
  EXPECT_EQ(cancelled, (std::vector<size_t>{0, 1, 2}));
}

TEST(RefusedCalls, ALateOneIsCancelledAndOneThatLeftIsNot) {
  RefusedCalls calls;
  std::vector<int> cancelled;
  const int first = 0, second = 0, third = 0;
  EXPECT_EQ(calls.next(), Duration::max());
  calls.add(
      &first, [&] { cancelled.push_back(1); }, Duration{});
  calls.add(
      &second, [&] { cancelled.push_back(2); }, kStep);
  calls.add(
      &third, [&] { cancelled.push_back(3); }, 2 * kStep);
  EXPECT_EQ(calls.next(), RefusedCalls::kLimit);
  calls.remove(&second);
  calls.cancel_late(RefusedCalls::kLimit - kStep);
  EXPECT_TRUE(cancelled.empty());
  calls.cancel_late(RefusedCalls::kLimit + kStep);
  EXPECT_EQ(cancelled, std::vector<int>{1});
  EXPECT_EQ(calls.next(), RefusedCalls::kLimit + 2 * kStep);
  calls.cancel_late(RefusedCalls::kLimit + 2 * kStep);
  EXPECT_EQ(cancelled, (std::vector<int>{1, 3}));
  EXPECT_EQ(calls.size(), 0u);
}

// Against a plain list of all calls, at drawn moments.
TEST(RefusedCalls, EachIsCancelledOnceOrLeaves) {
  enum class Fate { Kept, Left, Cancelled };
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    RefusedCalls calls;
    constexpr size_t kAll = 2'000;
    std::vector<Fate> fates, expected;
    std::vector<Duration> added;
    fates.reserve(kAll);  // its elements are the calls' names
    Duration now{};
    const auto end_oldest = [&] {
      const auto oldest = std::find(expected.begin(), expected.end(), Fate::Kept);
      *oldest = Fate::Cancelled;
    };
    while (fates.size() < kAll) {
      now += random.below(8) * kStep;
      const int64_t what = random.below(4);
      if (what > 0) {
        if (std::count(expected.begin(), expected.end(), Fate::Kept) ==
            static_cast<std::ptrdiff_t>(RefusedCalls::kMost)) {
          end_oldest();
        }
        const size_t i = fates.size();
        fates.push_back(Fate::Kept);
        expected.push_back(Fate::Kept);
        added.push_back(now);
        const auto cancel = [&fates, i] {
          EXPECT_EQ(fates[i], Fate::Kept);
          fates[i] = Fate::Cancelled;
        };
        calls.add(&fates[i], cancel, now);
      } else if (!fates.empty()) {
        const auto i = static_cast<size_t>(random.below(static_cast<int64_t>(fates.size())));
        calls.remove(&fates[i]);
        if (fates[i] == Fate::Kept) fates[i] = Fate::Left;
        if (expected[i] == Fate::Kept) expected[i] = Fate::Left;
      }
      calls.cancel_late(now);
      for (size_t i = 0; i < added.size(); ++i) {
        if (expected[i] == Fate::Kept && now >= added[i] + RefusedCalls::kLimit) {
          expected[i] = Fate::Cancelled;
        }
      }
      ASSERT_EQ(fates, expected) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tenuto
