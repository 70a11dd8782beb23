// Checkpoints on disk: each is complete, or it is refused.
#include "run/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "protocol/saved_shard.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// A folder that is removed after the test.
class Checkpoint : public testing::Test {
 protected:
  Checkpoint() {
    char name[] = "/tmp/tenuto-checkpoint-XXXXXX";
    run_ = mkdtemp(name);
  }
  ~Checkpoint() override { fs::remove_all(run_); }

  // Makes a checkpoint of `step` with two small files.
  void make(int64_t step) {
    const std::string folder = cat(run_, "/checkpoint-", step, ".tmp");
    fs::create_directories(folder);
    Manifest manifest{.step = step,
                      .epoch = 2,
                      .job = "[job]\n[device]\nkind = \"paced\"\n",
                      .partition = {{0, 3}, {3, 5}}};
    for (const std::string file : {"stage-0.safetensors", "stage-1.safetensors"}) {
      std::ofstream(folder + "/" + file) << "parameters of " << file << " at " << step;
      Result<SavedShard> shard = describe_shard(folder, file, step);
      ASSERT_TRUE(shard.ok());
      manifest.files.push_back(std::move(shard).value());
    }
    const Result<std::string> made = finish_checkpoint(run_, manifest);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made.value(), checkpoint_path(run_, step));
  }

  std::string run_;
};

TEST_F(Checkpoint, WhatIsWrittenIsRead) {
  make(7);
  const Result<Manifest> found = find_checkpoint(run_, -1, "--from-step");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value().step, 7);
  EXPECT_EQ(found.value().epoch, 2);
  EXPECT_EQ(found.value().job, "[job]\n[device]\nkind = \"paced\"\n");
  ASSERT_EQ(found.value().partition.size(), 2u);
  EXPECT_EQ(found.value().partition[1].layer_first, 3);
  EXPECT_EQ(found.value().files[1].file, "stage-1.safetensors");
  EXPECT_FALSE(fs::exists(run_ + "/checkpoint-7.tmp"));
}

TEST_F(Checkpoint, ACheckpointOfTheSameStepReplaces) {
  make(7);
  make(7);
  EXPECT_EQ(list_checkpoints(run_), std::vector<int64_t>{7});
  EXPECT_EQ(std::distance(fs::directory_iterator(run_), fs::directory_iterator()), 1);
}

TEST_F(Checkpoint, OnlyWholeFoldersCount) {
  make(100);
  make(20);
  fs::create_directories(run_ + "/checkpoint-300.tmp");
  fs::create_directories(run_ + "/checkpoint-");
  for (const char* name : {"checkpoint-3x", "checkpoint-007", "checkpoint--5"}) {
    fs::create_directories(cat(run_, "/", name));
  }
  EXPECT_EQ(list_checkpoints(run_), (std::vector<int64_t>{20, 100}));
}

TEST_F(Checkpoint, OldCheckpointsAreRemoved) {
  for (const int64_t step : {5, 10, 15, 20}) make(step);
  prune_checkpoints(run_, 2);
  EXPECT_EQ(list_checkpoints(run_), (std::vector<int64_t>{15, 20}));
}

// Workers fill the next folder while the manifest of the newest checkpoint is written.
TEST_F(Checkpoint, UnfinishedCheckpointsAreRemovedExceptTheNext) {
  make(20);
  for (const char* left : {"checkpoint-5.tmp", "checkpoint-9.old.tmp", "checkpoint-21.tmp"}) {
    fs::create_directories(cat(run_, "/", left));
  }
  prune_checkpoints(run_, 2);
  remove_unfinished(run_, 20);
  EXPECT_FALSE(fs::exists(run_ + "/checkpoint-5.tmp"));
  EXPECT_FALSE(fs::exists(run_ + "/checkpoint-9.old.tmp"));
  EXPECT_TRUE(fs::exists(run_ + "/checkpoint-21.tmp"));
  remove_unfinished(run_, 21);
  EXPECT_FALSE(fs::exists(run_ + "/checkpoint-21.tmp"));
  EXPECT_EQ(list_checkpoints(run_), std::vector<int64_t>{20});
}

TEST_F(Checkpoint, LaterCheckpointsAreSetAside) {
  using All = std::vector<SetAside>;
  for (const int64_t step : {5, 10, 15}) make(step);
  EXPECT_EQ(set_aside_checkpoints(run_, 5).value(),
            (All{{10, "checkpoint-10.aside"}, {15, "checkpoint-15.aside"}}));
  EXPECT_EQ(list_checkpoints(run_), std::vector<int64_t>{5});
  // Checkpoints that were set aside earlier stay as they are.
  const std::string first = read_file(run_ + "/checkpoint-10.aside/manifest.json").value();
  for (const char* name : {"checkpoint-10.aside-2", "checkpoint-10.aside-3"}) {
    make(10);
    EXPECT_EQ(set_aside_checkpoints(run_, 5).value(), (All{{10, name}}));
    EXPECT_TRUE(verify_checkpoint(cat(run_, "/", name)).ok());
  }
  EXPECT_EQ(read_file(run_ + "/checkpoint-10.aside/manifest.json").value(), first);
  EXPECT_EQ(set_aside_checkpoints(run_, 5).value(), All());
}

TEST_F(Checkpoint, EveryDamageIsFound) {
  make(4);
  const std::string file = checkpoint_path(run_, 4) + "/stage-0.safetensors";
  const std::string before = read_file(file).value();
  for (size_t at = 0; at < before.size(); ++at) {
    std::string damaged = before;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(file, std::ios::binary) << damaged;
    const Result<Manifest> found = find_checkpoint(run_, 4, "--from-step");
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Code::Corrupt);
  }
  std::ofstream(file, std::ios::binary) << before << "x";
  EXPECT_EQ(find_checkpoint(run_, 4, "--from-step").error().message,
            cat(file, " is damaged: expected ", before.size(), " bytes, found ", before.size() + 1,
                "; no older checkpoint is whole"));
  std::ofstream(file, std::ios::binary) << before;
  EXPECT_TRUE(find_checkpoint(run_, 4, "--from-step").ok());
}

TEST_F(Checkpoint, AnyHalfOfAManifestIsRefused) {
  make(4);
  const std::string file = checkpoint_path(run_, 4) + "/manifest.json";
  const std::string before = read_file(file).value();
  for (size_t size = 0; size + 2 < before.size(); ++size) {
    std::ofstream(file) << before.substr(0, size);
    ASSERT_FALSE(find_checkpoint(run_, 4, "--from-step").ok()) << size;
  }
}

// Each field of the manifest is checked, and the error names the wrong one.
TEST_F(Checkpoint, AManifestThatSaysSomethingElseIsRefused) {
  make(2);
  make(4);
  const std::string file = checkpoint_path(run_, 4) + "/manifest.json";
  const auto before = nlohmann::json::parse(read_file(file).value());
  using Json = nlohmann::json;
  const auto refusal = [&](const char* pointer, const Json& value) {
    Json changed = before;
    const Json::json_pointer at(pointer);
    if (value.is_discarded()) {
      changed.at(at.parent_pointer()).erase(at.back());
    } else {
      changed[at] = value;
    }
    std::ofstream(file) << changed;
    const Result<Manifest> found = find_checkpoint(run_, 4, "--from-step");
    if (found.ok()) return std::string("nothing");
    EXPECT_EQ(found.error().code, Code::Corrupt);
    const std::string& all = found.error().message;
    const std::string front = file + " is damaged: expected ";
    const std::string end = "; the checkpoint of step 2 is whole: choose it with --from-step 2";
    EXPECT_TRUE(all.starts_with(front) && all.ends_with(end)) << all;
    return all.substr(front.size(), all.size() - front.size() - end.size());
  };
  const Json none(Json::value_t::discarded);
  EXPECT_EQ(refusal("/step", -5), "step to be a whole number from 0 to 9007199254740992, found -5");
  EXPECT_EQ(refusal("/step", 3), "step 4, as the folder says, found 3");
  EXPECT_EQ(refusal("/step", int64_t{1} << 62),
            cat("step to be a whole number from 0 to 9007199254740992, found ", int64_t{1} << 62));
  EXPECT_EQ(refusal("/step", 4.0),
            "step to be a whole number from 0 to 9007199254740992, found 4.0");
  EXPECT_EQ(refusal("/step", none),
            "step to be a whole number from 0 to 9007199254740992, found none");
  EXPECT_EQ(refusal("/epoch", 0), "epoch to be a whole number from 1 to 9007199254740992, found 0");
  EXPECT_EQ(refusal("/format", "x"), "format \"tenuto checkpoint\", found \"x\"");
  EXPECT_EQ(refusal("/version", 2), "version 1, found 2");
  EXPECT_EQ(refusal("/job", 7), "job to be a text, found 7");
  EXPECT_EQ(refusal("/partition", Json::array()),
            "partition to be a list with an entry for each stage, found []");
  EXPECT_EQ(refusal("/partition/1/layer_first", 2), "partition[1].layer_first 3, found 2");
  EXPECT_EQ(refusal("/partition/1/layer_end", 3),
            "partition[1].layer_end to be a whole number from 4 to 9007199254740992, found 3");
  EXPECT_EQ(refusal("/partition/2", {{"layer_first", 5}, {"layer_end", 6}}),
            "files of 3 stages, found 2");
  EXPECT_EQ(refusal("/files/1/name", "stage-0.safetensors"),
            "files[1].name stage-1.safetensors, found stage-0.safetensors");
  EXPECT_EQ(refusal("/files/0/bytes", -1),
            "files[0].bytes to be a whole number from 1 to 9007199254740992, found -1");
  EXPECT_EQ(refusal("/files/0/crc32c", "12"),
            "files[0].crc32c to be 8 hexadecimal digits, found 12");
  EXPECT_EQ(refusal("/step", 4), "nothing");
  Json changed = before;
  changed["job"] = "[jobb]";
  std::ofstream(file) << changed;
  EXPECT_NE(find_checkpoint(run_, 4, "--from-step").error().message.find("job:1"),
            std::string::npos);
  changed["job"] =
      "[model]\nkind = \"mlp\"\nlayers = 3\n[data]\nkind = \"classes\"\npaths = [\"x\"]\n";
  std::ofstream(file) << changed;
  const std::string found = find_checkpoint(run_, 4, "--from-step").error().message;
  EXPECT_NE(found.find("expected partition to end at layer 4, as the model of job does, found 5"),
            std::string::npos)
      << found;
}

// A checkpoint of server shards has a file for each range, and the decider's record.
TEST_F(Checkpoint, OneOfServerShardsIsReadBack) {
  const auto make_with = [&](const std::vector<std::string>& files) {
    const std::string folder = unfinished_path(run_, 6);
    fs::create_directories(folder);
    Manifest manifest{.step = 6,
                      .epoch = 1,
                      .job = "[job]\n[device]\nkind = \"paced\"\n",
                      .partition = {{0, 3}},
                      .servers = ServedState{9, 50}};
    for (const std::string& file : files) {
      std::ofstream(folder + "/" + fs::path(file).filename().string()) << "state";
      manifest.files.push_back({6, file, 5, "00000000"});
      const Result<SavedShard> written =
          describe_shard(folder, fs::path(file).filename().string(), 6);
      ASSERT_TRUE(written.ok());
      manifest.files.back().checksum = written.value().checksum;
    }
    ASSERT_TRUE(finish_checkpoint(run_, manifest).ok());
  };
  const std::string range = "stage-0-range-0-16.state";
  make_with({range, "record.state"});
  const Result<Manifest> found = find_checkpoint(run_, 6, "--from-step");
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value().servers, (ServedState{9, 50}));
  ASSERT_EQ(found.value().files.size(), 2u);
  EXPECT_EQ(found.value().files[0].file, range);
  const auto refusal = [&] { return find_checkpoint(run_, 6, "--from-step").error().message; };
  make_with({range});
  EXPECT_NE(refusal().find("expected files to have record.state, found none"), std::string::npos);
  make_with({"../" + range, "record.state"});
  EXPECT_NE(refusal().find("expected files[0].name to be a name with .state at its end"),
            std::string::npos);
}

}  // namespace
}  // namespace tenuto
