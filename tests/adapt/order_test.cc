// The search for an order: compared with the bound, with proved best orders and with published
// orders, and on lines whose answer is known in closed form.
#include "adapt/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "adapt/exact.h"
#include "adapt/published.h"
#include "adapt/random_line.h"
#include "base/text.h"
#include "sanitized.h"

namespace tenuto {
namespace {

constexpr Duration kOp = std::chrono::milliseconds(10);

// The line of a kind that a seed draws.
Line line_of(const LineKind& kind, uint64_t seed) {
  const auto shape = static_cast<uint64_t>(kind.stages * 1000 + kind.micros * 10 + kind.limited);
  Random random(mix(1, shape, seed));
  return random_line(random, kind);
}

std::string name_of(const LineKind& kind) {
  return cat(kind.stages, " stages x ", kind.micros, kind.limited ? " with little memory" : "");
}

double share_above(Duration time, Duration bound) {
  return static_cast<double>(time.count()) / static_cast<double>(bound.count()) - 1;
}

OrderSearch found_for(const Line& line, const Effort& effort = {}) {
  auto found = search_order(line, effort);
  EXPECT_TRUE(found.has_value());
  return found ? std::move(*found) : OrderSearch{};
}

// Each order that was found fits into the memory limits, its replay takes the claimed time, and it
// is not below the bound.
void expect_true(const Line& line, const OrderSearch& found) {
  for (const Ordered* ordered : {&found.ready, &found.listed}) {
    ASSERT_EQ(ordered->sequences.size(), line.legs.size());
    for (size_t s = 0; s < line.legs.size(); ++s) {
      ASSERT_TRUE(fits_memory(line.legs[s], ordered->sequences[s]));
    }
    const auto time = Replay(line).run(ordered->sequences);
    ASSERT_TRUE(time.has_value());
    EXPECT_EQ(*time, ordered->makespan) << ordered->how;
    EXPECT_GE(ordered->makespan, found.bound);
  }
  EXPECT_LE(found.listed.makespan, found.ready.makespan);
  const auto played = play(line, found.ready.policy);
  ASSERT_TRUE(played.has_value());
  EXPECT_EQ(played->makespan, found.ready.makespan);
  EXPECT_TRUE(found.ready.policy.is_ready());
}

TEST(ExactOrder, IsTheBestOfAllOrders) {
  const std::vector<std::pair<LineKind, uint64_t>> kinds = {
      {{2, 2}, 20}, {{2, 3}, 20},       {{3, 2}, 20},       {{3, 3}, 1},
      {{2, 4}, 1},  {{2, 2, true}, 20}, {{2, 3, true}, 20}, {{3, 2, true}, 20}};
  for (const auto& [kind, count] : kinds) {
    for (uint64_t seed = 0; seed < count; ++seed) {
      const Line line = line_of(kind, seed);
      const auto exact = exact_makespan(line, Duration::max());
      ASSERT_TRUE(exact.has_value());
      EXPECT_EQ(exact->makespan, enumerated_makespan(line)) << name_of(kind) << ", seed " << seed;
    }
  }
}

// The best order of tiny lines is known. The bound is not above it, and the search nearly always
// finds it.
TEST(OrderSearch, FindsTheBestOrderOfTinyLines) {
  for (const bool limited : {false, true}) {
    int best = 0, all = 0;
    double worst = 0;
    for (const LineKind& kind : tiny_kinds(limited)) {
      for (uint64_t seed = 0; seed < 50; ++seed, ++all) {
        const Line line = line_of(kind, seed);
        const OrderSearch found = found_for(line);
        const auto exact = exact_makespan(line, found.listed.makespan);
        ASSERT_TRUE(exact.has_value()) << name_of(kind) << ", seed " << seed;
        EXPECT_LE(found.bound, exact->makespan) << name_of(kind) << ", seed " << seed;
        const double above = share_above(found.listed.makespan, exact->makespan);
        worst = std::max(worst, above);
        if (found.listed.makespan == exact->makespan) ++best;
      }
    }
    std::printf("%s: %d of %d best, the worst %.2f %% above\n",
                limited ? "with little memory" : "with memory for all", best, all, 100 * worst);
    EXPECT_GE(best, all * 99 / 100);
    EXPECT_LE(worst, 0.01);
  }
}

// Gives every stage memory for `times` as many micro-batches as there are stages; a postponed
// weight gradient takes `late` thousandths of a micro-batch.
Line with_memory(Line line, double times, int64_t late) {
  const auto most = static_cast<int64_t>(times * line.stages() * 1000);
  for (Leg& leg : line.legs) leg.memory = {std::max<int64_t>(1000, most), 1000, late};
  return line;
}

// Memory for one micro-batch up to one for each stage. Here the bound comes mostly from the ops
// that must run before there is memory for a forward.
TEST(OrderSearch, TheBoundOfLittleMemoryIsNotAboveTheBestOrder) {
  int tight = 0, all = 0;
  for (const LineKind& kind : tiny_kinds(false)) {
    for (const double times : {0.4, 0.7, 1.0}) {
      for (const int64_t late : {0, 300, 500, 1000}) {
        for (uint64_t seed = 0; seed < 4; ++seed, ++all) {
          const Line line = with_memory(line_of(kind, seed), times, late);
          const OrderSearch found = found_for(line);
          const auto exact = exact_makespan(line, found.listed.makespan);
          ASSERT_TRUE(exact.has_value()) << name_of(kind) << ", seed " << seed;
          EXPECT_LE(found.bound, exact->makespan)
              << name_of(kind) << ", seed " << seed << ", memory " << times << ", late " << late;
          tight += found.bound == exact->makespan ? 1 : 0;
        }
      }
    }
  }
  std::printf("the bound is the best order's time in %d of %d\n", tight, all);
  EXPECT_GE(tight, all * 3 / 4);
}

// Pipelines with memory for S, 1.5 S and 2 S micro-batches, S being the stages.
TEST(OrderSearch, IsNearTheBoundWithLittleMemory) {
  for (const int64_t late : {500, 1000}) {
    for (const double times : {1.0, 1.5, 2.0}) {
      double above = 0;
      int all = 0;
      for (const LineKind& kind : line_kinds()) {
        if (kind.limited || kind.stages > 8) continue;
        for (uint64_t seed = 100; seed < 106; ++seed, ++all) {
          const Line line = with_memory(line_of(kind, seed), times, late);
          const OrderSearch found = found_for(line);
          expect_true(line, found);
          above += share_above(found.listed.makespan, found.bound);
        }
      }
      std::printf("memory for %.1f S, late %.1f: %.2f %% above the bound\n", times,
                  static_cast<double>(late) / 1000, 100 * above / all);
      EXPECT_LE(above / all, 0.02);
    }
  }
}

// Random lines of every kind: what the search claims is true, and no published order is faster.
TEST(OrderSearch, IsNeverSlowerThanPublishedOrders) {
  std::vector<LineKind> kinds = line_kinds();
  for (const bool limited : {false, true}) {
    kinds.insert(kinds.end(), tiny_kinds(limited).begin(), tiny_kinds(limited).end());
  }
  for (const LineKind& kind : kinds) {
    const uint64_t count = kind.stages > 8 ? 4 : 16;
    double above = 0;
    for (uint64_t seed = 0; seed < count; ++seed) {
      SCOPED_TRACE(cat(name_of(kind), ", seed ", seed));
      const Line line = line_of(kind, seed);
      const OrderSearch found = found_for(line);
      expect_true(line, found);
      above += share_above(found.listed.makespan, found.bound) / static_cast<double>(count);
      for (const Published& order : published_orders(line)) {
        if (!order.sequences) continue;
        const auto time = Replay(line).run(*order.sequences);
        ASSERT_TRUE(time.has_value()) << order.name;
        for (size_t s = 0; s < line.legs.size(); ++s) {
          ASSERT_TRUE(fits_memory(line.legs[s], (*order.sequences)[s])) << order.name;
        }
        EXPECT_GE(*time, found.bound) << order.name;
        EXPECT_GE(*time, found.listed.makespan) << order.name;
      }
    }
    std::printf("%-26s %.2f %% above the bound\n", name_of(kind).c_str(), 100 * above);
    EXPECT_LE(above, kind.limited ? 0.015 : 0.002) << name_of(kind);
  }
}

// Only one delay cannot be hidden: the step takes 390 ms plus the delay.
TEST(OrderSearch, HidesAllButOneDelay) {
  for (const int32_t delay : {0, 10, 20}) {
    Line line = equal_line(4, 12, kOp);
    delay_link(line, 0, std::chrono::milliseconds(delay));
    const OrderSearch found = found_for(line);
    EXPECT_EQ(to_milliseconds(found.listed.makespan), 390 + delay);
    EXPECT_EQ(to_milliseconds(found.ready.makespan), 390 + delay);
    EXPECT_EQ(found.bound, found.listed.makespan);
  }
  for (const int32_t delay : {1, 2, 4}) {
    Line line = equal_line(8, 24, kOp);
    delay_link(line, 6, delay * kOp);
    const OrderSearch found = found_for(line);
    EXPECT_EQ(found.listed.makespan, (79 + delay) * kOp);
    EXPECT_EQ(found.ready.makespan, (79 + delay) * kOp);
    EXPECT_EQ(found.bound, found.listed.makespan);
  }
}

// With equal stages and memory for all, for every delay and any slow links.
TEST(OrderSearch, IsAtTheBoundOnEqualStages) {
  int cells = 0, at_bound = 0;
  double worst = 0;
  for (const int32_t stages : {4, 8, 16}) {
    const int32_t last = stages - 2, middle = stages / 2 - 1;
    const std::vector<std::vector<int32_t>> slow = {
        {0}, {middle}, {last}, {0, last}, {0, middle, last}};
    for (const int32_t micros : {12, 16, 24, 32, 48, 64}) {
      for (const double delay : {0.25, 0.5, 1.0, 2.0, 4.0}) {
        for (const auto& links : slow) {
          Line line = equal_line(stages, micros, kOp);
          for (const int32_t link : links) {
            delay_link(line, link, from_milliseconds(delay * to_milliseconds(kOp)));
          }
          const OrderSearch found = found_for(line, {500'000, 1'000, 2'500'000});
          ++cells;
          if (found.listed.makespan == found.bound) ++at_bound;
          worst = std::max(worst, share_above(found.listed.makespan, found.bound));
        }
      }
    }
  }
  std::printf("%d of %d at the bound, the worst %.2f %% above\n", at_bound, cells, 100 * worst);
  EXPECT_EQ(cells, 450);
  EXPECT_GE(at_bound, 440);
  EXPECT_LE(worst, 0.01);
}

// The cost of little memory compared with memory for all: eight stages, one slow link; a postponed
// weight gradient takes half of a micro-batch.
TEST(OrderSearch, DelaysNeedUpToOneAndAHalfTimesTheMemory) {
  const auto cost = [](int32_t memory, int32_t delay) {
    double worst = 0;
    for (const int32_t micros : {24, 48}) {
      if (kSanitized && micros > 24) continue;
      for (const int32_t link : {0, 3, 6}) {
        Line line = equal_line(8, micros, kOp);
        delay_link(line, link, delay * kOp);
        const Duration bound = found_for(line).bound;
        limit_memory(line, memory);
        worst = std::max(worst, share_above(found_for(line).listed.makespan, bound));
      }
    }
    std::printf("memory for %d, delay of %d ops: %.2f %%\n", memory, delay, 100 * worst);
    return worst;
  };
  EXPECT_LE(cost(8, 0), 0.01);
  EXPECT_LE(cost(10, 1), 0.01);
  EXPECT_LE(cost(10, 2), 0.01);
  EXPECT_LE(cost(12, 4), 0.01);
  EXPECT_LE(cost(8, 1), 0.04);
  EXPECT_LE(cost(8, 2), 0.08);
  EXPECT_LE(cost(8, 4), 0.18);
}

TEST(OrderSearch, GivesTheSameOrderAgain) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Line line = line_of({6, 18, true}, seed);
    const OrderSearch one = found_for(line), two = found_for(line);
    EXPECT_EQ(one.listed.sequences, two.listed.sequences);
    EXPECT_EQ(one.ready.sequences, two.ready.sequences);
    EXPECT_EQ(one.listed.how, two.listed.how);
  }
}

TEST(OrderSearch, RefusesMemoryForLessThanOneMicroBatch) {
  Line line = equal_line(4, 8, kOp);
  limit_memory(line, 4);
  line.legs[2].memory.most = 1;
  EXPECT_FALSE(search_order(line).has_value());
}

// Computed by hand: stages i..j form a ring with x_i - x_j + 1 micro-batches in it, which must go
// around within that many periods.
TEST(Quotas, RingQuotasAreAsComputedByHand) {
  Line line = equal_line(4, 12, kOp);  // period 30: 80 ms around all four stages needs three
  EXPECT_EQ(ring_quotas(line, busiest(line)), (Quotas{4, 3, 2, 1}));
  delay_link(line, 0, 2 * kOp);  // 80 around the first two stages: three
  EXPECT_EQ(ring_quotas(line, busiest(line)), (Quotas{5, 3, 2, 1}));
  delay_link(line, 0, 4 * kOp);  // 120 around the first two: four
  EXPECT_EQ(ring_quotas(line, busiest(line)), (Quotas{6, 3, 2, 1}));
  // For each pair alone two would do (60 around it), but 140 around all four needs five.
  for (const int32_t link : {0, 1, 2}) delay_link(line, link, kOp);
  EXPECT_EQ(ring_quotas(line, busiest(line)), (Quotas{5, 4, 2, 1}));
  // A shorter period than the busiest stage's needs more.
  EXPECT_EQ(ring_quotas(line, 2 * kOp), (Quotas{7, 5, 3, 1}));
}

TEST(Quotas, PublishedRulesGiveTheirPublishedQuotas) {
  Line line = equal_line(8, 24, kOp);
  EXPECT_EQ(neighbour_quotas(line), (Quotas{15, 13, 11, 9, 7, 5, 3, 1}));
  delay_link(line, 6, 4 * kOp);  // (20 + 80) / 20 ops of the next stage
  EXPECT_EQ(neighbour_quotas(line), (Quotas{18, 16, 14, 12, 10, 8, 6, 1}));
  limit_memory(line, 10);
  EXPECT_EQ(even_quotas(line), (Quotas{10, 8, 6, 5, 4, 3, 2, 1}));
}

TEST(Quotas, KeepMemoryLimits) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Line line = line_of({6, 18, true}, seed);
    const Quotas ring = ring_quotas_within(line, 0);
    for (size_t s = 0; s < ring.size(); ++s) {
      EXPECT_LE(ring[s], line.legs[s].memory.most_whole(line.micros));
      EXPECT_LE(ring[s], ring[s > 0 ? s - 1 : 0]);
    }
  }
}

}  // namespace
}  // namespace tenuto
