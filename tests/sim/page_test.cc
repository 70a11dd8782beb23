// The page as text: what it must contain, what it must not, and how large it gets.
// tests/app/page_test.py opens it in a browser.
#include "sim/page.h"

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ir/walk.h"
#include "sim/cases.h"
#include "sim/trace.h"
#include "sim/trace_reader.h"

namespace tenuto {
namespace {

struct Priced {
  Plan plan;
  Timeline timeline;
};

Priced priced(const char* order, int32_t stages, int32_t pipelines, int32_t micros,
              bool update = true) {
  Priced it;
  it.plan = plan_of(shape_of(stages, pipelines, micros, order));
  PriceOptions options;
  options.spans = true;
  options.update = update;
  it.timeline = price_of(it.plan, equal_model(stages, 10, 10, 10, {1000}),
                         uniform_cluster(stages * pipelines, {from_milliseconds(1), 1e6}), options);
  return it;
}

std::string page_of(const Priced& it, const std::string& title = "a title",
                    std::vector<Span> measured = {}) {
  std::ostringstream out;
  write_page(out, {title, "as asked", it.plan, it.timeline, std::move(measured), "a run"});
  return out.str();
}

nlohmann::json data_of(const std::string& page) {
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const size_t from = page.find(open) + open.size();
  const auto data =
      nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from), nullptr, false);
  EXPECT_TRUE(data.is_object());
  return data;
}

// Ops of the compute lane, read back from the numbers, by worker: name, micro, start and finish.
std::vector<std::vector<std::string>> ops_in(const nlohmann::json& data, size_t line) {
  const auto& timeline = data["timelines"][line];
  std::vector<std::vector<std::string>> all;
  for (const auto& lane : timeline["lanes"]) {
    auto& ops = all.emplace_back();
    int64_t time = 0;
    for (size_t i = 0; i < lane.size(); i += 7) {
      const int64_t start = time + lane[i + 2].get<int64_t>();
      time = start + lane[i + 3].get<int64_t>();
      const auto& name = data["ops"][lane[i].get<size_t>()];
      const int64_t tick = timeline["tick_ns"];
      std::ostringstream text;
      text << name[0].get<std::string>() << name[1] << "." << lane[i + 1] << " " << start * tick
           << " " << time * tick;
      ops.push_back(text.str());
    }
  }
  return all;
}

char letter_of(OpKind kind) {
  switch (kind) {
    case OpKind::Forward:
      return 'F';
    case OpKind::BackwardInput:
      return 'B';
    case OpKind::BackwardWeight:
      return 'W';
    case OpKind::Measure:
      return 'M';
    default:
      return 'U';
  }
}

// Every op of the compute lanes is in the page, with its times to the nanosecond.
TEST(Page, HoldsTheTimeline) {
  for (const char* order : {"1f1b", "zb-h1"}) {
    const Priced it = priced(order, 3, 2, 4);
    std::vector<std::vector<std::string>> expected(6);
    for (const Span& span : it.timeline.spans) {
      if (lane_of(span.op) != LaneKind::Compute) continue;
      if (!it.plan.split_backward && span.op.kind == OpKind::BackwardWeight) continue;
      std::ostringstream text;
      text << letter_of(span.op.kind) << span.op.stage.value << "." << span.op.micro.value << " "
           << span.start.count() << " " << span.finish.count();
      expected[static_cast<size_t>(span.worker.value)].push_back(text.str());
    }
    const auto data = data_of(page_of(it));
    EXPECT_EQ(ops_in(data, 0), expected) << order;
    EXPECT_EQ(data["timelines"].size(), 1u);
    for (const auto& reason : data["reasons"]) EXPECT_GT(reason.get<std::string>().size(), 10u);
  }
}

// A run that measures exactly what was priced gives two equal timelines.
TEST(Page, PricedAndMeasured) {
  const Priced it = priced("1f1b", 2, 1, 3);
  const std::string page = page_of(it, "a title", it.timeline.spans);
  const auto data = data_of(page);
  ASSERT_EQ(data["timelines"].size(), 2u);
  EXPECT_EQ(ops_in(data, 0), ops_in(data, 1));
  EXPECT_EQ(data["timelines"][1]["name"], "measured");
  EXPECT_NE(page.find("1.000 times the promise"), std::string::npos);
}

TEST(Page, NoNetworkAndNoMarkupFromOutside) {
  const std::string page = page_of(priced("zb-h1", 2, 1, 2), "</title><script>\"&");
  for (const char* word : {"http:", "https:", "src=", "href=", "url(", "import", "fetch(",
                           "XMLHttpRequest", "WebSocket"}) {
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  }
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(page.find("</title><script>\""), std::string::npos);
  EXPECT_NE(page.find("&lt;/title&gt;&lt;script&gt;&quot;&amp;"), std::string::npos);
}

TEST(Page, NothingTakesTime) {
  Priced it = priced("1f1b", 1, 1, 1);
  for (Span& span : it.timeline.spans) span.start = span.finish = Duration{};
  it.timeline.makespan = it.timeline.lower_bound = Duration{};
  EXPECT_EQ(ops_in(data_of(page_of(it)), 0)[0].front(), "F0.0 0 0");
  it.timeline.spans.clear();
  EXPECT_TRUE(ops_in(data_of(page_of(it)), 0)[0].empty());
}

// 98,304 compute ops and 64,512 messages.
TEST(Page, LargeSchedule) {
  const std::string page = page_of(priced("zb-h1", 64, 1, 512, false));
  std::cout << "64 workers x 512 micro-batches: " << page.size() << " bytes\n";
  EXPECT_LT(page.size(), 4'000'000u);
  size_t ops = 0;
  for (const auto& lane : ops_in(data_of(page), 0)) ops += lane.size();
  EXPECT_EQ(ops, 64u * 512 * 3);
}

// What write_trace writes reads back as the same spans.
TEST(TraceReader, ReadsOurTraces) {
  for (const char* order : {"1f1b", "zb-h1"}) {
    const Priced it = priced(order, 3, 2, 4);
    std::ostringstream trace;
    write_trace(trace, it.timeline.spans, it.plan);
    const auto read = spans_of_trace(trace.str(), "x.json", it.plan);
    ASSERT_TRUE(read.ok()) << read.error().message;
    size_t computing = 0;
    std::map<std::pair<int32_t, Op>, Span> known;
    for (const Span& span : it.timeline.spans) known[{span.worker.value, span.op}] = span;
    for (const Span& span : read.value()) {
      const auto found = known.find({span.worker.value, span.op});
      ASSERT_NE(found, known.end());
      EXPECT_EQ(span.finish, found->second.finish);
      // Slices of one lane do not overlap, so a receive may start later there.
      if (span.op.kind != OpKind::Recv) {
        EXPECT_EQ(span.start, found->second.start);
      }
      if (lane_of(span.op) == LaneKind::Compute) ++computing;
    }
    EXPECT_EQ(computing, it.plan.split_backward ? 6u * (4 * 3 + 2) : 6u * (4 * 2 + 2));
  }
}

TEST(TraceReader, Refusals) {
  const Plan plan = plan_of(shape_of(2, 1, 2, "1f1b"));
  const auto refused = [&](const std::string& rows) {
    const auto read = spans_of_trace("{\"traceEvents\": [" + rows + "]}", "x.json", plan);
    return read.ok() ? std::string("was read") : read.error().message;
  };
  const auto row = [](const std::string& name, int worker) {
    return "{\"ph\": \"X\", \"ts\": 1, \"dur\": 2, \"name\": \"" + name +
           "\", \"pid\": " + std::to_string(worker) + "}";
  };
  EXPECT_EQ(refused(row("PP:0F0", 0)), "was read");
  EXPECT_NE(refused(row("PP:1F0", 0)).find("worker 0 has in the plan no op PP:1F0"),
            std::string::npos);
  EXPECT_NE(refused(row("PP:0F0", 0) + "," + row("PP:0F0", 0)).find("has twice the op PP:0F0"),
            std::string::npos);
  EXPECT_NE(refused(row("PP:0F0", 7)).find("worker 7 is not there"), std::string::npos);
  EXPECT_NE(refused("{\"ph\": \"X\", \"name\": 3}").find("traceEvents[0]"), std::string::npos);
  EXPECT_NE(refused("").find("shows no op"), std::string::npos);
  EXPECT_NE(refused("3, {\"ph\": []}").find("shows no op"), std::string::npos);
  EXPECT_FALSE(spans_of_trace("[", "x.json", plan).ok());
  EXPECT_FALSE(spans_of_trace("{\"traceEvents\": 4}", "x.json", plan).ok());
}

}  // namespace
}  // namespace tenuto
