// Small traces whose figures are known.
#include "analysis/analyze.h"

#include <gtest/gtest.h>

#include "analysis/heat_map.h"
#include "analysis/read_recording.h"
#include "analysis/remedies.h"
#include "phases.h"

namespace tenuto::analysis {
namespace {

constexpr double kExact = 1e-9;

struct Found {
  Recording recording;
  Analysis analysis;
  Remedies remedies;
};

Found found_in(const std::string& path) {
  Found found;
  auto recording = read_recording(path);
  EXPECT_TRUE(recording.ok()) << (recording.ok() ? "" : recording.error().message);
  if (!recording.ok()) return found;
  found.recording = std::move(recording).value();
  const auto graphs = graphs_of(found.recording);
  EXPECT_TRUE(graphs.ok()) << (graphs.ok() ? "" : graphs.error().message);
  if (!graphs.ok()) return found;
  const Durations durations = durations_of(found.recording, graphs.value());
  found.analysis = analyze(found.recording, graphs.value(), durations);
  found.remedies = price_remedies(found.recording, graphs.value(), durations, found.analysis);
  return found;
}

TEST(Analyze, BalancedStep) {
  const Found found = found_in(written("balanced.json", text_of(phases_with(10))));
  EXPECT_NEAR(found.analysis.recorded_ms, 65, kExact);
  EXPECT_NEAR(found.analysis.replayed_ms, 65, kExact);
  EXPECT_NEAR(found.analysis.slowdown, 1, kExact);
  EXPECT_TRUE(found.analysis.suspects.empty());
  EXPECT_TRUE(found.remedies.priced.empty());
  EXPECT_NE(found.analysis.verdict.find("balanced"), std::string::npos);
}

// A forward of 30 ms instead of 10: the mean is 15, so a balanced step takes 75 ms.
TEST(Analyze, OneSlowForward) {
  const Found found = found_in(written("slow.json", text_of(phases_with(30))));
  const Analysis& analysis = found.analysis;
  EXPECT_NEAR(analysis.replayed_ms, 85, kExact);
  EXPECT_NEAR(analysis.balanced_ms, 75, kExact);
  EXPECT_NEAR(analysis.slowdown, 85.0 / 75, kExact);
  ASSERT_EQ(analysis.by_worker.size(), 4U);
  EXPECT_NEAR(analysis.by_worker[0].slowdown, 1, kExact);  // pipeline 1 takes the balanced time
  EXPECT_NEAR(analysis.by_worker[1].slowdown, 90.0 / 75, kExact);
  EXPECT_NEAR(analysis.by_worker[1].recovered, 1.5, kExact);  // then the step takes 70 ms
  ASSERT_EQ(analysis.by_stage.size(), 2U);
  EXPECT_NEAR(analysis.by_stage[1].slowdown, 90.0 / 75, kExact);
  ASSERT_EQ(analysis.by_pipeline.size(), 2U);
  EXPECT_NEAR(analysis.by_pipeline[0].slowdown, 85.0 / 75, kExact);
  ASSERT_FALSE(analysis.by_operation.empty());
  EXPECT_EQ(analysis.by_operation[0].name, "forward-compute");
  EXPECT_NEAR(analysis.by_operation[0].slowdown, 85.0 / 75, kExact);
  ASSERT_EQ(analysis.by_link.size(), 2U);
  EXPECT_NEAR(analysis.by_link[0].slowdown, 1, kExact);
  ASSERT_EQ(analysis.suspects.size(), 1U);
  EXPECT_EQ(analysis.suspects[0].kind, Suspect::Kind::Worker);
  EXPECT_EQ(analysis.suspects[0].index, 1);
  EXPECT_NE(analysis.verdict.find("worker 1 (pipeline 0, stage 1)"), std::string::npos)
      << analysis.verdict;
}

TEST(Analyze, HeatMap) {
  const Found found = found_in(written("heat.json", text_of(phases_with(30))));
  const std::string text = heat_text(found.recording, found.analysis);
  EXPECT_NE(text.find("pipeline 0       1.00   1.20"), std::string::npos) << text;
  const std::string picture = heat_svg(found.recording, found.analysis);
  EXPECT_EQ(picture.rfind("<svg ", 0), 0U);
  EXPECT_NE(picture.find(">1.20</text>"), std::string::npos) << picture;
  EXPECT_NE(picture.find("</svg>\n"), std::string::npos);
}

// A clock that is a second behind changes nothing but a note.
TEST(Analyze, ClocksThatDiffer) {
  std::vector<Phase> phases = phases_with(30);
  for (Phase& phase : phases) {
    if (phase.pipeline != 0 || phase.stage != 1) continue;
    phase.start -= 1000;
    phase.finish -= 1000;
  }
  const Found found = found_in(written("clocks.json", text_of(phases)));
  EXPECT_NEAR(found.analysis.replayed_ms, 85, 1e-6);
  EXPECT_NEAR(found.analysis.slowdown, 85.0 / 75, 1e-6);
  ASSERT_EQ(found.recording.notes.size(), 2U);
  EXPECT_NE(found.recording.notes[0].find("up to 1000.000 ms apart"), std::string::npos)
      << found.recording.notes[0];
  // Nothing of which all ends are at one moment joins the pipelines.
  EXPECT_EQ(found.recording.notes[1].rfind("2 workers could not be compared", 0), 0U)
      << found.recording.notes[1];
}

}  // namespace
}  // namespace tenuto::analysis
