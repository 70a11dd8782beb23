// What `tenuto status` tells of slow workers, and of a run with server shards.
#include "run/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "control/play.h"
#include "run/status_lines.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;

Job small_job() {
  Job job;
  job.parallel.pipelines = job.parallel.stages = 2;
  return job;
}

Json worker_in(const State& state, size_t worker) {
  return Json::parse(status_text(state, small_job()))["workers"][worker];
}

// As on the page, a treatment that cannot be changed in this run is empty in JSON and not printed.
TEST(Status, TellsHowTroublesAreTreated) {
  Play play;
  play.connect();
  Planning& planning = play.state.planning;
  planning.present = std::make_shared<const Plan>();
  planning.treatments = {Treatment::Observe, Treatment::Adapt, Treatment::Adapt,
                         Treatment::Observe};
  Job job = small_job();
  const auto shown = [&] {
    Json json = Json::parse(status_text(play.state, job));
    json["job"] = "small";
    const std::string lines = status_lines(json.dump());
    const size_t begin = lines.find("all troubles");
    return lines.substr(begin, lines.find('\n', begin) - begin);
  };
  EXPECT_EQ(shown(), "all troubles: observe, slow links: adapt, slow workers: adapt");
  EXPECT_EQ(Json::parse(status_text(play.state, job))["layers"], "");
  job.resilience.layers = "observe";
  const Json json = Json::parse(status_text(play.state, job));
  EXPECT_EQ(json["treatment"], "observe");
  EXPECT_EQ(json["layers"], "observe");
  EXPECT_EQ(shown(),
            "all troubles: observe, slow links: adapt, slow workers: adapt, layers: observe");
}

TEST(Status, NamesTheCauseOfASlowWorkerAndItsHost) {
  Play play;
  play.connect();
  MonitorState monitor = *play.state.planning.monitor;
  Verdict verdict;
  verdict.kind = VerdictKind::SlowWorker;
  verdict.from = {2};
  StepLoad load{9, 2e6, 1e6, 0, {.step = Duration(4'000'000), .run_delay = Duration(1'000'000)}};
  load.processor.run_delay_is = load.processor.pressure_is = Figure::Known;
  monitor.loads[{2}].add(load);
  monitor.loads[{2}].judge(verdict);
  verdict.from = {3};
  monitor.loads[{3}].judge(verdict);  // its kernel has told nothing yet
  play.state.planning.present = std::make_shared<const Plan>();
  play.state.planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
  play.state.members[2].report.host = "node7";
  const Json named = worker_in(play.state, 2);
  EXPECT_EQ(named["host"], "node7 (127.0.0.1)");
  EXPECT_EQ(named["cause"], "cpu");
  EXPECT_EQ(named["reason"],
            "other processes take the processors of its host node7 (127.0.0.1): it waited for one "
            "in 25 % "
            "of its steps' time (pressure 0 %)");
  for (const size_t other : {size_t{0}, size_t{1}, size_t{3}}) {
    EXPECT_FALSE(worker_in(play.state, other).contains("cause")) << other;
  }
}

TEST(Status, NamesTheWorkersOfEachHost) {
  Play play;
  play.connect();
  for (size_t w = 0; w < play.state.members.size(); ++w) {
    Report& report = play.state.members[w].report;
    report.host = w < 2 ? "node1" : "node2";
    report.address = w < 2 ? "10.0.0.1:4000" : "10.0.0.2:4000";
  }
  const std::vector<std::string> expected = {
      "node1 (10.0.0.1) has worker 0 (stage 0 of pipeline 0), worker 1 (stage 1 of pipeline 0)",
      "node2 (10.0.0.2) has worker 2 (stage 0 of pipeline 1), worker 3 (stage 1 of pipeline 1)"};
  EXPECT_EQ(places_by_host(play.state), expected);
}

TEST(Status, NamesTheProcessesOfARunWithServerShards) {
  Job job;
  job.parallel.pipelines = 1;
  job.sync.architecture = "servers";
  job.sync.servers = 1;
  ServedProcesses processes(job);
  Report report;
  report.worker = {0};
  report.incarnation = 0;
  processes.hear(report, {});
  ServedStatus status;
  status.situation = "running";
  status.step = 3;
  status.steps = 20;
  status.epoch = 2;
  status.mode = "asynchronous";
  status.age = 0.5;
  status.mass = {26};
  Json json = Json::parse(status_text(status, processes));
  EXPECT_EQ(json["situation"], "running");
  EXPECT_EQ(json["step"], 3);
  EXPECT_EQ(json["steps"], 20);
  EXPECT_EQ(json["epoch"], 2);
  EXPECT_EQ(json["mode"], "asynchronous");
  EXPECT_EQ(json["age"], 0.5);
  EXPECT_EQ(json["mass"], 26);
  ASSERT_EQ(json["processes"].size(), 2u);
  EXPECT_EQ(json["processes"][0]["kind"], "replica");
  EXPECT_EQ(json["processes"][0]["replica"], 0);
  EXPECT_EQ(json["processes"][0]["stage"], 0);
  EXPECT_EQ(json["processes"][0]["alive"], true);
  EXPECT_EQ(json["processes"][0]["ranges"], 0);
  EXPECT_EQ(json["processes"][1]["kind"], "server");
  EXPECT_TRUE(json["processes"][1]["replica"].is_null());
  EXPECT_TRUE(json["processes"][1]["stage"].is_null());
  EXPECT_EQ(json["processes"][1]["alive"], false);
  json["job"] = "run";
  EXPECT_EQ(status_lines(json.dump()),
            "run: step 3 of 20, running\n"
            "epoch 2: 1 of 2 processes\n"
            "mode asynchronous: the newest works were 0.50 gradients old; 26 micro-batches are in "
            "updates\n"
            "worker 1 (server) is not connected\n");
}

TEST(Status, NamesTheReplicasThatKeepParameters) {
  Job job;
  job.parallel.pipelines = 3;
  job.sync.mode = "ring:2:0,1,0";
  ServedProcesses processes(job);
  for (const int32_t worker : {0, 1, 2}) {
    Report report;
    report.worker = {worker};
    report.incarnation = 0;
    ServedPlace* place = processes.hear(report, {});
    ASSERT_NE(place, nullptr);
    processes.host(*place, {10 + worker});
  }
  ServedStatus status;
  status.mode = job.sync.mode;
  status.kept[{10}] = 3;
  status.kept[{11}] = 2;
  status.kept[{99}] = 1;
  Json json = Json::parse(status_text(status, processes));
  ASSERT_EQ(json["processes"].size(), 3u);
  EXPECT_EQ(json["processes"][0]["ranges"], 3);
  EXPECT_EQ(json["processes"][1]["ranges"], 2);
  EXPECT_EQ(json["processes"][2]["ranges"], 0);
  json["job"] = "run";
  EXPECT_NE(status_lines(json.dump()).find("\nparameters are kept by worker 0, worker 1\n"),
            std::string::npos);
}

}  // namespace
}  // namespace tenuto
