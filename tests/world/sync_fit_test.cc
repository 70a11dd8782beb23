// The section [sync] of a job: its settings, the file that travels with it, and what does not fit.
#include "world/sync_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "world/job_file.h"
#include "world/load.h"

namespace tenuto {
namespace {

// A job of four replicas with four micro-batches each.
std::vector<std::string> four_replicas() { return {"data.paths=a", "parallel.pipelines=4"}; }

// The same with server shards.
std::vector<std::string> with_servers() {
  std::vector<std::string> flags = four_replicas();
  flags.push_back("sync.architecture=servers");
  return flags;
}

// The error of the job of these flags, behind its place; empty = it is accepted.
std::string refusal(std::vector<std::string> flags, const std::vector<std::string>& more = {}) {
  flags.insert(flags.end(), more.begin(), more.end());
  const auto loaded = load_job("", flags);
  if (loaded.ok()) return "";
  EXPECT_EQ(loaded.error().code, Code::Invalid);
  return loaded.error().message;
}

TEST(SyncSettings, TheDefaultIsSynchronousWithoutServers) {
  const auto loaded = load_job("", four_replicas());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Job& job = loaded.value().job;
  EXPECT_FALSE(job.has_servers());
  EXPECT_FALSE(job.is_served());
  EXPECT_EQ(job.sync.mode, "synchronous");
  EXPECT_EQ(job.process_count(), 4);
  EXPECT_EQ(job.full_mass(), 16);
}

TEST(SyncSettings, ServersAreBehindTheWorkers) {
  const File file(
      "[data]\npaths = ['a']\n[parallel]\npipelines = 3\nmicros = 5\n[optimizer]\nclip = 0\n"
      "[sync]\nmode = 'x:2'\narchitecture = 'servers'\nservers = 4\nkappa = 1\n");
  const auto loaded = load_job(file.path(), {});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Job& job = loaded.value().job;
  EXPECT_TRUE(job.has_servers());
  EXPECT_TRUE(job.is_served());
  EXPECT_EQ(job.worker_count(), 3);
  EXPECT_EQ(job.process_count(), 7);
  EXPECT_EQ(job.full_mass(), 15);
  EXPECT_EQ(job.sync.kappa, 1);
  EXPECT_EQ(loaded.value().origin.at("sync.mode"), cat(file.path(), ":9"));
  // The workers read the same.
  const auto again = job_from_toml(to_toml(job), "text");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_toml(again.value()), to_toml(job));
  EXPECT_EQ(again.value().process_count(), 7);
}

TEST(SyncSettings, UnknownKeysAndChoicesAreRefused) {
  EXPECT_EQ(refusal(four_replicas(), {"--sync.architecture=ring"}),
            "--sync.architecture=ring: sync.architecture expects \"all-reduce\" or \"servers\", "
            "found \"ring\"");
  EXPECT_EQ(refusal(with_servers(), {"--sync.servers=0"}),
            "--sync.servers=0: sync.servers expects a whole number in [1, 256], found 0");
  EXPECT_EQ(refusal(four_replicas(), {"--sync.server=1"}),
            "--sync.server=1: [sync] has no key server, did you mean servers?");
  EXPECT_EQ(refusal(four_replicas(), {"--sync.chooser=best"}),
            "--sync.chooser=best: sync.chooser expects \"look-ahead\", \"heuristic\" or "
            "\"learned\", found \"best\"");
}

// With and without servers.
TEST(JobSyncMode, EveryModeFits) {
  for (const char* mode :
       {"synchronous", "asynchronous", "x:4", "grace:2", "grace:2:12.5ms", "groups",
        "groups:0,1/2,3", "ring:2", "ring:2:0,1,0,1", "backup:3", "rebalanced",
        "rebalanced:2,4,6,4", "bounded:3", "x:2+bounded:1", "auto"}) {
    EXPECT_EQ(refusal(with_servers(), {cat("sync.mode=", mode)}), "") << mode;
    EXPECT_EQ(refusal(four_replicas(), {cat("sync.mode=", mode)}), "") << mode;
  }
}

// Replicas keep the parameters then, and there are no other processes.
TEST(JobSyncMode, PartialUpdatesNeedNoServers) {
  for (const char* mode : {"x:2", "asynchronous", "synchronous+bounded:1", "auto"}) {
    std::vector<std::string> flags = four_replicas();
    flags.insert(flags.end(), {cat("sync.mode=", mode), "sync.servers=8"});
    const auto loaded = load_job("", flags);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const Job& job = loaded.value().job;
    EXPECT_TRUE(job.is_served()) << mode;
    EXPECT_FALSE(job.has_servers()) << mode;
    EXPECT_EQ(job.process_count(), 4) << mode;
  }
}

TEST(JobSyncMode, TextThatIsNoModeIsRefused) {
  const std::string said = refusal(four_replicas(), {"--sync.mode=synchronus"});
  EXPECT_EQ(said.find("--sync.mode=synchronus: sync.mode expects \"auto\" or a sync mode: sync "
                      "mode 'synchronus': expected synchronous, "),
            0u)
      << said;
  EXPECT_NE(said.find("did you mean 'synchronous'?"), std::string::npos) << said;
  EXPECT_NE(refusal(with_servers(), {"--sync.mode=groups:0,1/1,2"})
                .find("expected each replica in one group, found '1 twice'"),
            std::string::npos);
}

TEST(JobSyncMode, ModesFitTheReplicas) {
  const std::string start = "sync.mode does not fit parallel.pipelines and parallel.micros: ";
  const auto said = [&](const std::string& mode, std::vector<std::string> flags) {
    const std::string flag = "--sync.mode=" + mode, head = flag + ": " + start;
    flags.push_back(flag);
    const std::string message = refusal(flags);
    EXPECT_EQ(message.find(head), 0u) << message;
    return message.substr(std::min(head.size(), message.size()));
  };
  for (const auto& flags : {four_replicas(), with_servers()}) {
    EXPECT_EQ(said("x:5", flags),
              "sync mode x:5: expected a count from 1 to 4 with 4 replicas, found 5");
  }
  EXPECT_EQ(said("groups:0,1/2", with_servers()),
            "sync mode groups:0,1/2: its groups have 3 replicas, but there are 4: name each "
            "replica in one group");
  EXPECT_EQ(said("rebalanced:4,4,4,5", with_servers()),
            "sync mode rebalanced: expected shares that add up to 16 micro-batches, those of 4 "
            "replicas, found 17");
  EXPECT_EQ(said("asynchronous", {"data.paths=a", "sync.architecture=servers"}),
            "sync mode asynchronous: one replica has no other one to wait for: use synchronous");
  EXPECT_EQ(said("asynchronous", {"data.paths=a"}),
            "sync mode asynchronous: one replica has no other one to wait for: use synchronous");
  EXPECT_EQ(refusal({"data.paths=a", "sync.architecture=servers"}), "");
  EXPECT_EQ(refusal({"data.paths=a", "sync.architecture=servers"}, {"--sync.mode=auto"}),
            "--sync.mode=auto: sync.mode \"auto\" chooses how several replicas make updates, and "
            "parallel.pipelines is 1: take \"synchronous\"");
}

TEST(JobSyncMode, LocalSteps) {
  EXPECT_EQ(refusal(four_replicas(), {"--sync.mode=synchronous+local:4"}), "");
  EXPECT_EQ(refusal(with_servers(), {"--sync.mode=synchronous+local:4"}), "");
  EXPECT_EQ(refusal(with_servers(), {"--sync.mode=x:2+local:8+outer:0.7,0.9"}), "");
  EXPECT_EQ(
      refusal({"data.paths=a", "sync.architecture=servers"}, {"--sync.mode=synchronous+local:2"}),
      "");
}

// One setting at a time beside server shards, and the begin of the sentence behind its name.
std::vector<std::pair<std::string, std::string>> settings_of_synchronous_training() {
  return {
      {"device.kind=paced", "\"paced\" computes no gradients, and "},
      {"resilience.layers=adapt", "\"adapt\" is about layers that move between stages"},
      {"resilience.layers=observe", "\"observe\" is about layers that move between stages"},
      {"resilience.slow_workers=adapt", "\"adapt\" moves micro-batches between pipelines"},
      {"resilience.copies=1", "1 asks for copies of a stage on other workers"},
      {"resilience.numerics=reproducible", "\"reproducible\" sums the gradients of a step in"},
      {"parallel.optimizer=staggered", "\"staggered\" says when each stage makes its update"},
      {"parallel.schedule=lists.sched", "names lists.sched, and "},
      {"parallel.chunks=2", "2 stages in a worker, and "},
  };
}

TEST(JobWithServers, SettingsOfSynchronousTrainingAreRefused) {
  for (const auto& [flag, sentence] : settings_of_synchronous_training()) {
    const std::string key = flag.substr(0, flag.find('='));
    const std::string said = refusal(with_servers(), {"--" + flag});
    EXPECT_EQ(said.find(cat("--", flag, ": ", key, " ", sentence)), 0u) << said;
    EXPECT_NE(said.find("and with server shards "), std::string::npos) << said;
  }
  const std::string said = refusal(with_servers(), {"--sync.servers=3"});
  EXPECT_EQ(said.find("--sync.servers=3: sync.servers 3 servers would each have a part of the "
                      "model, and optimizer.clip (1)"),
            0u)
      << said;
}

// The sentence names the mode, because the job has no servers.
TEST(JobWithoutServers, SettingsOfSynchronousTrainingAreRefusedInOtherModes) {
  for (const auto& [flag, sentence] : settings_of_synchronous_training()) {
    const std::string key = flag.substr(0, flag.find('='));
    const std::string said = refusal(four_replicas(), {"sync.mode=x:2", "--" + flag});
    EXPECT_EQ(said.find(cat("--", flag, ": ", key, " ", sentence)), 0u) << said;
    EXPECT_NE(said.find("and with sync.mode = \"x:2\" "), std::string::npos) << said;
    EXPECT_EQ(said.find("server"), std::string::npos) << said;
  }
}

TEST(JobWithoutServers, StagesHaveTheirOwnParameters) {
  std::vector<std::string> flags = four_replicas();
  flags.insert(flags.end(), {"sync.mode=x:2", "parallel.stages=2"});
  EXPECT_EQ(refusal(flags, {"optimizer.clip=0"}), "");
  EXPECT_EQ(refusal(flags, {"--optimizer.clip=0.5"}),
            "--optimizer.clip=0.5: optimizer.clip 0.5 needs the norm of the whole gradient, and "
            "with sync.mode = \"x:2\" nobody has more than one of 2 stages in a range: set it to "
            "0, or parallel.stages to 1");
  // With one stage there is one range, whose keepers know the norm.
  EXPECT_EQ(refusal(four_replicas(), {"sync.mode=x:2", "optimizer.clip=0.5"}), "");
}

// A replica of several stages: with clipping off, and without a weight that two of them share.
TEST(JobWithServers, StagesHaveTheirOwnParameters) {
  std::vector<std::string> flags = with_servers();
  flags.push_back("parallel.stages=2");
  EXPECT_EQ(refusal(flags, {"optimizer.clip=0"}), "");
  const auto expect_begin = [&](const std::vector<std::string>& more, const std::string& begin) {
    const std::string said = refusal(flags, more);
    EXPECT_EQ(said.find(begin), 0u) << said;
  };
  expect_begin({"--optimizer.clip=0.5"},
               "--optimizer.clip=0.5: optimizer.clip 0.5 needs the norm of the whole gradient");
  expect_begin({"optimizer.clip=0", "--model.tied=true"},
               "--model.tied=true: model.tied is true, and with server shards first and last of 2");
}

TEST(JobWithServers, WhatFitsIsAccepted) {
  for (const char* flag :
       {"device.kind=cuda", "resilience.slow_links=observe", "resilience.numerics=fast",
        "parallel.optimizer=auto", "parallel.chunks=1", "sync.servers=1", "model.tied=true"}) {
    EXPECT_EQ(refusal(with_servers(), {flag}), "") << flag;
  }
  EXPECT_EQ(refusal(with_servers(), {"sync.servers=8", "optimizer.clip=0"}), "");
  // Without servers their number does not matter.
  EXPECT_EQ(refusal(four_replicas(), {"sync.servers=8"}), "");
}

TEST(JobWithServers, FaultsAreNotRehearsed) {
  const File file(
      "[data]\npaths = ['a']\n[parallel]\npipelines = 2\n[sync]\narchitecture = 'servers'\n"
      "[[fault]]\nkind = 'kill'\nworker = '1'\nat_step = 2\n");
  const auto loaded = load_job(file.path(), {});
  ASSERT_FALSE(loaded.ok());
  const std::string start =
      cat(file.path(), ":7:1: fault[0] is a fault that a step rehearses, and with server shards");
  EXPECT_EQ(loaded.error().message.find(start), 0u) << loaded.error().message;
}

TEST(JobWithServers, HogsAreReal) {
  const std::string start =
      "[data]\npaths = ['a']\n[parallel]\npipelines = 2\n[sync]\narchitecture = 'servers'\n"
      "servers = 2\n[[fault]]\nkind = 'cpu-hog'\nthreads = 2\nworker = ";
  // Of a server, too.
  for (const char* worker : {"'1'", "'3'"}) {
    const File file(cat(start, worker, "\n"));
    const auto loaded = load_job(file.path(), {});
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  }
  const std::string chaos = cat(start, "'1'\n[[fault]]\nkind = 'chaos'\nevery = 5\n");
  EXPECT_FALSE(load_job(File(chaos).path(), {}).ok());
  const File hogs(chaos + "hogs = true\n");
  const auto drawn = load_job(hogs.path(), {});
  ASSERT_TRUE(drawn.ok()) << drawn.error().message;
  EXPECT_GT(drawn.value().job.faults.size(), 2u);
  const File none(cat(start, "'4'\n"));
  EXPECT_FALSE(load_job(none.path(), {}).ok());
  const File mixed(cat(start, "'1'\n[[fault]]\nkind = 'kill'\nworker = '1'\n"));
  const auto loaded = load_job(mixed.path(), {});
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("fault[1] is a fault that a step rehearses"),
            std::string::npos)
      << loaded.error().message;
}

// ---- the chooser file ---------------------------------------------------------------------------

constexpr char kChooser[] = "tenuto chooser 1\nreplicas 4\n# a comment with \"quotes\" and \\\n";

// The text of a job has the whole file, wherever that is.
TEST(JobChooserFile, TravelsWithTheJob) {
  std::string text;
  {
    const File file(kChooser);
    std::vector<std::string> flags = with_servers();
    flags.insert(flags.end(), {"sync.mode=auto", "sync.chooser=learned",
                               cat("sync.chooser_file=", file.path())});
    const auto loaded = load_job("", flags);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded.value().job.sync.chooser_content, kChooser);
    EXPECT_EQ(loaded.value().origin.at("sync.chooser_content"), file.path());
    text = to_toml(loaded.value().job);
  }
  const auto job = job_from_toml(text, "text");
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job.value().sync.chooser_content, kChooser);
  EXPECT_EQ(to_toml(job.value()), text);
}

TEST(JobChooserFile, WithoutOneNothingTravels) {
  const auto loaded = load_job("", {"data.paths=a", "sync.chooser=learned"});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded.value().job.sync.chooser_content, "");
  EXPECT_EQ(loaded.value().origin.at("sync.chooser_content"), "default");
}

TEST(JobChooserFile, BelongsToTheLearnedChooser) {
  const File file(kChooser);
  const std::string flag = cat("--sync.chooser_file=", file.path());
  EXPECT_EQ(refusal(with_servers(), {"sync.mode=auto", flag}),
            cat(flag,
                ": sync.chooser_file names what a learned chooser has learned, and sync.chooser is "
                "\"look-ahead\": set that to \"learned\", or leave the file out"));
}

TEST(JobChooserFile, FilesThatCannotTravelAreRefused) {
  const auto said = [](const std::string& path) {
    return refusal(with_servers(), {"sync.chooser=learned", cat("sync.chooser_file=", path)});
  };
  const File empty(""), binary(std::string("tenuto\0chooser", 14)), accents("# gr\xc3\xb6\xc3\x9f"),
      large(std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(said(empty.path()), cat(empty.path(),
                                    ": expected a text in ASCII for sync.chooser_file, found an "
                                    "empty file"));
  for (const File* file : {&binary, &accents}) {
    EXPECT_EQ(
        said(file->path()),
        cat(file->path(), ": expected a text in ASCII for sync.chooser_file, found other bytes"));
  }
  EXPECT_NE(said(large.path()).find("bytes are too many for sync.chooser_file, which travels"),
            std::string::npos);
  EXPECT_NE(said("/nowhere/chooser"), "");
}

TEST(JobChooserFile, ContentsAreTakenFromTheFile) {
  EXPECT_EQ(refusal(with_servers(), {"sync.chooser_content=x"}),
            "sync.chooser_content is taken from a file: name it in sync.chooser_file");
  const File file(kChooser);
  EXPECT_EQ(refusal(with_servers(), {"sync.chooser=learned", "sync.chooser_content=x",
                                     cat("sync.chooser_file=", file.path())}),
            cat("--sync.chooser_content is not the content of ", file.path(), ": leave it out"));
}

TEST(SyncSettings, ALedgerIsForRunsThatMayLeaveSynchrony) {
  EXPECT_EQ(refusal(with_servers(), {"sync.ledger=/tmp/ledger", "optimizer.clip=0"}), "");
  EXPECT_EQ(refusal(with_servers(), {"sync.ledger=/tmp/ledger", "sync.tc=eth0", "optimizer.clip=0",
                                     "sync.ledger_megabytes_per_second=125"}),
            "");
  EXPECT_NE(refusal(with_servers(), {"sync.tc=eth0", "optimizer.clip=0"})
                .find("without a ledger nothing is limited"),
            std::string::npos);
  for (const std::string device : {"eth 0", "-all", "a/b", "a-name-that-is-too-long"}) {
    EXPECT_NE(refusal(with_servers(),
                      {"sync.ledger=/tmp/ledger", "optimizer.clip=0", "sync.tc=" + device})
                  .find("is no name of a network device"),
              std::string::npos)
        << device;
  }
  EXPECT_FALSE(refusal(with_servers(), {"sync.ledger_megabytes_per_second=-1"}).empty());
  const std::string sentence = refusal(four_replicas(), {"sync.ledger=/tmp/ledger"});
  EXPECT_NE(sentence.find("sync.ledger names /tmp/ledger, and with sync.mode = \"synchronous\" "
                          "this job never leaves the synchronous mode"),
            std::string::npos)
      << sentence;
}

}  // namespace
}  // namespace tenuto
