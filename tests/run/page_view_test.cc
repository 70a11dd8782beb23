// What the page shows of a run: its workers, links and times.
#include "run/page_view.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "control/play.h"

namespace tenuto {
namespace {

Job small_job() {
  Job job;
  job.name = "small";
  job.parallel.pipelines = 2;
  job.parallel.stages = 2;
  return job;
}

TEST(PageView, ShowsTheWorkersByStageAndPipeline) {
  Play play;
  play.connect();
  play.state.planning.present = std::make_shared<const Plan>();
  KnownTimes times;
  const page::Snapshot snapshot = snapshot_of(play.state, small_job(), times);
  EXPECT_EQ(snapshot.job, "small");
  EXPECT_EQ(snapshot.situation, "running");
  EXPECT_EQ(snapshot.steps, 10);
  EXPECT_EQ(snapshot.slow_links, "observe");
  EXPECT_EQ(snapshot.slow_workers, "observe");
  EXPECT_EQ(snapshot.layers, "");  // they cannot move
  EXPECT_FALSE(snapshot.mass.has_value());
  ASSERT_EQ(snapshot.workers.size(), 4u);
  for (int32_t w = 0; w < 4; ++w) {
    const page::ShownWorker& worker = snapshot.workers[static_cast<size_t>(w)];
    EXPECT_EQ(worker.worker, w);
    EXPECT_EQ(worker.state, "healthy") << w;
    EXPECT_EQ(worker.stages, std::vector<int32_t>{w % 2}) << w;
    EXPECT_EQ(worker.pipeline, w / 2) << w;
    EXPECT_FALSE(worker.times.has_value()) << w;
  }
}

// Either layers or micro-batches leave a slow worker, so only one of them can be changed.
TEST(PageView, ShowsWhatCanBeChanged) {
  Play play;
  play.connect();
  play.state.planning.present = std::make_shared<const Plan>();
  play.state.planning.treatments.layers = Treatment::Adapt;
  Job job = small_job();
  job.resilience.layers = "observe";
  KnownTimes times;
  const page::Snapshot snapshot = snapshot_of(play.state, job, times);
  EXPECT_EQ(snapshot.treatment, "act");
  EXPECT_EQ(snapshot.slow_workers, "observe");
  EXPECT_EQ(snapshot.layers, "adapt");
  // Layers that have no stages of their own cannot move.
  job.resilience.layers = "off";
  EXPECT_EQ(snapshot_of(play.state, job, times).layers, "");
}

TEST(PageView, KeepsTheTimesOfAStepThatIsCommitted) {
  Play play;
  play.connect();
  play.state.planning.present = std::make_shared<const Plan>();
  StepSummary summary{.step = 0, .start_ns = 0, .finish_ns = 2'000'000'000};
  summary.sample.ops = {{{1}, {1}, OpKind::Forward, 4, std::chrono::milliseconds(125)},
                        {{1}, {1}, OpKind::BackwardInput, 2, std::chrono::milliseconds(250)},
                        {{1}, {1}, OpKind::BackwardWeight, 1, std::chrono::milliseconds(250)}};
  play.state.members[1].report.steps = {summary};
  KnownTimes times;
  (void)snapshot_of(play.state, small_job(), times);
  play.state.members[1].report.steps.clear();
  const page::Snapshot snapshot = snapshot_of(play.state, small_job(), times);
  ASSERT_TRUE(snapshot.workers[1].times.has_value());
  EXPECT_EQ(snapshot.workers[1].times->whole, 2);
  EXPECT_EQ(snapshot.workers[1].times->forward, 0.5);
  EXPECT_EQ(snapshot.workers[1].times->backward, 0.5);
  EXPECT_EQ(snapshot.workers[1].times->weight, 0.25);
  // The clock of a paced device is shown instead, where it has one.
  summary.step = 1;
  summary.device_start_ns = 500'000'000;
  summary.device_finish_ns = 1'500'000'000;
  play.state.members[1].report.steps = {summary};
  EXPECT_EQ(snapshot_of(play.state, small_job(), times).workers[1].times->whole, 1);
}

TEST(PageView, SaysWhatIsWrong) {
  Play play;
  play.connect();
  play.state.planning.present = std::make_shared<const Plan>();
  play.state.members[0].alive = false;
  play.state.members[1].suspect_since = Duration(1);
  play.state.members[1].suspicion = "was declared lost by worker 2";
  play.state.members[2].joining = Joining::Receiving;
  play.state.members[3].report = Report();
  play.state.members[3].report.incarnation = -1;
  MonitorState monitor = *play.state.planning.monitor;
  LinkWatch& link = monitor.links[{WorkerId{0}, WorkerId{1}}];
  const Duration way = std::chrono::milliseconds(4);
  for (int64_t step = 0; step < 10; ++step) {
    link.add(steady_link({0}, {1}, way), step, Duration(1));
    link.add(steady_link({1}, {0}, way), step, Duration(1));
  }
  const Duration usual = link.round_trip();
  play.state.planning.monitor = std::make_shared<const MonitorState>(std::move(monitor));
  KnownTimes times;
  const page::Snapshot snapshot = snapshot_of(play.state, small_job(), times);
  EXPECT_EQ(snapshot.workers[0].state, "dead");
  EXPECT_EQ(snapshot.workers[1].reason, "was declared lost by worker 2");
  EXPECT_EQ(snapshot.workers[2].state, "joining");
  EXPECT_EQ(snapshot.workers[3].state, "absent");
  ASSERT_EQ(snapshot.links.size(), 1u);
  EXPECT_FALSE(snapshot.links[0].slow);
  EXPECT_GT(usual, Duration::zero());
  EXPECT_EQ(snapshot.links[0].round_trip, to_milliseconds(usual) / 1e3);
}

TEST(PageView, ShowsTheProcessesOfARunWithServerShards) {
  Job job;
  job.name = "served";
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
  status.mode = "asynchronous";
  status.age = 0.5;
  status.mass = {26};
  const page::Snapshot snapshot = snapshot_of(status, processes, job);
  EXPECT_EQ(snapshot.mode, "asynchronous");
  EXPECT_EQ(snapshot.mass, 26);
  EXPECT_EQ(snapshot.age, 0.5);
  ASSERT_EQ(snapshot.workers.size(), 2u);
  EXPECT_EQ(snapshot.workers[0].kind, "replica");
  EXPECT_EQ(snapshot.workers[0].state, "healthy");
  EXPECT_EQ(snapshot.workers[0].pipeline, 0);
  EXPECT_EQ(snapshot.workers[1].kind, "server");
  EXPECT_EQ(snapshot.workers[1].state, "absent");
}

}  // namespace
}  // namespace tenuto
