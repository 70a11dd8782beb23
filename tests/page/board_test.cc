// How often something new is due.
#include "page/board.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace tenuto::page {
namespace {

constexpr Duration kMillisecond = std::chrono::milliseconds(1);

TEST(Board, IsDueOftenWhileSomebodyLooks) {
  Board<int> board;
  Duration now = 100 * kMillisecond;
  EXPECT_EQ(board.look(now), nullptr);
  EXPECT_TRUE(board.is_due(now));
  board.show(std::make_shared<const int>(1), now);
  EXPECT_EQ(*board.look(now), 1);
  EXPECT_FALSE(board.is_due(now + Board<int>::kWatched - kMillisecond));
  now += Board<int>::kWatched;
  EXPECT_TRUE(board.is_due(now));
  board.show(std::make_shared<const int>(2), now);
  EXPECT_EQ(*board.look(now), 2);
}

TEST(Board, IsDueRarelyWhenNobodyDoes) {
  Board<int> board;
  board.show(std::make_shared<const int>(1), Duration::zero());
  EXPECT_FALSE(board.is_due(Board<int>::kUnwatched - kMillisecond));
  EXPECT_TRUE(board.is_due(Board<int>::kUnwatched));
  (void)board.look(Duration::zero());
  const Duration later = Board<int>::kAttention + kMillisecond;
  board.show(std::make_shared<const int>(2), later);
  EXPECT_FALSE(board.is_due(later + Board<int>::kWatched));
}

}  // namespace
}  // namespace tenuto::page
