#include "world/chaos.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/text.h"
#include "world/job.h"
#include "world/job_file.h"
#include "world/load.h"

namespace tenuto {
namespace {

Fault chaos_of(int64_t seed, int64_t every) {
  Fault chaos;
  chaos.kind = "chaos";
  chaos.seed = seed;
  chaos.every = every;
  chaos.at_step = 3;
  return chaos;
}

Job job_of(int32_t stages, int32_t pipelines) {
  Job job;
  job.steps = 200;
  job.parallel.stages = stages;
  job.parallel.pipelines = pipelines;
  return job;
}

TEST(Chaos, LeavesAHolderOfEveryStage) {
  std::map<std::string, int> kinds;
  for (int64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    const auto stages = static_cast<int32_t>(1 + seed % 4);
    const auto pipelines = static_cast<int32_t>(1 + seed % 3);
    const Job job = job_of(stages, pipelines);
    const std::vector<Fault> faults = draw_chaos(chaos_of(seed, 1 + seed % 9), job);
    EXPECT_FALSE(faults.empty());
    std::vector<std::set<int32_t>> hit(static_cast<size_t>(stages));
    std::map<int32_t, int64_t> back;  // of a dead worker: the step in which it starts again
    int64_t before = 0;
    for (const Fault& fault : faults) {
      ++kinds[fault.kind];
      EXPECT_GE(fault.at_step, std::max<int64_t>(before, 3));
      EXPECT_LT(fault.at_step, job.steps);
      before = fault.at_step;
      if (is_of_worker(fault)) {
        const int32_t worker = worker_of(fault, stages).value;
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, job.worker_count());
        if (fault.for_ms > 0) {
          EXPECT_LT(fault.for_ms, 1000 * job.resilience.silence_seconds / 2);
        } else if (fault.kind == "kill" || fault.kind == "stop") {
          hit[static_cast<size_t>(worker % stages)].insert(worker);
          EXPECT_FALSE(back.contains(worker)) << "it is gone already";
          back[worker] = -1;
        } else if (fault.kind == "start") {
          EXPECT_EQ(back.erase(worker), 1u) << "nobody is gone";
        }
      } else if (!is_of_coordinator(fault) && fault.link >= 0) {
        EXPECT_LT(fault.link + 1, stages);
      }
    }
    for (const auto& workers : hit) EXPECT_LT(static_cast<int32_t>(workers.size()), pipelines);
  }
  for (const char* kind : {"kill", "stop", "start", "partition", "clock-skew", "slow-link",
                           "slow-worker", "broken-connection", "kill-coordinator"}) {
    EXPECT_GT(kinds[kind], 100) << kind;
  }
}

TEST(Chaos, DrawsHogsWhereItMay) {
  const auto is_bad = [](const Fault& fault) {
    const bool has_one_end = (fault.for_ms > 0) != (fault.until_step > fault.at_step);
    const bool takes = fault.kind == "cpu-hog" ? fault.threads >= 1 && fault.threads <= 4
                                               : fault.megabytes_per_second >= 1;
    return !has_one_end || !takes || fault.worker.empty();
  };
  const Job job = job_of(2, 3);
  std::map<std::string, int> kinds;
  for (int64_t seed = 0; seed < 50; ++seed) {
    Fault chaos = chaos_of(seed, 2);
    const std::vector<Fault> without = draw_chaos(chaos, job);
    EXPECT_TRUE(std::none_of(without.begin(), without.end(), is_hog)) << "it was not asked for";
    chaos.hogs = true;
    for (const Fault& fault : draw_chaos(chaos, job)) {
      ++kinds[fault.kind];
      EXPECT_FALSE(is_hog(fault) && is_bad(fault)) << describe(fault);
    }
    Job paced = job;
    paced.device.kind = "paced";
    EXPECT_EQ(draw_chaos(chaos, paced), without) << "paced devices take none";
    // Replicas that do not make steps together have no other faults.
    Job served = job;
    served.sync.architecture = "servers";
    const std::vector<Fault> hogs = draw_chaos(chaos, served);
    EXPECT_FALSE(hogs.empty());
    EXPECT_TRUE(std::all_of(hogs.begin(), hogs.end(), is_hog));
    served.device.kind = "paced";
    EXPECT_TRUE(draw_chaos(chaos, served).empty());
  }
  for (const char* kind : {"cpu-hog", "bandwidth-hog", "kill", "slow-link"}) {
    EXPECT_GT(kinds[kind], 50) << kind;
  }
}

TEST(Chaos, TheSeedDeterminesTheFaults) {
  const Job job = job_of(3, 3);
  EXPECT_EQ(draw_chaos(chaos_of(5, 6), job), draw_chaos(chaos_of(5, 6), job));
  EXPECT_NE(draw_chaos(chaos_of(5, 6), job), draw_chaos(chaos_of(6, 6), job));
  Fault until = chaos_of(5, 6);
  until.until_step = 50;
  std::vector<Fault> first = draw_chaos(until, job);
  ASSERT_FALSE(first.empty());
  EXPECT_LT(first.back().at_step, 50);
}

TEST(Chaos, NoWorkerDiesIfThatWouldEndTheRun) {
  Job job = job_of(3, 3);
  job.resilience.dead_workers = "stop";
  job.coordinator.store = "memory";
  for (const Fault& fault : draw_chaos(chaos_of(5, 2), job)) {
    EXPECT_NE(fault.kind, "kill");
    EXPECT_NE(fault.kind, "start");
    EXPECT_NE(fault.kind, "kill-coordinator");
    EXPECT_TRUE(fault.kind != "stop" || fault.for_ms > 0);
  }
}

TEST(Chaos, AJobHasTheDrawnFaults) {
  const File file(
      "[job]\nsteps = 60\n[device]\nkind = \"paced\"\n[parallel]\nstages = 2\npipelines = 2\n"
      "[[fault]]\nkind = \"slow-link\"\nlink = 0\nlatency_ms = 3\n"
      "[[fault]]\nkind = \"chaos\"\nseed = 4\nevery = 5\nat_step = 3\n");
  const auto read = load_job(file.path(), {});
  ASSERT_TRUE(read.ok()) << read.error().message;
  const Job& job = read.value().job;
  Job plain = job;
  plain.faults.clear();
  std::vector<Fault> expected = draw_chaos(chaos_of(4, 5), plain);
  expected.insert(expected.begin(), job.faults.front());
  EXPECT_EQ(job.faults, expected);
  EXPECT_EQ(read.value().origin.at("fault[1]"), "chaos 4");
  // The printed job reads back with the same faults, and flags change what is drawn.
  const auto again = job_from_toml(to_toml(job), "again");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again.value().faults, job.faults);
  const auto wider = load_job(file.path(), {"--parallel.stages=4"});
  ASSERT_TRUE(wider.ok()) << wider.error().message;
  EXPECT_NE(wider.value().job.faults, job.faults);
}

TEST(Chaos, RefusesTooManyFaults) {
  const File file(
      "[job]\nsteps = 1000000\n[device]\nkind = \"paced\"\n[[fault]]\nkind = \"chaos\"\nevery = "
      "5\n");
  const auto read = load_job(file.path(), {});
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(
      read.error().message,
      file.path() +
          ":5:1: fault[0].every 5: chaos would create more than 100000 faults up to step 1000000; "
          "expected a larger number, or an earlier until_step");
}

}  // namespace
}  // namespace tenuto
