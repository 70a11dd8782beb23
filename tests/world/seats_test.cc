#include "world/seats.h"

#include <gtest/gtest.h>

namespace tenuto {
namespace {

using Pairs = std::vector<std::pair<WorkerId, WorkerId>>;

TEST(Seats, OfAGrid) {
  const Seats seats = 3;
  EXPECT_EQ(seats.worker(2, 1), WorkerId{7});
  EXPECT_EQ(seats.worker(0, 3), WorkerId{});
  EXPECT_EQ(seats.worker(-1, 0), WorkerId{});
  EXPECT_EQ(seats.worker(INT32_MAX, 2), WorkerId{});
  EXPECT_EQ(seats.pipeline_of({7}), 2);
  EXPECT_EQ(seats.place_of({7}), 1);
  EXPECT_EQ(seats.pairs(1, 6), (Pairs{{{1}, {2}}, {{4}, {5}}}));
  EXPECT_EQ(seats.widths(4), (std::vector<int32_t>{4, 4, 4}));
}

TEST(Seats, OfUnequalStages) {
  const std::vector<Stage> stages = {{0, 3, {{4}, {0}, {2}}}, {3, 5, {{1}, {6}}}};
  const auto places = places_of(stages);
  EXPECT_FALSE(is_grid(places));
  const Seats seats(places);
  EXPECT_EQ(seats.places(), 2);
  EXPECT_EQ(seats.worker(1, 0), WorkerId{0});
  EXPECT_EQ(seats.worker(1, 1), WorkerId{6});
  EXPECT_EQ(seats.worker(2, 1), WorkerId{});
  EXPECT_EQ(seats.pipeline_of({2}), 2);
  EXPECT_EQ(seats.pipeline_of({3}), -1);
  EXPECT_EQ(seats.place_of({6}), 1);
  EXPECT_EQ(seats.place_of({3}), -1);
  EXPECT_EQ(seats.pairs(0, 7),
            (Pairs{{{4}, {1}}, {{4}, {6}}, {{0}, {1}}, {{0}, {6}}, {{2}, {1}}, {{2}, {6}}}));
  EXPECT_EQ(seats.widths(1), (std::vector<int32_t>{3, 2}));
}

TEST(Seats, AGridIsRecognized) {
  EXPECT_TRUE(is_grid(places_of({{0, 1, {{0}, {2}}}, {1, 2, {{1}, {3}}}})));
  EXPECT_FALSE(is_grid(places_of({{0, 1, {{0}, {1}}}, {1, 2, {{2}, {3}}}})));
  // Two chunks of each worker: stages 2 and 3 are nobody's lowest.
  const auto places =
      places_of({{0, 1, {{0}, {2}}}, {1, 2, {{1}, {3}}}, {2, 3, {{0}, {2}}}, {3, 4, {{1}, {3}}}});
  EXPECT_EQ(places.size(), 2U);
  EXPECT_TRUE(is_grid(places));
}

}  // namespace
}  // namespace tenuto
