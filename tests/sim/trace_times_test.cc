// Measured times of ops, read from traces.
#include "sim/trace_times.h"

#include <gtest/gtest.h>

#include <sstream>

#include "plan/make_plan.h"
#include "sim/price.h"
#include "sim/trace.h"

namespace tenuto {
namespace {

std::string refusal(std::string_view text) {
  const auto times = times_from_trace(text, "t.json");
  EXPECT_FALSE(times.ok()) << text;
  return times.ok() ? "" : times.error().message;
}

std::vector<int64_t> nanoseconds(const std::vector<Duration>& times) {
  std::vector<int64_t> counts;
  for (const Duration time : times) counts.push_back(time.count());
  return counts;
}

// Our own trace gives back the op times that it was priced with, for every order.
TEST(TraceTimes, OwnTrace) {
  for (const OrderCard& card : order_cards()) {
    Shape shape;
    shape.stages = 3;
    shape.micros = 6;
    shape.pipelines = 2;
    shape.order = card.name;
    shape.split_backward = card.splits_backward;
    const Plan plan = make_plan(shape).value();
    Model model;
    model.layers.resize(static_cast<size_t>(plan.stages.back().layer_end));
    std::vector<int64_t> forward, input, weight;
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      Layer& layer = model.layers[static_cast<size_t>(plan.stages[s].layer_first)];
      const auto stage = static_cast<int64_t>(s);
      layer.forward = Duration(1'000'001 + 1000 * stage);
      layer.backward_input = Duration(2'000'003 + 1000 * stage);
      layer.backward_weight = Duration(500'007 + 1000 * stage);
      forward.push_back(layer.forward.count());
      const int64_t both = layer.backward_input.count() + layer.backward_weight.count();
      input.push_back(plan.split_backward ? layer.backward_input.count() : both);
      weight.push_back(plan.split_backward ? layer.backward_weight.count() : 0);
    }
    PriceOptions options;
    options.spans = true;
    const auto workers = static_cast<int32_t>(plan.schedule.lists.size());
    const auto timeline = price(plan, model, uniform_cluster(workers, {}), options);
    ASSERT_TRUE(timeline.ok()) << timeline.error().message;
    std::ostringstream trace;
    write_trace(trace, timeline.value().spans, plan);
    const auto times = times_from_trace(trace.str(), "t.json");
    ASSERT_TRUE(times.ok()) << times.error().message;
    EXPECT_EQ(nanoseconds(times.value().forward), forward) << card.name;
    EXPECT_EQ(nanoseconds(times.value().backward_input), input) << card.name;
    EXPECT_EQ(nanoseconds(times.value().backward_weight), weight) << card.name;
    EXPECT_EQ(times.value().splits, plan.split_backward) << card.name;
    const auto kinds = plan.split_backward ? 3 : 2;
    EXPECT_EQ(times.value().ops,
              kinds * plan.schedule.micro_count * static_cast<int64_t>(plan.stages.size()));
  }
}

// A profiler's trace: other rows, nested arguments, the median over steps, the device's own times.
TEST(TraceTimes, ProfilerTrace) {
  const auto times =
      times_from_trace(R"({"schemaVersion": 1, "dur": 7, "other": [{"name": "PP:9F9"}],
    "traceEvents": [
      {"ph": "M", "name": "process_name", "args": {"name": "PP:0F0", "dur": 3}},
      {"ph": "X", "cat": "user_annotation", "name": "PP:0F0", "ts": 1, "dur": 10.5,
       "args": {"name": "x", "list": [{"dur": 99}], "dur": 98}},
      {"ph": "X", "name": "PP:0F1", "dur": 30}, {"ph": "X", "name": "PP:0F2", "dur": 20},
      {"ph": "X", "name": "PP:0B0", "dur": 7}, {"ph": "X", "name": "PP:0B1", "dur": 8},
      {"ph": "X", "name": "PP:1F0", "dur": 1, "cat": "user_annotation"},
      {"ph": "X", "name": "PP:1F0", "dur": 5, "cat": "gpu_user_annotation"},
      {"ph": "X", "name": "PP:1I0", "dur": 2}, {"ph": "X", "name": "PP:1W0", "dur": 3},
      {"ph": "X", "name": "PP:1B1", "dur": 50},
      {"ph": "X", "name": "PP:(1F2;0B0)OVERLAP_F_B", "dur": 100},
      {"ph": "X", "name": "PP:1SEND_B0"}, {"ph": "X", "name": "aten::mm", "dur": 1e99},
      {"ph": "i", "name": "PP:0F0"}], "trailer": {"traceEvents": [1, 2]}})",
                       "t.json");
  ASSERT_TRUE(times.ok()) << times.error().message;
  EXPECT_EQ(nanoseconds(times.value().forward), (std::vector<int64_t>{20000, 5000}));
  EXPECT_EQ(nanoseconds(times.value().backward_input), (std::vector<int64_t>{7500, 2000}));
  EXPECT_EQ(nanoseconds(times.value().backward_weight), (std::vector<int64_t>{0, 3000}));
  EXPECT_TRUE(times.value().splits);
}

// One trace per rank, each with its own stages.
TEST(TraceTimes, SeveralTraces) {
  TraceSamples samples;
  ASSERT_TRUE(add_trace(R"([{"ph": "X", "name": "PP:1F0", "dur": 1},
                            {"ph": "X", "name": "PP:1B0", "dur": 2}])",
                        "a", samples)
                  .ok());
  EXPECT_NE(times_of_traces(samples).error().message.find("no op of stage 0"), std::string::npos);
  ASSERT_TRUE(add_trace(R"([{"ph": "X", "name": "PP:0F0", "dur": 3},
                            {"ph": "X", "name": "PP:0B0", "dur": 4}])",
                        "b", samples)
                  .ok());
  EXPECT_EQ(nanoseconds(times_of_traces(samples).value().forward),
            (std::vector<int64_t>{3000, 1000}));
}

TEST(TraceTimes, Refused) {
  EXPECT_EQ(
      refusal("{\"traceEvents\": [\n  {\"ph\": }]}"),
      "t.json:2:10: expected a Chrome trace as JSON, found text that is not JSON or that is cut "
      "off: copy the file again");
  EXPECT_EQ(refusal("").substr(0, 11), "t.json:1:1:");
  EXPECT_EQ(refusal("{\"traceEvents\": [{\"ph\": \"X\", \"na").substr(0, 9), "t.json:1:");
  EXPECT_EQ(refusal("[]").substr(0, 33), "t.json: no op is in these traces:");
  EXPECT_EQ(refusal(R"([{"ph": "X", "name": "PP:0F0"}])"),
            "t.json: event 1 (PP:0F0): expected \"dur\" with microseconds from 0, found none");
  EXPECT_EQ(refusal(R"([{}, {"ph": "X", "name": "PP:0F0", "dur": -1}])"),
            "t.json: event 2 (PP:0F0): expected \"dur\" with microseconds from 0, found -1");
  EXPECT_NE(refusal(R"([{"ph": "X", "name": "PP:0F0", "dur": 1}])").find("no whole backward"),
            std::string::npos);
  EXPECT_NE(refusal(R"([{"ph": "X", "name": "PP:0B0", "dur": 1}])").find("no forward"),
            std::string::npos);
  EXPECT_NE(refusal(R"([{"ph": "X", "name": "PP:99999999999F0", "dur": 1}])").find("no op is"),
            std::string::npos);
}

}  // namespace
}  // namespace tenuto
