// What cannot be read is refused in one sentence.
#include <gtest/gtest.h>

#include "analysis/read_recording.h"
#include "analysis/step_graph.h"
#include "phases.h"

namespace tenuto::analysis {
namespace {

std::string refusal(const std::string& name, const std::string& text) {
  const auto recording = read_recording(written(name, text));
  EXPECT_FALSE(recording.ok()) << text;
  return recording.ok() ? "" : recording.error().message;
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Refusals, CutOffAtAnyByte) {
  const std::string whole = text_of(phases_with(30));
  for (size_t bytes = 0; bytes + 2 < whole.size(); bytes += 97) {
    expect_in(refusal("cut.json", whole.substr(0, bytes)), "not JSON or that is cut off");
  }
}

TEST(Refusals, NoTrace) {
  expect_in(refusal("other.json", R"({"stages": 4})"), "found other JSON");
  expect_in(refusal("empty.json", "[]"), "without events that last");
  expect_in(refusal("empty_list.json", R"({"traceEvents": []})"), "without events that last");
  const auto none = read_recording("/no/such/trace.json");
  ASSERT_FALSE(none.ok());
  expect_in(none.error().message, "/no/such/trace.json");
}

TEST(Refusals, TraceOfAnotherTool) {
  const std::string told = refusal(
      "foreign.json", R"([{"ph": "X", "name": "paint", "pid": 1, "tid": 1, "ts": 0, "dur": 5}])");
  expect_in(told, "'paint'");
  expect_in(told, "another tool");
}

TEST(Refusals, TimesThatCannotBe) {
  expect_in(
      refusal("backwards.json", R"([{"ph": "X", "name": "PP:0F0", "pid": 0, "ts": 9, "dur": -5}])"),
      "ends 5 us before it starts");
  expect_in(refusal("no_start.json", R"([{"ph": "X", "name": "PP:0F0", "pid": 0, "dur": 5}])"),
            "\"ts\" and \"dur\"");
}

TEST(Refusals, MissingWorker) {
  std::vector<Phase> phases = phases_with(30);
  std::erase_if(phases, [](const Phase& phase) { return phase.pipeline == 1 && phase.stage == 1; });
  expect_in(refusal("missing.json", text_of(phases)), "found none of pipeline 1, stage 1");
  expect_in(refusal("missing_stage.json",
                    R"([{"ph": "X", "name": "PP:1F0", "pid": 1, "ts": 0, "dur": 5}])"),
            "found none of stage 0");
}

// A worker that is there, but not for all micro-batches.
TEST(Refusals, MissingForward) {
  const auto recording = read_recording(written(
      "missing_forward.json", R"([{"ph": "X", "name": "PP:0F0", "pid": 0, "ts": 0, "dur": 5},
        {"ph": "X", "name": "PP:1F1", "pid": 1, "ts": 5, "dur": 5}])"));
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  const auto graphs = graphs_of(recording.value());
  ASSERT_FALSE(graphs.ok());
  expect_in(graphs.error().message, "the forward of micro-batch 1 at stage 0");
}

TEST(Refusals, MessagesThatDoNotFit) {
  std::vector<Phase> phases = phases_with(30);
  phases.push_back({"forward-send", 0, 0, 20, 21});
  expect_in(refusal("messages.json", text_of(phases)), "messages do not fit their compute ops");
}

}  // namespace
}  // namespace tenuto::analysis
