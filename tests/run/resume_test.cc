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

Manifest manifest_of(const Job& job) {
  Manifest manifest{.step = 3, .epoch = 1, .job = to_toml(job)};
  if (job.has_servers()) manifest.servers = ServedState{7, 12};
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

TEST(Resume, AnotherModelIsRefused) {
  const Job plain = job_of("");
  Job wide = plain;
  wide.model.width *= 2;
  EXPECT_NE(refusal(wide, manifest_of(plain)).find("model.width"), std::string::npos);
}

// The ranges, the replicas and the mass of a step stay.
TEST(Resume, ServerShardsStayAsTheyWere) {
  const Manifest manifest = manifest_of(with_servers());
  const auto refused = [&](const std::function<void(Job&)>& change) {
    Job job = with_servers();
    change(job);
    return refusal(job, manifest);
  };
  const auto names = [](const std::string& sentence, const char* key) {
    return sentence.find(key) != std::string::npos;
  };
  EXPECT_TRUE(names(refused([](Job& job) { job.sync.servers = 1; }), "sync.servers"));
  EXPECT_TRUE(names(refused([](Job& job) { job.parallel.pipelines = 3; }), "parallel.pipelines"));
  EXPECT_TRUE(names(refused([](Job& job) { job.parallel.micros = 2; }), "parallel.micros"));
  EXPECT_TRUE(names(refused([](Job& job) { job.optimizer.clip = 2; }), "optimizer.clip"));
  // The mode may change with each run.
  EXPECT_EQ(refused([](Job& job) { job.sync.mode = "asynchronous"; }), "");
}

}  // namespace
}  // namespace tenuto
