// Prices with free links against their closed forms, for every S in 1..16 and M in 1..64
// (a part of them under sanitizers).
#include <algorithm>

#include "ir/check.h"
#include "sanitized.h"
#include "sim/cases.h"

namespace tenuto {
namespace {

constexpr int32_t kStages = kSanitized ? 9 : 16, kMicros = kSanitized ? 32 : 64;

template <class Formula>
void every_size(const std::string& order, const Formula& formula) {
  for (int32_t stages = 1; stages <= kStages; ++stages) {
    const Model model = equal_model(stages, 10, 10, 10);
    for (int32_t micros = 1; micros <= kMicros; ++micros) {
      const Plan plan = plan_of(shape_of(stages, 1, micros, order));
      const Status status = check(plan);
      ASSERT_TRUE(status.ok()) << status.error().message;
      const Timeline timeline = price_of(plan, model, uniform_cluster(stages, {}));
      ASSERT_EQ(to_milliseconds(timeline.makespan), formula(stages, micros))
          << order << " S " << stages << " M " << micros;
      ASSERT_LE(timeline.lower_bound, timeline.makespan);
    }
  }
}

TEST(ClosedForm, Gpipe) {
  every_size("gpipe", [](int32_t s, int32_t m) { return 30.0 * (m + s - 1); });
}

TEST(ClosedForm, OneForwardOneBackward) {
  every_size("1f1b", [](int32_t s, int32_t m) { return 30.0 * (m + s - 1); });
}

TEST(ClosedForm, ZeroBubbleH1) {
  every_size("zb-h1", [](int32_t s, int32_t m) {
    return m >= s ? 30.0 * m + 10.0 * (s - 1) : 20.0 * (m + s - 1) + 10.0;
  });
}

// A whole backward is one op that lasts as long as its two parts together.
TEST(ClosedForm, UnequalTimes) {
  for (const char* order : {"gpipe", "1f1b"}) {
    for (int32_t stages = 1; stages <= 6; ++stages) {
      for (int32_t micros = 1; micros <= 12; ++micros) {
        const Plan plan = plan_of(shape_of(stages, 1, micros, order));
        const Timeline timeline =
            price_of(plan, equal_model(stages, 7, 11, 5), uniform_cluster(stages, {}));
        EXPECT_EQ(to_milliseconds(timeline.makespan), 23.0 * (micros + stages - 1));
        EXPECT_EQ(timeline.lower_bound, timeline.makespan);
      }
    }
  }
}

// Peak micro-batches, as the orders' cards promise them.
TEST(ClosedForm, Peaks) {
  for (int32_t stages = 1; stages <= 8; ++stages) {
    for (int32_t micros : {1, 3, 8, 20}) {
      const Model model = equal_model(stages, 10, 10, 10);
      const Cluster cluster = uniform_cluster(stages, {});
      const auto peaks = [&](const char* order) {
        return price_of(plan_of(shape_of(stages, 1, micros, order)), model, cluster).peak_micros;
      };
      for (int32_t s = 0; s < stages; ++s) {
        const auto i = static_cast<size_t>(s);
        EXPECT_EQ(peaks("gpipe")[i], micros);
        EXPECT_EQ(peaks("1f1b")[i], std::min(micros, stages - s));
        EXPECT_LE(peaks("zb-h1")[i], std::min(micros, stages));
      }
    }
  }
}

// Equal pipelines run side by side and take as long as one alone.
TEST(ClosedForm, Pipelines) {
  for (int32_t pipelines : {1, 2, 5}) {
    const Timeline timeline =
        price_of(plan_of(shape_of(4, pipelines, 8, "1f1b")), equal_model(4, 10, 10, 10),
                 uniform_cluster(4 * pipelines, {}));
    EXPECT_EQ(to_milliseconds(timeline.makespan), 330.0);
    EXPECT_DOUBLE_EQ(timeline.bubble_fraction, 90.0 / 330.0);
  }
}

}  // namespace
}  // namespace tenuto
