// Every order is right for every size, and takes the time and memory that its card says.
#include "plan/order/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "ir/check.h"
#include "plan/make_plan.h"
#include "sanitized.h"
#include "sim/price.h"

namespace tenuto {
namespace {

constexpr int32_t kWorkers = kSanitized ? 9 : 16, kMicros = kSanitized ? 40 : 64;

Shape shape_of(const OrderCard& card, int32_t workers, int32_t micros, int32_t chunks = 0) {
  Shape shape;
  shape.stages = workers;
  shape.micros = micros;
  shape.chunks = chunks;
  shape.order = card.name;
  shape.split_backward = card.splits_backward;
  return shape;
}

OrderShape own_shape(const OrderCard& card, const Shape& shape) {
  return {shape.stages, shape.micros, shape.chunks > 0 ? shape.chunks : card.chunks, shape.memory};
}

Plan plan_of(const Shape& shape) {
  auto plan = make_plan(shape);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? std::move(plan).value() : Plan{};
}

// The makespan of the plan; each stage takes 1 / `chunks` of a worker's times.
double makespan_ms(const Plan& plan, const OpTimes& times, int32_t chunks,
                   const Cluster* cluster = nullptr) {
  Layer layer;
  layer.forward = from_milliseconds(times.forward / chunks);
  layer.backward_input = from_milliseconds(times.backward_input / chunks);
  layer.backward_weight = from_milliseconds(times.backward_weight / chunks);
  Model model;
  model.layers.assign(plan.stages.size(), layer);
  PriceOptions options;
  options.lower_bound = false;
  options.update = false;
  const Cluster uniform = uniform_cluster(static_cast<int32_t>(plan.schedule.lists.size()), {});
  const auto timeline = price(plan, model, cluster != nullptr ? *cluster : uniform, options);
  EXPECT_TRUE(timeline.ok()) << (timeline.ok() ? "" : timeline.error().message);
  return timeline.ok() ? to_milliseconds(timeline.value().makespan) : -1;
}

// Forwards of a list that are held at once, at most.
int32_t peak_of(const std::vector<Op>& list) {
  int32_t held = 0, peak = 0;
  for (const Op& op : list) {
    if (op.kind == OpKind::Forward) peak = std::max(peak, ++held);
    if (op.kind == OpKind::BackwardWeight) --held;
  }
  return peak;
}

std::vector<int32_t> chunks_of(const OrderCard& card) {
  return card.placement == Placement::Loop ? std::vector{1, 2, 3, 4} : std::vector{card.chunks};
}

bool refused(const OrderCard& card, const OrderShape& shape) {
  return card.refusal != nullptr && !card.refusal(shape).empty();
}

class EveryOrder : public testing::TestWithParam<std::string> {
 protected:
  const OrderCard& card() const { return *find_card(GetParam()); }
};

// Has every position, chunk and kind once, with ascending positions in each kind of a chunk.
TEST_P(EveryOrder, HasEveryOpOnceInMicroBatchOrder) {
  for (int32_t workers = 1; workers <= kWorkers; ++workers) {
    for (int32_t micros = 1; micros <= kMicros; ++micros) {
      for (const int32_t chunks : chunks_of(card())) {
        const OrderShape shape{workers, micros, chunks, 0};
        if (refused(card(), shape)) continue;
        for (int32_t w = 0; w < workers; ++w) {
          std::map<std::pair<int32_t, OpKind>, int32_t> next;
          const auto slots = find_order(card().name)->make(shape, w);
          for (const Slot& slot : slots) {
            ASSERT_EQ(slot.position, next[std::pair(slot.chunk, slot.kind)]++)
                << cat("S ", workers, " M ", micros, " V ", chunks, " worker ", w);
          }
          ASSERT_EQ(slots.size(), 3 * static_cast<size_t>(micros) * static_cast<size_t>(chunks));
          ASSERT_EQ(next.size(), 3 * static_cast<size_t>(chunks));
        }
      }
    }
  }
}

// Time and memory by the card, for every size.
TEST_P(EveryOrder, CostsWhatItsCardSays) {
  int64_t closed = 0;
  for (int32_t workers = 1; workers <= kWorkers; ++workers) {
    for (int32_t micros = 1; micros <= kMicros; ++micros) {
      for (const int32_t chunks : chunks_of(card())) {
        if (chunks == 3 && workers > 4) continue;
        const Shape shape = shape_of(card(), workers, micros, chunks);
        const OrderShape own = own_shape(card(), shape);
        if (refused(card(), own)) continue;
        SCOPED_TRACE(cat("S ", workers, " M ", micros, " V ", chunks));
        const Plan plan = plan_of(shape);
        for (int32_t w = 0; w < workers; ++w) {
          const auto& list = plan.schedule.lists[static_cast<size_t>(w)];
          ASSERT_EQ(1.0 * peak_of(list) / chunks, card().peak_micros(own, w)) << "worker " << w;
        }
        const OpTimes equal{12, 12, 12};
        const auto expected = card().makespan(own, equal);
        if (!expected) continue;
        ++closed;
        ASSERT_EQ(makespan_ms(plan, equal, chunks), *expected);
      }
    }
  }
  EXPECT_GT(closed, kSanitized ? 90 : 300);
}

// check() accepts them: listed and ready, alone and beside another pipeline.
TEST_P(EveryOrder, IsRight) {
  for (int32_t workers = 1; workers <= kWorkers; workers += workers < 6 ? 1 : 5) {
    for (const int32_t micros : {1, 2, 3, 5, 8, 13, 16, 31, 33, 64}) {
      if (micros > kMicros) continue;
      for (const int32_t chunks : chunks_of(card())) {
        Shape shape = shape_of(card(), workers, micros, chunks);
        if (refused(card(), own_shape(card(), shape))) continue;
        for (const int32_t pipelines : {1, 2}) {
          for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
            shape.pipelines = pipelines;
            shape.dispatch = dispatch;
            shape.evaluation_micros = 5;
            const Status status = check(plan_of(shape));
            ASSERT_TRUE(status.ok())
                << cat("S ", workers, " M ", micros, " V ", chunks, ": ", status.error().message);
          }
        }
      }
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const OrderCard& card : order_cards()) all.push_back(card.name);
  return all;
}

std::string test_name(const testing::TestParamInfo<std::string>& of) {
  std::string name = of.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Order, EveryOrder, testing::ValuesIn(names()), test_name);

// A whole backward is one op that takes the sum of both times, so the closed forms hold for any
// shares of the two.
TEST(Orders, ClosedFormsOfUnequalTimes) {
  const OpTimes times{12, 24, 6};
  for (const char* name : {"gpipe", "1f1b", "interleaved", "looped-bfs"}) {
    const OrderCard& card = *find_card(name);
    for (int32_t workers = 1; workers <= 6; ++workers) {
      for (int32_t micros = 1; micros <= 12; ++micros) {
        const Shape shape = shape_of(card, workers, micros);
        const auto expected = card.makespan(own_shape(card, shape), times);
        if (!expected) continue;
        EXPECT_EQ(makespan_ms(plan_of(shape), times, own_shape(card, shape).chunks), *expected)
            << name << " S " << workers << " M " << micros;
      }
    }
  }
}

// Published figures: S 4, M 12, t 10 each, a delay in both directions of link 0-1.
TEST(Orders, ZeroBubbleUnderASlowLink) {
  const auto with_delay = [](const char* name, double delay_ms, int32_t memory) {
    Shape shape = shape_of(*find_card(name), 4, 12);
    shape.memory = memory;
    Cluster cluster = uniform_cluster(4, {});
    const Link slow{from_milliseconds(delay_ms), 0};
    cluster.exceptions[{{0}, {1}}] = cluster.exceptions[{{1}, {0}}] = slow;
    return makespan_ms(plan_of(shape), {10, 10, 10}, 1, &cluster);
  };
  EXPECT_EQ(with_delay("zb-h1", 0, 0), 390);
  EXPECT_EQ(with_delay("zb-h2", 0, 0), 390);
  EXPECT_EQ(with_delay("zb-h2", 10, 0), 400);
  EXPECT_EQ(with_delay("zb-h2", 20, 0), 440);
  EXPECT_EQ(with_delay("zb-h2", 0, 7), 390);
  EXPECT_EQ(with_delay("zb-h2", 10, 7), 400);
}

// With a memory of 2S-1 micro-batches the weight gradients of zb-h2 lag by 2i.
TEST(Orders, ZeroBubbleTwoUnderALimit) {
  const OrderCard& card = *find_card("zb-h2");
  for (int32_t workers = 1; workers <= 8; ++workers) {
    for (const int32_t micros : {1, 5, 16, 40}) {
      for (const int32_t more : {0, 1, 3}) {
        Shape shape = shape_of(card, workers, micros);
        shape.memory = 2 * workers - 1 + more;
        const Plan plan = plan_of(shape);
        EXPECT_TRUE(check(plan).ok());
        for (int32_t w = 0; w < workers; ++w) {
          EXPECT_EQ(1.0 * peak_of(plan.schedule.lists[static_cast<size_t>(w)]),
                    card.peak_micros(own_shape(card, shape), w));
        }
        if (micros >= 2 * workers - 1) {
          EXPECT_EQ(makespan_ms(plan, {10, 10, 10}, 1), 30.0 * micros + 10.0 * (workers - 1));
        }
      }
    }
  }
}

TEST(Orders, Placements) {
  const OrderShape shape{3, 1, 2, 0};
  EXPECT_EQ(stage_of(Placement::Loop, shape, 1, 1), 4);
  EXPECT_EQ(stage_of(Placement::V, shape, 0, 1), 5);
  EXPECT_EQ(stage_of(Placement::V, shape, 2, 1), 3);
  EXPECT_EQ(stage_of(Placement::Linear, {3, 1, 1, 0}, 2, 0), 2);
}

}  // namespace
}  // namespace tenuto
