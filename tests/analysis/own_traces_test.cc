// Traces that our own simulator makes: who was made slow gets the blame.
#include <gtest/gtest.h>

#include <sstream>

#include "analysis/analyze.h"
#include "analysis/read_recording.h"
#include "analysis/remedies.h"
#include "phases.h"
#include "sim/cases.h"
#include "sim/trace.h"

namespace tenuto::analysis {
namespace {

constexpr int32_t kStages = 3, kPipelines = 2, kMicros = 4;

// The price of a step without its update, and the trace of it in a file.
struct Priced {
  double ms = 0;
  std::string path;
};

Priced priced(const std::string& name, const Cluster& cluster) {
  const Plan plan = plan_of(shape_of(kStages, kPipelines, kMicros, "1f1b"));
  PriceOptions options;
  options.spans = true;
  options.update = false;
  const Timeline timeline = price_of(plan, equal_model(kStages, 10, 12, 8), cluster, options);
  std::ostringstream trace;
  write_trace(trace, timeline.spans, plan);
  return {to_milliseconds(timeline.makespan), written(name, trace.str())};
}

Recording recording_of(const std::string& path) {
  auto recording = read_recording(path);
  EXPECT_TRUE(recording.ok()) << (recording.ok() ? "" : recording.error().message);
  return recording.ok() ? std::move(recording).value() : Recording{};
}

Cluster healthy() { return uniform_cluster(kStages * kPipelines, {}); }

// Ops that were promised are compared with those that happened, and are no ops of the recording.
TEST(OwnTraces, PromisedOpsAreCompared) {
  const Plan plan = plan_of(shape_of(kStages, kPipelines, kMicros, "1f1b"));
  PriceOptions options;
  options.spans = true;
  options.update = false;
  const Model model = equal_model(kStages, 10, 12, 8);
  Cluster slow = healthy();
  for (Worker& worker : slow.workers) worker.speed = 0.5;
  const Timeline measured = price_of(plan, model, slow, options);
  TraceDetails details;
  details.promised = price_of(plan, model, healthy(), options).spans;
  std::ostringstream text;
  write_trace(text, measured.spans, plan, details);
  const Recording recording = recording_of(written("promised.json", text.str()));
  const Recording alone = recording_of(priced("unpromised.json", slow).path);
  EXPECT_EQ(recording.ops.size(), alone.ops.size());
  EXPECT_TRUE(alone.promised.empty());
  ASSERT_EQ(recording.promised.size(), 2u * kStages);
  for (const PromisedKind& of : recording.promised) {
    const OpRole role = recording.kinds[static_cast<size_t>(of.kind)].role;
    EXPECT_EQ(of.ops, kMicros * kPipelines);
    EXPECT_NEAR(of.promised_ms, role == OpRole::Forward ? 10 : 20, 1e-6);
    EXPECT_NEAR(of.recorded_ms, 2 * of.promised_ms, 1e-6);
    EXPECT_GT(of.late_ms, of.promised_ms - 1e-6);
  }
}

TEST(OwnTraces, HealthyStepIsBalanced) {
  const Priced step = priced("healthy.json", healthy());
  const Recording recording = recording_of(step.path);
  ASSERT_FALSE(recording.ops.empty());
  EXPECT_EQ(recording.pipelines, kPipelines);
  EXPECT_EQ(recording.width, kStages);
  const auto graphs = graphs_of(recording);
  ASSERT_TRUE(graphs.ok()) << graphs.error().message;
  const Durations durations = durations_of(recording, graphs.value());
  const Analysis found = analyze(recording, graphs.value(), durations);
  EXPECT_NEAR(found.replayed_ms, step.ms, 1e-6);
  EXPECT_NEAR(found.slowdown, 1, 1e-9);
  EXPECT_TRUE(found.suspects.empty());
}

// Balanced, every op lasts as long as the mean of its kind: all are longer by one factor.
TEST(OwnTraces, SlowWorkerIsBlamed) {
  const Priced normal = priced("normal.json", healthy());
  for (int32_t slow = 0; slow < kStages * kPipelines; ++slow) {
    for (const double factor : {2.0, 4.0}) {
      Cluster cluster = healthy();
      cluster.workers[static_cast<size_t>(slow)].speed = 1 / factor;
      const Priced step = priced("slow_worker.json", cluster);
      const Recording recording = recording_of(step.path);
      ASSERT_FALSE(recording.ops.empty());
      const auto graphs = graphs_of(recording);
      ASSERT_TRUE(graphs.ok()) << graphs.error().message;
      const Durations durations = durations_of(recording, graphs.value());
      const Analysis found = analyze(recording, graphs.value(), durations);
      const double mean = (kStages * kPipelines - 1 + factor) / (kStages * kPipelines);
      EXPECT_NEAR(found.slowdown, step.ms / (mean * normal.ms), 1e-6) << slow << " " << factor;
      ASSERT_EQ(found.suspects.size(), 1U) << slow << " " << factor;
      EXPECT_EQ(found.suspects[0].kind, Suspect::Kind::Worker);
      EXPECT_EQ(found.suspects[0].index, slow);
      for (size_t w = 0; w < found.by_worker.size(); ++w) {
        if (static_cast<int32_t>(w) == slow) continue;
        EXPECT_LT(found.by_worker[w].slowdown, found.by_worker[static_cast<size_t>(slow)].slowdown);
      }
      EXPECT_GT(found.recovered, 0.5);
      const Remedies remedies = price_remedies(recording, graphs.value(), durations, found);
      ASSERT_FALSE(remedies.priced.empty());
      bool shares = false;
      for (const Remedy& remedy : remedies.priced) {
        EXPECT_GT(remedy.speedup, 1);
        EXPECT_NEAR(remedy.step_ms * remedy.speedup, found.replayed_ms, 1e-6);
        shares = shares || remedy.name == "shares";
      }
      EXPECT_TRUE(shares) << "a slow pipeline with fewer micro-batches makes a shorter step";
    }
  }
}

TEST(OwnTraces, SlowLinkIsBlamed) {
  const Priced normal = priced("normal_links.json", healthy());
  Cluster cluster = healthy();
  const Link slow{from_milliseconds(50), 0};
  cluster.exceptions[{WorkerId{3}, WorkerId{4}}] = slow;
  cluster.exceptions[{WorkerId{4}, WorkerId{3}}] = slow;
  const Priced step = priced("slow_link.json", cluster);
  ASSERT_GT(step.ms, normal.ms);
  const Recording recording = recording_of(step.path);
  ASSERT_FALSE(recording.ops.empty());
  const auto graphs = graphs_of(recording);
  ASSERT_TRUE(graphs.ok()) << graphs.error().message;
  const Durations durations = durations_of(recording, graphs.value());
  const Analysis found = analyze(recording, graphs.value(), durations);
  EXPECT_NEAR(found.balanced_ms, normal.ms, 1e-6);
  // A message starts when it is sent, also if it waited for its receive before.
  EXPECT_NEAR(found.slowdown, step.ms / normal.ms, 0.02 * found.slowdown);
  ASSERT_EQ(found.suspects.size(), 1U) << found.verdict;
  ASSERT_EQ(found.suspects[0].kind, Suspect::Kind::Link) << found.verdict;
  EXPECT_EQ(found.links[static_cast<size_t>(found.suspects[0].index)], LinkOf(3, 4));
  EXPECT_NEAR(found.recovered, 1, 1e-6);
}

}  // namespace
}  // namespace tenuto::analysis
