// The measured trace of a production job with one slow worker, compared with the what-if analysis
// that was published with it.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

#include "monitor/monitor.h"
#include "shared_data.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;

constexpr int32_t kPipelines = 4, kStages = 4, kStreams = 20;

// The text of a gzip file; empty when it cannot be read.
std::string unpacked(const std::string& path) {
  FILE* pipe = popen(("gzip -dc '" + path + "' 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  char buffer[1 << 16];
  for (size_t got = 0; (got = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    text.append(buffer, got);
  }
  return pclose(pipe) == 0 ? text : std::string();
}

// The trace numbers its first tensor-parallel members stage by stage, with 20 streams each; workers
// here are numbered pipeline by pipeline.
WorkerId worker_of(int64_t stream) {
  const auto member = static_cast<int32_t>(stream / kStreams);
  return {member % kPipelines * kStages + member / kPipelines};
}

Duration time_of(const Json& microseconds) {
  return from_milliseconds(microseconds.get<double>() / 1e3);
}

// The trace as events, one list a step. The n-th send of a stage is the n-th receive of its
// neighbour; a send's start is its stamp.
std::map<int64_t, std::vector<Event>> events_of(const Json& rows) {
  std::map<int64_t, std::vector<Event>> steps;
  std::map<std::tuple<int64_t, int32_t, bool, int32_t>, Duration> sent;  // step, worker, forward, n
  const auto each = [&](auto&& take) {
    for (const Json& row : rows) {
      if (row["ph"] != "X") continue;
      Event event;
      event.worker = worker_of(row["tid"].get<int64_t>());
      event.step = row["args"]["step"].get<int64_t>();
      event.start = time_of(row["ts"]);
      event.finish = event.start + time_of(row["dur"]);
      take(row["name"].get<std::string>(), row["args"].value("seq_id", -1), event);
    }
  };
  each([&](const std::string& name, int32_t number, const Event& event) {
    if (name != "forward-send" && name != "backward-send") return;
    sent[{event.step, event.worker.value, name == "forward-send", number}] = event.start;
  });
  each([&](const std::string& name, int32_t number, Event event) {
    event.op.stage = {event.worker.value % kStages};
    if (name == "forward-compute") {
      event.op.kind = OpKind::Forward;
    } else if (name == "backward-compute") {
      event.op.kind = OpKind::BackwardInput;
    } else if (name == "forward-recv" || name == "backward-recv") {
      const bool forward = name == "forward-recv";
      event.op.kind = OpKind::Recv;
      event.op.moved = forward ? ValueKind::Activation : ValueKind::Gradient;
      event.op.peer = {event.worker.value + (forward ? -1 : 1)};
      event.sent = sent.at({event.step, event.op.peer.value, forward, number});
    } else {
      return;
    }
    steps[event.step].push_back(event);
  });
  return steps;
}

// The pipeline, or the stage, whose slowness costs the job most.
int32_t worst_of(const Json& by_name) {
  std::pair<double, int32_t> worst{0, -1};
  for (const auto& [name, slowdown] : by_name.items()) {
    worst = std::max(worst, {slowdown.get<double>(), std::stoi(name)});
  }
  return worst.second;
}

TEST(Trace, NamesTheSlowWorkerAndNoLink) {
  const std::string path = shared_data("traces/timeline-AR.json.gz");
  std::ifstream result_file(shared_data("traces/result-AR.json"));
  if (!std::ifstream(path) || !result_file) GTEST_SKIP() << "the trace is not here: " << path;
  const std::string text = unpacked(path);
  if (text.empty()) GTEST_SKIP() << "gzip cannot unpack the trace: " << path;
  const Json result = Json::parse(result_file);
  const WorkerId slow{worst_of(result["blocking_decompose_by_dp_rank"]) * kStages +
                      worst_of(result["blocking_decompose_by_stage"])};

  MonitorState state = make_monitor(uniform_cluster(kPipelines * kStages, {}));
  std::vector<Verdict> verdicts;
  Cluster cluster;
  for (const auto& [step, events] : events_of(Json::parse(text))) {
    Detection detection = detect(std::move(state), make_samples(events), step);
    state = std::move(detection.state);
    cluster = detection.cluster;
    for (const Verdict& verdict : detection.verdicts) {
      std::printf("%s\n", verdict.sentence.c_str());
      verdicts.push_back(verdict);
    }
  }
  EXPECT_EQ(state.links.size(), static_cast<size_t>(kPipelines * (kStages - 1)));
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].kind, VerdictKind::SlowWorker);
  EXPECT_EQ(verdicts[0].from, slow);
  EXPECT_EQ(verdicts[0].since_step, 16) << "from the first step of the trace on";
  EXPECT_TRUE(cluster.exceptions.empty());
  for (size_t worker = 0; worker < cluster.workers.size(); ++worker) {
    const bool is_slow = static_cast<int32_t>(worker) == slow.value;
    EXPECT_EQ(cluster.workers[worker].speed < 1, is_slow) << worker;
  }
  // The job is 1.97 times as slow as it would be without this worker's slowness. Ops are only part
  // of a step, so the ops of the worker must be slower than that.
  EXPECT_LT(cluster.workers[static_cast<size_t>(slow.value)].speed,
            1 / result["blocking_slowdown"].get<double>());
}

}  // namespace
}  // namespace tenuto
