// A recorded run: what is read can be replayed, analyzed and drawn.
#include <cmath>

#include "analysis/analyze.h"
#include "analysis/heat_map.h"
#include "analysis/read_recording.h"
#include "analysis/remedies.h"
#include "analysis/trace_rows.h"
#include "target.h"

using namespace tenuto;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto rows = analysis::read_trace_rows(text_of(data, size), "input");
  if (!rows.ok()) {
    expect_sentence(rows.error(), "input");
    return 0;
  }
  std::vector<analysis::TraceSource> sources;
  sources.push_back({"input", -1, std::move(rows).value()});
  const auto recording = analysis::recording_of(sources);
  if (!recording.ok()) {
    expect_sentence(recording.error(), "input");
    return 0;
  }
  const auto graphs = analysis::graphs_of(recording.value());
  if (!graphs.ok()) {
    expect_sentence(graphs.error(), "step");
    return 0;
  }
  const auto durations = analysis::durations_of(recording.value(), graphs.value());
  const auto found = analysis::analyze(recording.value(), graphs.value(), durations);
  CHECK(found.replayed_ms >= 0 && std::isfinite(found.slowdown), "a step takes some time");
  const auto remedies =
      analysis::price_remedies(recording.value(), graphs.value(), durations, found);
  for (const analysis::Remedy& remedy : remedies.priced) {
    CHECK(remedy.speedup > 1, "only what helps is told");
  }
  (void)analysis::heat_text(recording.value(), found);
  return 0;
}
