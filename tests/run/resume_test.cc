// From which checkpoints a job can go on.
#include "run/resume.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "world/load.h"

namespace tenuto {
namespace {

// A job that reads, as one of a job file does.
Job job_of(const std::string& more) {
  const std::string text = "[model]\nkind = \"mlp\"\n[data]\nkind = \"classes\"\npaths = [\"x\"]\n";
  const Result<Job> job = job_from_toml(text + more, "job");
  EXPECT_TRUE(job.ok()) << job.error().message;
  return job.value();
}

Job with_servers() {
  return job_of("[parallel]\npipelines = 2\n[sync]\narchitecture = \"servers\"\n");
}

// The replicas keep the parameters themselves.
Job without_servers() {
  return job_of("[parallel]\npipelines = 2\n[sync]\nmode = \"asynchronous\"\n");
}

Manifest manifest_of(const Job& job) {
  Manifest manifest{.step = 3, .epoch = 1, .job = to_toml(job)};
  if (job.is_served()) manifest.servers = ServedState{7, 12};
  return manifest;
}

std::string refusal(const Job& job, const Manifest& manifest) {
  const Status same = check_resumable(job, manifest, "checkpoint-3");
  return same.ok() ? "" : same.error().message;
}

TEST(Resume, TheSameJobGoesOn) {
  const Job plain = job_of("");
  EXPECT_EQ(refusal(plain, manifest_of(plain)), "");
  EXPECT_EQ(refusal(with_servers(), manifest_of(with_servers())), "");
}

TEST(Resume, AnotherArchitectureIsRefusedBothWays) {
  const Job plain = job_of("[parallel]\npipelines = 2\n");
  EXPECT_EQ(refusal(with_servers(), manifest_of(plain)),
            "checkpoint-3 was made with sync.architecture = all-reduce, the job says servers: "
            "resume the run with the same value");
  EXPECT_EQ(refusal(plain, manifest_of(with_servers())),
            "checkpoint-3 was made with sync.architecture = servers, the job says all-reduce: "
            "resume the run with the same value");
}

// Who keeps the ranges does not matter, and neither does the mode.
TEST(Resume, RunsWithAndWithoutServersGoOnFromEachOther) {
  EXPECT_EQ(refusal(without_servers(), manifest_of(with_servers())), "");
  EXPECT_EQ(refusal(with_servers(), manifest_of(without_servers())), "");
  Job automatic = without_servers();
  automatic.sync.mode = "auto";
  EXPECT_EQ(refusal(automatic, manifest_of(without_servers())), "");
  Job three = without_servers();
  three.parallel.pipelines = 3;
  EXPECT_EQ(refusal(three, manifest_of(with_servers())),
            "checkpoint-3 was made with parallel.pipelines = 2, the job says 3: resume the run "
            "with the same value");
}

TEST(Resume, SynchronousRunsWithoutServersHaveOtherStates) {
  const Job plain = job_of("[parallel]\npipelines = 2\n");
  EXPECT_EQ(refusal(without_servers(), manifest_of(plain)),
            "checkpoint-3 was made with sync.mode = synchronous, the job says asynchronous: "
            "resume the run with the same value");
  EXPECT_EQ(refusal(plain, manifest_of(without_servers())),
            "checkpoint-3 was made with sync.mode = asynchronous, the job says synchronous: "
            "resume the run with the same value");
}

TEST(Resume, AnotherModelIsRefused) {
  const Job plain = job_of("");
  Job wide = plain;
  wide.model.width *= 2;
  EXPECT_NE(refusal(wide, manifest_of(plain)).find("model.width"), std::string::npos);
}

// The replicas, the mass of a step and the moments stay; the ranges need not.
TEST(Resume, RunsWithServerShardsKeepTheirReplicas) {
  const Manifest manifest = manifest_of(with_servers());
  const auto refused = [&](const std::function<void(Job&)>& change) {
    Job job = with_servers();
    change(job);
    return refusal(job, manifest);
  };
  const auto sentence = [](const std::string& key, const std::string& was, const std::string& is) {
    return "checkpoint-3 was made with " + key + " = " + was + ", the job says " + is +
           ": resume the run with the same value";
  };
  const Job job = with_servers();
  EXPECT_EQ(refused([](Job& of) { of.parallel.pipelines = 3; }),
            sentence("parallel.pipelines", "2", "3"));
  EXPECT_EQ(refused([](Job& of) { of.parallel.micros += 1; }),
            sentence("parallel.micros", std::to_string(job.parallel.micros),
                     std::to_string(job.parallel.micros + 1)));
  // The mode, the number of servers and clipping may change with each run.
  EXPECT_EQ(refused([](Job& of) { of.sync.mode = "asynchronous"; }), "");
  EXPECT_EQ(refused([](Job& of) { of.sync.servers = 1; }), "");
  EXPECT_EQ(refused([](Job& of) { of.optimizer.clip = 2; }), "");
}

// With momentum the states of the ranges have a moment, and without it none.
TEST(Resume, ServerShardsKeepOrLackMomentum) {
  Job with = with_servers();
  with.optimizer.kind = "sgd";
  with.optimizer.momentum = 0.5;
  Job more = with, without = with;
  more.optimizer.momentum = 0.75;
  without.optimizer.momentum = 0;
  EXPECT_EQ(refusal(more, manifest_of(with)), "");
  EXPECT_EQ(refusal(without, manifest_of(without)), "");
  EXPECT_EQ(refusal(without, manifest_of(with)),
            "checkpoint-3 was made with optimizer.momentum = 0.5, the job says 0: resume the run "
            "with the same value");
  EXPECT_NE(refusal(with, manifest_of(without)), "");
}

// The states in a checkpoint of server shards are those of stages.
TEST(Resume, StagesOfServersKeepTheirLayers) {
  Manifest manifest = manifest_of(with_servers());
  manifest.partition = {{0, 2, {}}, {2, 5, {}}};
  Plan plan;
  plan.stages = {{0, 2, {WorkerId{0}}}, {2, 5, {WorkerId{1}}}};
  EXPECT_TRUE(check_same_layers(plan, manifest, "checkpoint-3").ok());
  plan.stages[0].layer_end = plan.stages[1].layer_first = 3;
  const Status other = check_same_layers(plan, manifest, "checkpoint-3");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message,
            "checkpoint-3 has the states of stages with layers 0 to 2, 2 to 5, the job's have 0 to "
            "3, 3 to 5: resume the run with the settings of the checkpoint (manifest.json)");
  manifest.servers.reset();
  EXPECT_TRUE(check_same_layers(plan, manifest, "checkpoint-3").ok());
}

}  // namespace
}  // namespace tenuto
