// Traces of one step: promised beside measured, arrows, marks, and what viewers require of a file.
#include "sim/trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "base/random.h"
#include "ir/golden.h"
#include "ir/walk.h"
#include "sim/cases.h"
#include "sim/timeline.h"
#include "sim/trace_reader.h"
#include "viewer_rules.h"

namespace tenuto {
namespace {

std::vector<Span> spans_with(const Plan& plan, int32_t stages, const Cluster& cluster,
                             bool update) {
  PriceOptions options;
  options.spans = true;
  options.update = update;
  return price_of(plan, equal_model(stages, 10, 10, 10, {1000}), cluster, options).spans;
}

std::string text_of(const std::vector<Span>& spans, const Plan& plan, const TraceDetails& details) {
  std::ostringstream out;
  write_trace(out, spans, plan, details);
  return out.str();
}

TraceMark decision() {
  return {from_milliseconds(69), "decision", "plan 2 \"auto\" is proposed", 1, 7};
}

TEST(Trace, GoldenOfPromisedAndMeasured) {
  const Plan plan = plan_of(shape_of(2, 1, 1, "1f1b"));
  TraceDetails details;
  details.promised = spans_with(plan, 2, uniform_cluster(2, {from_milliseconds(1), 1e6}), false);
  details.marks = {decision()};
  details.loss = 2.5;
  details.has_loss = true;
  const auto measured = spans_with(plan, 2, uniform_cluster(2, {from_milliseconds(3), 1e6}), false);
  expect_golden("sim/golden/promised-2x1x1.trace", text_of(measured, plan, details));
}

// A trace with promised ops reads back as its measured ops alone.
TEST(Trace, ReadersSeeWhatHappened) {
  const Plan plan = plan_of(shape_of(3, 2, 4, "zb-h1"));
  const auto measured = spans_with(plan, 3, uniform_cluster(6, {from_milliseconds(2), 1e6}), true);
  TraceDetails details;
  details.promised = spans_with(plan, 3, uniform_cluster(6, {}), true);
  details.marks = {decision()};
  const auto with = spans_of_trace(text_of(measured, plan, details), "x.json", plan);
  const auto without = spans_of_trace(text_of(measured, plan, {}), "x.json", plan);
  ASSERT_TRUE(with.ok()) << with.error().message;
  ASSERT_TRUE(without.ok()) << without.error().message;
  ASSERT_EQ(with.value().size(), without.value().size());
  for (size_t i = 0; i < with.value().size(); ++i) {
    EXPECT_EQ(with.value()[i].op, without.value()[i].op);
    EXPECT_EQ(with.value()[i].start, without.value()[i].start);
    EXPECT_EQ(with.value()[i].finish, without.value()[i].finish);
  }
}

// The spans with starts and lengths drawn anew, also zero: what a broken clock may record.
std::vector<Span> scrambled(std::vector<Span> spans, Random& random) {
  for (Span& span : spans) {
    span.start = Duration(random.below(400'000));
    span.finish = span.start + Duration(random.below(3) == 0 ? 0 : random.below(60'000));
  }
  std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return std::tie(a.worker, a.start) < std::tie(b.worker, b.start);
  });
  return spans;
}

TEST(Trace, AnyRecordingIsShownWithoutWarnings) {
  Random random(20);
  for (const char* order : {"gpipe", "1f1b", "zb-h1"}) {
    const Plan plan = plan_of(shape_of(3, 2, 4, order));
    const auto priced = spans_with(plan, 3, uniform_cluster(6, {from_milliseconds(1), 1e6}), true);
    for (int round = 0; round < 20; ++round) {
      TraceDetails details;
      details.promised = scrambled(priced, random);
      details.marks = {decision()};
      const auto measured = round == 0 ? priced : scrambled(priced, random);
      const auto faults = viewer_faults(text_of(measured, plan, details));
      EXPECT_TRUE(faults.empty()) << order << " " << round << ": " << faults.front();
    }
  }
}

TEST(Trace, TheRulesFindBreaches) {
  const auto slice = [](int start, int length) {
    return R"({"ph": "X", "pid": 0, "tid": 0, "name": "a", "ts": )" + std::to_string(start) +
           ", \"dur\": " + std::to_string(length) + "}";
  };
  const auto point = [](const std::string& phase, int time) {
    return R"({"ph": ")" + phase + R"(", "pid": 0, "tid": 0, "id": 1, "ts": )" +
           std::to_string(time) + "}";
  };
  const auto count = [](const std::string& rows) {
    return viewer_faults("{\"traceEvents\": [" + rows + "]}").size();
  };
  EXPECT_EQ(count(slice(0, 4) + "," + slice(4, 2) + "," + slice(5, 1)), 0u);
  EXPECT_EQ(count(slice(0, 4) + "," + slice(3, 2)), 1u);
  EXPECT_EQ(count(slice(0, 4) + "," + point("s", 0) + "," + point("f", 3)), 0u);
  EXPECT_EQ(count(slice(0, 4) + "," + point("s", 0) + "," + point("f", 4)), 1u);
  EXPECT_EQ(count(slice(0, 4) + "," + point("s", 0)), 1u);
}

// Every message has an arrow from its send over its receive to the op that waited for it. On a
// network that takes no time, it begins in the op that made the value.
TEST(Trace, ArrowsGoToTheOpThatWaited) {
  const Plan plan = plan_of(shape_of(3, 1, 4, "1f1b"));
  for (const bool instant : {false, true}) {
    const Link link = instant ? Link{} : Link{from_milliseconds(1), 1e6};
    const auto spans = spans_with(plan, 3, uniform_cluster(3, link), false);
    size_t messages = 0;
    for (const Span& span : spans) messages += span.op.kind == OpKind::Recv ? 1 : 0;
    const std::string text = text_of(spans, plan, {});
    EXPECT_EQ(viewer_faults(text), std::vector<std::string>{});
    std::map<std::string, size_t> points;
    std::string slice;  // of the row before
    std::set<std::string> ends;
    const auto tree = nlohmann::json::parse(text);
    for (const auto& event : tree["traceEvents"]) {
      const std::string phase = event["ph"];
      if (phase == "X") slice = event["name"].get<std::string>();
      ++points[phase];
      if (phase == "f") ends.insert(slice);
    }
    EXPECT_EQ(points["s"], messages);
    EXPECT_EQ(points["t"], instant ? size_t{0} : messages);
    EXPECT_EQ(points["f"], messages);
    EXPECT_EQ(ends.count("PP:1F0") + ends.count("PP:1B3") + ends.count("PP:0B0"), 3u);
    EXPECT_EQ(ends.count("PP:0F0") + ends.count("PP:2B0"), 0u);
  }
}

// The worker's own clock does not count: a worker whose clock is behind by more than a message
// takes is shown as if it were not.
TEST(Trace, ClocksOfWorkersAreBroughtTogether) {
  const Plan plan = plan_of(shape_of(3, 1, 4, "1f1b"));
  const auto spans = spans_with(plan, 3, uniform_cluster(3, {from_milliseconds(1), 0}), false);
  const std::vector<Duration> ahead = {Duration(0), from_milliseconds(-500),
                                       from_milliseconds(700)};
  std::vector<Event> events;
  const auto on_clock_of = [&ahead](WorkerId worker, Duration time) {
    return time + from_milliseconds(10'000) + ahead[static_cast<size_t>(worker.value)];
  };
  for (const Span& span : spans) {
    Event event;
    event.worker = span.worker;
    event.op = span.op;
    event.start = on_clock_of(span.worker, span.start);
    event.finish = on_clock_of(span.worker, span.finish);
    if (span.op.kind == OpKind::Recv) event.sent = on_clock_of(span.op.peer, span.start);
    events.push_back(event);
  }
  const std::vector<Span> found = spans_of(events);
  std::map<std::pair<WorkerId, Op>, Span> known;
  for (const Span& span : spans) known.emplace(std::pair(span.worker, span.op), span);
  ASSERT_EQ(found.size(), spans.size());
  for (const Span& span : found) {
    const Span& expected = known.at({span.worker, span.op});
    EXPECT_EQ(span.start, expected.start);
    EXPECT_EQ(span.finish, expected.finish);
  }
}

TEST(Trace, NamesOfFiles) {
  EXPECT_EQ(trace_file_name(12), "trace-12.json");
  EXPECT_EQ(step_of_trace(trace_file_name(12)), 12);
  for (const char* other : {"trace-.json", "trace-1", "trace-1.json.gz", "trace--1.json",
                            "plan-1.json", "trace-1x.json", "trace.json"}) {
    EXPECT_EQ(step_of_trace(other), -1) << other;
  }
}

}  // namespace
}  // namespace tenuto
