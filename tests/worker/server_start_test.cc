// What servers begin with, and the files of a checkpoint that they write and go on from.
#include "worker/server_start.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include "worker/range_files.h"

namespace tenuto {
namespace {

using servers::ElementRange;
using servers::Payload;

constexpr ElementRange kFirst{{0}, 0, 16}, kSecond{{0}, 16, 24};

// Two replicas with four micro-batches each, and two servers.
Job served_job() {
  Job job;
  job.parallel.stages = 1;
  job.parallel.pipelines = 2;
  job.parallel.micros = 4;
  job.optimizer.clip = 0;
  job.sync.architecture = "servers";
  return job;
}

// 24 elements: 1, 2, 3, ...
std::vector<StageParameters> small_model() {
  StageParameters stage;
  for (int i = 1; i <= 24; ++i) stage.initial.push_back(static_cast<float>(i));
  stage.decayed = 16;
  return {stage};
}

std::vector<float> values_of(const servers::ParameterStore& store) {
  const Payload bytes = store.parameters();
  std::vector<float> values(bytes->size() / sizeof(float));
  std::memcpy(values.data(), bytes->data(), bytes->size());
  return values;
}

std::unique_ptr<servers::ParameterStore> made(const RangeStart& ranges, const ElementRange& range) {
  auto store = ranges.make(range);
  CHECK(store.ok(), store.error().message);
  return std::move(store).value();
}

// A record of a run that has done something.
servers::Record busy_record(int32_t replicas) {
  servers::Record record = servers::first_record({}, replicas);
  record.sequence = 9;
  record.version = record.committed = {6};
  record.applied = {25};
  for (servers::Stream& stream : record.streams) stream = {{4}, 16};
  return record;
}

class ServerStartTest : public testing::Test {
 protected:
  ServerStartTest() { std::filesystem::remove_all(folder_); }
  ~ServerStartTest() override { std::filesystem::remove_all(folder_); }

  // Writes a state, and returns the paths of its files.
  std::vector<std::string> write(const ElementRange& range, const servers::SavedState& state) {
    const auto written = write_range(folder_, range, state);
    CHECK(written.ok(), written.error().message);
    std::vector<std::string> paths;
    for (const servers::SavedFile& file : written.value()) {
      paths.push_back(cat(folder_, "/", file.name));
      EXPECT_EQ(static_cast<uintmax_t>(file.bytes), std::filesystem::file_size(paths.back()));
      EXPECT_EQ(file.checksum.size(), 8u);
    }
    return paths;
  }

  const std::string folder_ = cat(testing::TempDir(), "tenuto-server-start-", getpid());
};

TEST_F(ServerStartTest, FilesAreNamedByRangeAndStep) {
  EXPECT_EQ(range_file_name(kSecond), "stage-0-range-16-24.state");
  EXPECT_EQ(unfinished_folder("runs/x", {25}, {8}), "runs/x/checkpoint-3.tmp");
}

TEST_F(ServerStartTest, AStateAndItsRecordComeBackFromTheirFiles) {
  servers::SavedState state;
  state.version = {6};
  state.mass = {25};
  state.state = std::make_shared<const std::vector<std::byte>>(40, std::byte{7});
  EXPECT_EQ(write(kFirst, state).size(), 1u);
  state.record = busy_record(2);
  const std::vector<std::string> paths = write(kFirst, state);
  ASSERT_EQ(paths.size(), 2u);
  const auto bytes = read_range(paths, kFirst);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_EQ(*bytes.value(), *state.state);
  const auto record = read_record(paths);
  ASSERT_TRUE(record.ok()) << record.error().message;
  EXPECT_TRUE(record.value() == *state.record);
}

TEST_F(ServerStartTest, MissingAndForeignFilesAreRefused) {
  const auto nothing = read_range({"runs/x/record.state"}, kFirst);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code, Code::Corrupt);
  EXPECT_NE(nothing.error().message.find("stage-0-range-0-16.state"), std::string::npos);
  std::filesystem::create_directories(folder_);
  const std::string path = cat(folder_, "/", kRecordFile);
  ASSERT_TRUE(write_file(path, "no record").ok());
  const auto record = read_record({path});
  ASSERT_FALSE(record.ok());
  EXPECT_EQ(record.error().code, Code::Corrupt);
}

TEST_F(ServerStartTest, RangesBeginWithTheInitialParameters) {
  RangeStart ranges(served_job(), small_model(), {});
  EXPECT_EQ(values_of(*made(ranges, kSecond)),
            (std::vector<float>{17, 18, 19, 20, 21, 22, 23, 24}));
  EXPECT_FALSE(ranges.make({{0}, 16, 40}).ok());
  EXPECT_FALSE(ranges.make({{1}, 0, 16}).ok());
  // Later keepers are filled by others.
  ranges.begin();
  EXPECT_EQ(values_of(*made(ranges, kSecond)), std::vector<float>(8, 0.0F));
}

// A part of a replica keeps ranges of its own stage only.
TEST_F(ServerStartTest, RangesOfAnotherStageAreRefused) {
  Job job = served_job();
  job.parallel.stages = 2;
  RangeStart ranges(job, {StageParameters{}, small_model().front()}, {});
  EXPECT_EQ(values_of(*made(ranges, {{1}, 16, 24})),
            (std::vector<float>{17, 18, 19, 20, 21, 22, 23, 24}));
  const std::string sentence =
      "elements 0 to 16 of stage 0: this process is a part of another stage, and keeps only ranges "
      "of that";
  auto refused = ranges.make(kFirst);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, sentence);
  // Also when the initial parameters are no longer here.
  ranges.begin();
  EXPECT_EQ(values_of(*made(ranges, {{1}, 16, 24})), std::vector<float>(8, 0.0F));
  refused = ranges.make(kFirst);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, sentence);
}

TEST_F(ServerStartTest, RangesGoOnFromTheirFiles) {
  servers::SavedState state;
  state.state = made(RangeStart(served_job(), small_model(), {}), kFirst)->save();
  const std::vector<std::string> paths = write(kFirst, state);
  std::vector<StageParameters> other = small_model();
  for (float& value : other.front().initial) value = -1;
  const RangeStart ranges(served_job(), other, paths);
  const std::vector<float> all = small_model().front().initial;
  EXPECT_EQ(values_of(*made(ranges, kFirst)), std::vector<float>(all.begin(), all.begin() + 16));
  EXPECT_FALSE(ranges.make(kSecond).ok());
}

// The checkpoint of two servers is that of one and of three as well.
TEST_F(ServerStartTest, RangesGoOnFromFilesOfOtherRanges) {
  std::vector<std::string> paths;
  for (const ElementRange& range : {kFirst, kSecond}) {
    servers::SavedState state;
    state.state = made(RangeStart(served_job(), small_model(), {}), range)->save();
    for (const std::string& path : write(range, state)) paths.push_back(path);
  }
  std::vector<StageParameters> other = small_model();
  for (float& value : other.front().initial) value = -1;
  const std::vector<float> all = small_model().front().initial;
  const RangeStart ranges(served_job(), other, paths);
  for (const ElementRange& range :
       {ElementRange{{0}, 0, 24}, ElementRange{{0}, 8, 17}, ElementRange{{0}, 17, 24}}) {
    EXPECT_EQ(values_of(*made(ranges, range)),
              std::vector<float>(all.begin() + range.begin, all.begin() + range.end));
  }
  EXPECT_FALSE(ranges.make({{0}, 8, 25}).ok()) << "one element more than there are";
  const auto parameters = read_parameters(paths, {0});
  ASSERT_TRUE(parameters.ok()) << parameters.error().message;
  EXPECT_EQ(parameters.value(), all);
  EXPECT_FALSE(read_parameters(paths, {1}).ok());
  // Not all optimizers have the same states.
  Job job = served_job();
  job.optimizer.kind = "sgd";
  EXPECT_FALSE(RangeStart(job, other, paths).make({{0}, 0, 24}).ok());
}

TEST_F(ServerStartTest, FilesWithAGapOrAnOverlapAreRefused) {
  const auto file_of = [&](const ElementRange& range) {
    servers::SavedState state;
    state.state = made(RangeStart(served_job(), small_model(), {}), range)->save();
    return write(range, state).front();
  };
  const auto refusal = [](const std::vector<std::string>& paths) {
    const auto state = read_range(paths, {{0}, 0, 24});
    return state.ok() ? std::string() : state.error().message;
  };
  const std::string first = file_of(kFirst), second = file_of(kSecond);
  const std::string late = file_of({{0}, 18, 24}), early = file_of({{0}, 12, 24});
  const std::string of = "the checkpoint's states for elements 0 to 24 of stage 0: ";
  EXPECT_EQ(refusal({second, "record.state", first}), "");
  EXPECT_EQ(refusal({first, late}), of + "elements 16 to 18 are in none");
  EXPECT_EQ(refusal({first, early}), of + "elements 12 to 16 are in two");
  // A name that only looks like that of a range is another file.
  EXPECT_EQ(refusal({first, "stage-0-range-016-24.state"}), of + "elements 16 to 24 are in none");
}

TEST_F(ServerStartTest, ADeciderBeginsWithTheModeOfTheJob) {
  Job job = served_job();
  job.checkpoint_every = 5;
  auto start = decider_start_of(job, {});
  ASSERT_TRUE(start.ok()) << start.error().message;
  EXPECT_EQ(start.value().micros, 4);
  EXPECT_FALSE(start.value().children_send_to_parents);
  EXPECT_EQ(start.value().save_every, Mass{40});
  EXPECT_EQ(to_text(start.value().record.mode), "synchronous");
  EXPECT_EQ(start.value().record.streams.size(), 2u);
  EXPECT_EQ(start.value().record.version, Version{});
  job.sync.mode = "groups";
  start = decider_start_of(job, {});
  ASSERT_TRUE(start.ok()) << start.error().message;
  EXPECT_EQ(to_text(start.value().record.mode), "groups:0,1");
  // Without servers the members of a ring keep the parameters.
  job.sync.architecture = "all-reduce";
  start = decider_start_of(job, {});
  ASSERT_TRUE(start.ok()) << start.error().message;
  EXPECT_TRUE(start.value().children_send_to_parents);
  job.sync.mode = "sometimes";
  EXPECT_FALSE(decider_start_of(job, {}).ok());
}

TEST_F(ServerStartTest, ADeciderGoesOnFromTheRecord) {
  servers::SavedState state;
  state.state = std::make_shared<const std::vector<std::byte>>();
  state.record = busy_record(2);
  state.record->mode.kind = SyncKind::Asynchronous;
  const std::vector<std::string> paths = write(kFirst, state);
  Job job = served_job();
  job.sync.mode = "auto";
  auto start = decider_start_of(job, paths);
  ASSERT_TRUE(start.ok()) << start.error().message;
  EXPECT_EQ(start.value().record.version, Version{6});
  EXPECT_EQ(start.value().record.committed, Version{6});
  EXPECT_TRUE(start.value().record.streams == state.record->streams);
  EXPECT_EQ(to_text(start.value().record.mode), "asynchronous");
  // A mode that the job names is the one that counts.
  job.sync.mode = "synchronous";
  start = decider_start_of(job, paths);
  ASSERT_TRUE(start.ok()) << start.error().message;
  EXPECT_EQ(to_text(start.value().record.mode), "synchronous");
  job.parallel.pipelines = 3;
  start = decider_start_of(job, paths);
  ASSERT_FALSE(start.ok());
  EXPECT_NE(start.error().message.find("2 replicas, and this one has 3"), std::string::npos)
      << start.error().message;
}

TEST_F(ServerStartTest, TheChooserIsThatOfTheJob) {
  Job job = served_job();
  const auto nobody = chooser_of(job);
  ASSERT_TRUE(nobody.ok());
  EXPECT_TRUE(nobody.value() == nullptr);
  job.sync.mode = "auto";
  for (const char* name : {"look-ahead", "heuristic", "learned"}) {
    job.sync.chooser = name;
    const auto chooser = chooser_of(job);
    ASSERT_TRUE(chooser.ok()) << name;
    EXPECT_TRUE(chooser.value() != nullptr) << name;
    EXPECT_TRUE(first_mode_of(job).ok()) << name;
  }
  job.sync.chooser_content = "no chooser";
  EXPECT_FALSE(chooser_of(job).ok());
}

TEST_F(ServerStartTest, WhereAgeCostsMuchAChooserBeginsSynchronous) {
  Job job = served_job();
  job.sync.mode = "auto";
  job.sync.kappa = 1;
  EXPECT_EQ(to_text(first_mode_of(job).value()), "synchronous");
  job.sync.kappa = 0.6;
  EXPECT_EQ(first_mode_of(job).value().kind, SyncKind::Grace);
  // A mode that the job names is taken in any case.
  job.sync.kappa = 2;
  job.sync.mode = "asynchronous";
  EXPECT_EQ(to_text(first_mode_of(job).value()), "asynchronous");
}

TEST_F(ServerStartTest, WhatAgeCostsIsLearnedIfTheJobSaysSo) {
  Job job = served_job();
  job.sync.kappa = 0.75;
  EXPECT_EQ(mode_choice_of(job).kappa, 0.75);
  EXPECT_FALSE(mode_choice_of(job).learns_kappa);
  job.sync.learn_kappa = true;
  EXPECT_EQ(mode_choice_of(job).kappa, 0.75);
  EXPECT_TRUE(mode_choice_of(job).learns_kappa);
}

TEST_F(ServerStartTest, AJobThatSharesItsHostBeginsSynchronous) {
  Job job = served_job();
  EXPECT_FALSE(mode_choice_of(job).asks);
  job.sync.mode = "auto";
  job.sync.ledger = "ledger";
  EXPECT_TRUE(mode_choice_of(job).asks);
  // Servers keep the parameters, whatever the mode is.
  EXPECT_EQ(mode_choice_of(job).kept_numbers, 0);
  job.sync.architecture = "all-reduce";
  EXPECT_EQ(mode_choice_of(job).kept_numbers, 3) << "a parameter and the moments of AdamW";
  job.sync.architecture = "servers";
  EXPECT_EQ(to_text(first_mode_of(job).value()), "synchronous");
  // Also if it was in another mode.
  servers::SavedState state;
  state.state = std::make_shared<const std::vector<std::byte>>();
  state.record = busy_record(2);
  state.record->mode.kind = SyncKind::Asynchronous;
  const auto start = decider_start_of(job, write(kFirst, state));
  ASSERT_TRUE(start.ok()) << start.error().message;
  EXPECT_EQ(to_text(start.value().record.mode), "synchronous");
  // A mode that the job names is a wish, which is not asked for.
  job.sync.mode = "asynchronous";
  EXPECT_EQ(to_text(first_mode_of(job).value()), "asynchronous");
}

}  // namespace
}  // namespace tenuto
