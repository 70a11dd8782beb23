// Checkpoints on disk: whole or refused.
#include "app/checkpoint.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// A folder that is gone after the test.
class Checkpoint : public testing::Test {
 protected:
  Checkpoint() {
    char name[] = "/tmp/tenuto-checkpoint-XXXXXX";
    run_ = mkdtemp(name);
  }
  ~Checkpoint() override { fs::remove_all(run_); }

  // A checkpoint of `step` with two small files.
  void make(int64_t step) {
    const std::string folder = cat(run_, "/checkpoint-", step, ".tmp");
    fs::create_directories(folder);
    Manifest manifest{.step = step, .epoch = 2, .job = "[job]\n", .partition = {{0, 3}, {3, 5}}};
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
  const Result<Manifest> found = find_checkpoint(run_, -1);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found.value().step, 7);
  EXPECT_EQ(found.value().epoch, 2);
  EXPECT_EQ(found.value().job, "[job]\n");
  ASSERT_EQ(found.value().partition.size(), 2u);
  EXPECT_EQ(found.value().partition[1].layer_first, 3);
  EXPECT_EQ(found.value().files[1].file, "stage-1.safetensors");
  EXPECT_FALSE(fs::exists(run_ + "/checkpoint-7.tmp"));
}

TEST_F(Checkpoint, TheSameStepAgainReplaces) {
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
  fs::create_directories(run_ + "/checkpoint-3x");
  EXPECT_EQ(list_checkpoints(run_), (std::vector<int64_t>{20, 100}));
}

TEST_F(Checkpoint, OldOnesGo) {
  for (const int64_t step : {5, 10, 15, 20}) make(step);
  prune_checkpoints(run_, 2);
  EXPECT_EQ(list_checkpoints(run_), (std::vector<int64_t>{15, 20}));
}

// Workers fill the next folder while the manifest of the newest checkpoint is written.
TEST_F(Checkpoint, UnfinishedOnesGoButNotTheNext) {
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

TEST_F(Checkpoint, LaterOnesAreSetAside) {
  for (const int64_t step : {5, 10, 15}) make(step);
  EXPECT_EQ(set_aside_checkpoints(run_, 5).value(), (std::vector<int64_t>{10, 15}));
  EXPECT_EQ(list_checkpoints(run_), std::vector<int64_t>{5});
  make(10);
  EXPECT_EQ(set_aside_checkpoints(run_, 5).value(), std::vector<int64_t>{10});
  EXPECT_TRUE(verify_checkpoint(run_ + "/checkpoint-10.aside").ok());
  EXPECT_EQ(set_aside_checkpoints(run_, 5).value(), std::vector<int64_t>());
}

TEST_F(Checkpoint, EveryDamageIsFound) {
  make(4);
  const std::string file = checkpoint_path(run_, 4) + "/stage-0.safetensors";
  const std::string before = read_file(file).value();
  for (size_t at = 0; at < before.size(); ++at) {
    std::string damaged = before;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(file, std::ios::binary) << damaged;
    const Result<Manifest> found = find_checkpoint(run_, 4);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Code::Corrupt);
  }
  std::ofstream(file, std::ios::binary) << before << "x";
  EXPECT_EQ(find_checkpoint(run_, 4).error().message,
            cat(file, " is damaged: expected ", before.size(), " bytes, found ", before.size() + 1,
                "; no older checkpoint is whole"));
  std::ofstream(file, std::ios::binary) << before;
  EXPECT_TRUE(find_checkpoint(run_, 4).ok());
}

TEST_F(Checkpoint, AnyHalfOfAManifestIsRefused) {
  make(4);
  const std::string file = checkpoint_path(run_, 4) + "/manifest.json";
  const std::string before = read_file(file).value();
  for (size_t size = 0; size + 2 < before.size(); ++size) {
    std::ofstream(file) << before.substr(0, size);
    ASSERT_FALSE(find_checkpoint(run_, 4).ok()) << size;
  }
}

}  // namespace
}  // namespace tenuto
