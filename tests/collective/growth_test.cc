// Chunks travel in the order in which a growing tensor completes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "collective/slice.h"

namespace tenuto {
namespace {

using Parts = std::vector<ElementRange>;
using Delays = std::vector<int32_t>;

TEST(DelaysByGrowth, FromTheEndToTheStart) {
  const Parts parts = {{6, 8}, {3, 6}, {0, 3}};
  EXPECT_EQ(delays_by_growth(8, 4, parts), (Delays{3, 2, 1, 0}));
}

// The matrices are [0, 6), the vectors [6, 8). The chunk of the vectors waits for the vector of the
// lowest layer, which is the last but one to come.
TEST(DelaysByGrowth, OfMatricesAndVectors) {
  const Parts parts = {{7, 8}, {3, 6}, {6, 7}, {0, 3}};
  EXPECT_EQ(delays_by_growth(8, 4, parts), (Delays{3, 2, 0, 1}));
}

TEST(DelaysByGrowth, ChunksThatAreCompleteTogetherComeFromTheEnd) {
  EXPECT_EQ(delays_by_growth(9, 3, Parts{{0, 9}}), (Delays{2, 1, 0}));
  EXPECT_EQ(delays_by_growth(9, 3, {}), (Delays{2, 1, 0}));
  EXPECT_EQ(delays_by_growth(0, 2, {}), (Delays{1, 0}));
  EXPECT_EQ(delays_by_growth(0, 2, Parts{{0, 0}}), (Delays{1, 0}));
  EXPECT_EQ(delays_by_growth(5, 1, Parts{{4, 5}, {0, 2}}), (Delays{0}));
}

// Chunk 1 is in no part; it could leave at once.
TEST(DelaysByGrowth, WhatIsInNoPartIsThereFromTheStart) {
  EXPECT_EQ(delays_by_growth(6, 3, Parts{{4, 6}, {0, 2}}), (Delays{2, 0, 1}));
}

// Beside the definition, element by element: parts overlap, are empty or leave gaps, and there may
// be more chunks than elements.
TEST(DelaysByGrowth, IsThatOfEachElement) {
  Random random(5);
  for (int round = 0; round < 3000; ++round) {
    const int64_t elements = random.below(13);
    const auto chunks = static_cast<int32_t>(1 + random.below(9));
    std::vector<size_t> complete(static_cast<size_t>(elements));  // parts until it is
    Parts parts(static_cast<size_t>(random.below(6)));
    for (size_t p = 0; p < parts.size(); ++p) {
      parts[p].first = random.below(elements + 1);
      parts[p].end = parts[p].first + random.below(elements + 1 - parts[p].first);
      std::fill(complete.begin() + parts[p].first, complete.begin() + parts[p].end, p + 1);
    }
    const Delays delays = delays_by_growth(elements, chunks, parts);
    ASSERT_EQ(std::ssize(delays), chunks);
    std::vector<size_t> grown;  // by delay
    std::vector<int32_t> chunk(delays.size(), -1);
    for (int32_t c = 0; c < chunks; ++c) {
      const int32_t delay = delays[static_cast<size_t>(c)];
      ASSERT_TRUE(delay >= 0 && delay < chunks);
      ASSERT_EQ(chunk[static_cast<size_t>(delay)], -1) << "two chunks have this delay";
      chunk[static_cast<size_t>(delay)] = c;
    }
    for (const int32_t c : chunk) {
      const ElementRange range = chunk_range(elements, c, chunks);
      size_t parts_needed = 0;
      for (int64_t i = range.first; i < range.end; ++i) {
        parts_needed = std::max(parts_needed, complete[static_cast<size_t>(i)]);
      }
      grown.push_back(parts_needed);
    }
    EXPECT_TRUE(std::is_sorted(grown.begin(), grown.end())) << "round " << round;
    for (size_t i = 1; i < grown.size(); ++i) {
      if (grown[i - 1] != grown[i]) continue;
      EXPECT_GT(chunk[i - 1], chunk[i]) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace tenuto
