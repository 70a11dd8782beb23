// Why each op started when it did, and how a worker spent its time.
#include "sim/wait.h"

#include <numeric>

#include "sim/cases.h"

namespace tenuto {
namespace {

struct Priced {
  Plan plan;
  Timeline timeline;
  std::vector<Wait> waits;

  // The reason of the op of this kind, stage and micro-batch.
  std::string reason(OpKind kind, int32_t stage, int32_t micro) const {
    for (size_t i = 0; i < timeline.spans.size(); ++i) {
      const Op& op = timeline.spans[i].op;
      if (op.kind == kind && op.stage.value == stage && op.micro.value == micro) {
        return reason_of(timeline.spans, waits[i], i);
      }
    }
    return "is not there";
  }
};

// Ops of 10 ms, links of `link_ms`.
Priced priced(const char* order, int32_t stages, int32_t pipelines, int32_t micros, double link_ms,
              bool update = true) {
  Priced it;
  it.plan = plan_of(shape_of(stages, pipelines, micros, order));
  PriceOptions options;
  options.spans = true;
  options.update = update;
  it.timeline =
      price_of(it.plan, equal_model(stages, 10, 10, 10),
               uniform_cluster(stages * pipelines, {from_milliseconds(link_ms), 0}), options);
  it.waits = waits_of(it.timeline.spans, it.plan);
  return it;
}

// Two stages, gpipe: worker 1's first forward waits for the 10 ms of F0.0 and the 3 ms of the link.
TEST(Wait, Reasons) {
  const Priced it = priced("gpipe", 2, 1, 2, 3);
  EXPECT_EQ(it.reason(OpKind::Forward, 0, 0), "started as early as its worker began");
  EXPECT_EQ(it.reason(OpKind::Forward, 0, 1), "worker busy with F0.0");
  EXPECT_EQ(it.reason(OpKind::Forward, 1, 0),
            "waited 13 ms for activation 0.0 from worker 0 (link 0 -> 1)");
  EXPECT_EQ(it.reason(OpKind::Forward, 1, 1), "worker busy with F1.0");
  EXPECT_EQ(it.reason(OpKind::BackwardInput, 1, 0), "worker busy with F1.1");
  EXPECT_EQ(it.reason(OpKind::BackwardInput, 1, 1), "worker busy with B1.0");  // not W1.0
  // The gradient is made at 33 + 20 ms and arrives 3 ms later; worker 0 is idle from 20 ms on.
  EXPECT_EQ(it.reason(OpKind::BackwardInput, 0, 0),
            "waited 36 ms for gradient 1.0 from worker 1 (link 1 -> 0)");
  // The norm of stage 1 came while B0.1 ran.
  EXPECT_EQ(it.reason(OpKind::Step, 0, -1), "worker busy with M0");
  EXPECT_EQ(it.reason(OpKind::Step, 1, -1),
            "waited 26 ms for the clip decision of stage 0 from worker 0 (link 0 -> 1)");
}

// Waiting for a reduction over several pipelines has its own reason.
TEST(Wait, Reduction) {
  const Priced it = priced("1f1b", 1, 2, 2, 5);
  EXPECT_NE(it.reason(OpKind::Measure, 0, -1).find("for the sum of stage 0's weight gradients"),
            std::string::npos)
      << it.reason(OpKind::Measure, 0, -1);
}

// A measured op starts later than it could: the reason states the difference.
TEST(Wait, Lateness) {
  Priced it = priced("gpipe", 2, 1, 2, 3, false);
  for (Span& span : it.timeline.spans) {
    span.after = -1;
    if (span.worker.value != 1 || span.op.kind != OpKind::Forward) continue;
    span.start += from_milliseconds(0.5);
    span.finish += from_milliseconds(0.25);
  }
  it.waits = waits_of(it.timeline.spans, it.plan);
  EXPECT_EQ(it.reason(OpKind::Forward, 1, 0),
            "waited 13 ms for activation 0.0 from worker 0 (link 0 -> 1), then 0.5 ms until it "
            "started");
  EXPECT_EQ(it.reason(OpKind::Forward, 1, 1),
            "worker busy with F1.0, then 0.25 ms until it started");
}

// Waits derived from the spans equal the recorded ones, and each worker's uses add up to the
// makespan.
TEST(Wait, UsesSumUp) {
  for (const char* order : {"gpipe", "1f1b", "zb-h1"}) {
    for (const int32_t pipelines : {1, 2}) {
      Priced it = priced(order, 4, pipelines, 6, 7);
      const Duration end = it.timeline.makespan;
      const auto uses =
          uses_of(it.timeline.spans, it.waits, end, static_cast<size_t>(4 * pipelines));
      Duration busy{};
      for (const auto& row : uses) {
        EXPECT_EQ(std::accumulate(row.begin(), row.end(), Duration{}), end) << order;
        EXPECT_EQ(row[static_cast<size_t>(Use::Other)], Duration{}) << order;
        busy += row[static_cast<size_t>(Use::Busy)];
      }
      EXPECT_EQ(busy, from_milliseconds(4 * pipelines * 6 * 30)) << order;
      for (Span& span : it.timeline.spans) span.after = -1;
      const auto derived = waits_of(it.timeline.spans, it.plan);
      EXPECT_EQ(uses_of(it.timeline.spans, derived, end, uses.size()), uses) << order;
    }
  }
}

}  // namespace
}  // namespace tenuto
