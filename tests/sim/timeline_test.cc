// Pictures and traces, compared with the whole expected text.
#include "sim/timeline.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ir/golden.h"
#include "sim/cases.h"
#include "sim/trace.h"

namespace tenuto {
namespace {

struct Priced {
  Plan plan;
  Timeline timeline;
};

Priced priced(const char* order, int32_t stages, int32_t pipelines, int32_t micros) {
  Priced result;
  result.plan = plan_of(shape_of(stages, pipelines, micros, order));
  PriceOptions options;
  options.spans = true;
  result.timeline =
      price_of(result.plan, equal_model(stages, 10, 10, 10, {1000}),
               uniform_cluster(stages * pipelines, {from_milliseconds(1), 1e6}), options);
  return result;
}

std::string trace(const Priced& it) {
  std::ostringstream out;
  write_trace(out, it.timeline.spans, it.plan);
  return out.str();
}

TEST(Timeline, GoldenPictures) {
  std::string all;
  for (const char* order : {"gpipe", "1f1b", "zb-h1"}) {
    const Plan plan = plan_of(shape_of(4, 1, 6, order));
    PriceOptions options;
    options.spans = true;
    options.update = false;
    const Timeline timeline =
        price_of(plan, equal_model(4, 10, 10, 10), uniform_cluster(4, {}), options);
    all += std::string(order) + "\n" + gantt(timeline.spans, plan, 80) + "\n";
  }
  expect_golden("sim/golden/orders.gantt", all);
}

TEST(Timeline, PictureFits) {
  const Priced it = priced("1f1b", 3, 2, 12);
  for (const size_t width : {20u, 40u, 77u, 200u}) {
    std::istringstream lines(gantt(it.timeline.spans, it.plan, width));
    std::string line;
    std::getline(lines, line);
    int rows = 0;
    for (; std::getline(lines, line); ++rows) EXPECT_LE(line.size(), width) << line;
    EXPECT_EQ(rows, 6);
  }
  EXPECT_EQ(gantt({}, it.plan), "nothing takes time\n");
}

// Two stages per worker: ops of the second stage are shown in small letters.
TEST(Timeline, PictureTellsChunksApart) {
  Plan plan;
  plan.stages = {{0, 1, {{0}}}, {1, 2, {{1}}}, {2, 3, {{1}}}, {3, 4, {{0}}}};
  plan.schedule.lists.resize(2);
  const auto span = [](int32_t worker, OpKind kind, int32_t stage, int32_t micro, double start) {
    Op op;
    op.kind = kind;
    op.stage = {stage};
    op.micro = {micro};
    return Span{{worker}, op, from_milliseconds(start), from_milliseconds(start + 10)};
  };
  const std::vector<Span> spans = {
      span(0, OpKind::Forward, 0, 0, 0),        span(0, OpKind::Forward, 3, 0, 30),
      span(0, OpKind::BackwardInput, 3, 0, 40), span(1, OpKind::Forward, 1, 0, 10),
      span(1, OpKind::Forward, 2, 0, 20),       span(1, OpKind::BackwardInput, 2, 0, 50)};
  EXPECT_EQ(gantt(spans, plan, 36),
            "one column = 5 ms, end at 60 ms; small letters: second stage\n"
            "w0 s0 s3 |F0....f0b0..\n"
            "w1 s1 s2 |..F0f0....b0\n");
  plan.stages.push_back({4, 5, {{0}}});
  EXPECT_EQ(gantt(spans, plan, 60),
            "one column = 2 ms, end at 60 ms; small letters: every second stage\n"
            "w0 s0 s3 s4 |F0.0-..........f3.0-b3.0-.....\n"
            "w1 s1 s2    |.....F0---f0---..........b0---\n");
}

TEST(Timeline, GoldenTrace) {
  expect_golden("sim/golden/1f1b-2x1x2.trace", trace(priced("1f1b", 2, 1, 2)));
}

// What Chrome and Perfetto require of a trace.
TEST(Timeline, TraceIsSound) {
  for (const char* order : {"gpipe", "1f1b", "zb-h1"}) {
    const Priced it = priced(order, 4, 2, 5);
    const auto tree = nlohmann::json::parse(trace(it));
    std::map<std::pair<int, int>, double> lane_end;
    std::map<int, double> sent;
    std::set<std::string> names;
    size_t arrived = 0;
    for (const auto& event : tree["traceEvents"]) {
      const std::string phase = event["ph"];
      if (phase == "X") {
        names.insert(event["name"]);
        double& end = lane_end[{event["pid"], event["tid"]}];
        EXPECT_GE(event["ts"].get<double>(), end - 1e-6);
        end = event["ts"].get<double>() + event["dur"].get<double>();
      }
      if (phase == "s") {
        EXPECT_TRUE(sent.emplace(event["id"], event["ts"]).second);
      }
      if (phase == "f") ++arrived;
    }
    for (const auto& event : tree["traceEvents"]) {
      if (event["ph"] != "f") continue;
      ASSERT_TRUE(sent.count(event["id"]));
      EXPECT_GE(event["ts"].get<double>(), sent[event["id"]]);
    }
    EXPECT_EQ(arrived, sent.size());
    EXPECT_TRUE(names.count("PP:2F0"));
    EXPECT_TRUE(names.count(it.plan.split_backward ? "PP:2I0" : "PP:2B0"));
    EXPECT_EQ(names.count("PP:2W0"), it.plan.split_backward ? 1u : 0u);
    EXPECT_TRUE(names.count("PP:0SEND_F0"));
    EXPECT_TRUE(names.count("PP:3STEP"));
  }
}

// Measured events give the same trace as the price that they equal, wherever their clock starts: a
// receive lasts from the sending of its message, although it was posted earlier.
TEST(Timeline, EventsAsSpans) {
  const Priced it = priced("zb-h1", 3, 1, 4);
  std::vector<Event> events;
  for (const Span& span : it.timeline.spans) {
    Event event;
    event.worker = span.worker;
    event.op = span.op;
    event.start = span.start + from_milliseconds(1234567);
    event.finish = span.finish + from_milliseconds(1234567);
    if (span.op.kind == OpKind::Recv) {
      event.sent = event.start;
      event.start = from_milliseconds(1234567);
    }
    events.insert(events.begin(), event);
  }
  std::ostringstream out;
  Priced measured = it;
  measured.timeline.spans = spans_of(events);
  EXPECT_EQ(gantt(measured.timeline.spans, it.plan), gantt(it.timeline.spans, it.plan));
  EXPECT_EQ(measured.timeline.spans.size(), it.timeline.spans.size());
  EXPECT_EQ(measured.timeline.spans.front().start, Duration(0));
  std::map<std::pair<WorkerId, Op>, Span> promised;
  for (const Span& span : it.timeline.spans)
    promised.emplace(std::pair(span.worker, span.op), span);
  for (const Span& span : measured.timeline.spans) {
    EXPECT_EQ(span.start, promised.at({span.worker, span.op}).start);
    EXPECT_EQ(span.finish, promised.at({span.worker, span.op}).finish);
  }
}

}  // namespace
}  // namespace tenuto
