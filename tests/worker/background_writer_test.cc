// A thread that writes copies of the state: what it writes, when it rests, and how it ends.
#include "worker/background_writer.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "protocol/saved_shard.h"
#include "temporary_folder.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;

// Tensors of more than two pieces.
class Numbers {
 public:
  Numbers() : numbers_(700'000) {
    for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = static_cast<float>(i);
  }
  StateTensors tensors() const {
    NamedTensor tensor;
    tensor.name = "weight";
    tensor.dtype = "F32";
    tensor.shape = {static_cast<int64_t>(numbers_.size())};
    tensor.bytes = std::as_bytes(std::span(numbers_));
    StateTensors all;
    all.tensors.push_back(std::move(tensor));
    all.metadata["version"] = "3";
    return all;
  }
  void change() { numbers_[0] += 1; }

 private:
  std::vector<float> numbers_;
};

CopiedState copy_of(const Numbers& numbers, const std::string& folder) {
  CopiedState state{3, folder, {}};
  state.stages.push_back({StageId{1}, StateCopy(numbers.tensors())});
  return state;
}

// A disk at which the writer stops after each piece until it is let go on.
class Disk {
 public:
  // A piece is written: waits for let_on().
  bool write(const AfterPiece& after_piece) {
    {
      std::unique_lock lock(mutex_);
      ++arrived_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return let_on_ >= arrived_; });
    }
    return after_piece();
  }
  // Waits until so many pieces have come.
  void await(int pieces) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= pieces; });
  }
  void let_on(int pieces) {
    const std::lock_guard lock(mutex_);
    let_on_ += pieces;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0, let_on_ = 0;
};

// Writes two pieces to the disk.
BackgroundWriter::Write two_pieces(Disk& disk) {
  return [&disk](const CopiedState& state, const CopiedStage& stage,
                 const AfterPiece& after_piece) -> Result<SavedShard> {
    for (int piece = 0; piece < 2; ++piece) {
      if (!disk.write(after_piece)) return not_wanted(state.directory);
    }
    return SavedShard{state.version, state_file_name(stage.stage), 2, "00", stage.stage};
  };
}

TEST(BackgroundWriter, WritesTheBytesOfAWriteWithoutPieces) {
  const TemporaryFolder folder;
  Numbers numbers;
  const std::string plain = folder.path() + "/plain";
  ASSERT_TRUE(write_state_file(plain, numbers.tensors()).ok());
  BackgroundWriter writer([] {});
  writer.begin(copy_of(numbers, folder.path()));
  numbers.change();  // as the next step does
  const auto written = writer.finish();
  ASSERT_TRUE(written);
  ASSERT_TRUE(written->status.ok()) << written->status.error().message;
  EXPECT_EQ(written->version, 3);
  const auto expected = read_file(plain), found = read_file(folder.path() + "/stage-1.safetensors");
  ASSERT_TRUE(expected.ok() && found.ok());
  EXPECT_TRUE(expected.value() == found.value());
  const auto shard = describe_shard(folder.path(), "stage-1.safetensors", 3);
  ASSERT_TRUE(shard.ok());
  ASSERT_EQ(written->shards.size(), 1u);
  EXPECT_EQ(written->shards[0].checksum, shard.value().checksum);
  EXPECT_EQ(written->shards[0].bytes, shard.value().bytes);
  EXPECT_EQ(written->shards[0].stage, StageId{1});
}

TEST(BackgroundWriter, TheCallerGoesOnWhileTheDiskIsSlow) {
  const TemporaryFolder folder;
  Disk disk;
  bool told = false;
  std::mutex mutex;
  BackgroundWriter writer(
      [&] {
        const std::lock_guard lock(mutex);
        told = true;
      },
      two_pieces(disk), [] { return Duration{}; });
  EXPECT_TRUE(writer.is_idle());
  EXPECT_FALSE(writer.finish());
  writer.begin(copy_of(Numbers(), folder.path()));
  disk.await(1);
  EXPECT_FALSE(writer.take()) << "it is being written";
  EXPECT_FALSE(writer.is_idle());
  disk.let_on(2);
  const auto written = writer.finish();
  ASSERT_TRUE(written);
  EXPECT_TRUE(written->status.ok());
  EXPECT_TRUE(writer.is_idle());
  EXPECT_FALSE(writer.take()) << "an outcome is given once";
  const std::lock_guard lock(mutex);
  EXPECT_TRUE(told);
}

// The clock of the processor says that each piece took an hour: without hurry() the thread would
// rest for more than a day.
TEST(BackgroundWriter, RestsAfterAPieceUntilItIsHurried) {
  const TemporaryFolder folder;
  Disk disk;
  Duration used{};
  BackgroundWriter writer([] {}, two_pieces(disk), [&] { return used += std::chrono::hours(1); });
  disk.let_on(2);
  writer.begin(copy_of(Numbers(), folder.path()));
  disk.await(1);
  EXPECT_FALSE(writer.take()) << "it rests, or is about to";
  writer.hurry();
  disk.await(2);
  const auto written = writer.finish();
  ASSERT_TRUE(written);
  EXPECT_EQ(written->shards.size(), 1u);
}

TEST(BackgroundWriter, GivesUpInTheMiddleWithoutAFile) {
  const TemporaryFolder folder;
  const Numbers numbers;
  Disk disk;
  Duration used{};
  {
    BackgroundWriter writer(
        [] {},
        [&](const CopiedState& state, const CopiedStage& stage, const AfterPiece& after_piece) {
          return write_stage(state, stage, [&] { return disk.write(after_piece); });
        },
        [&] { return used += std::chrono::hours(1); });
    disk.let_on(100);
    writer.begin(copy_of(numbers, folder.path()));
    disk.await(1);
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(BackgroundWriter, SaysWhyAFileCannotBeWritten) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() + "/stage-1.safetensors");  // in its place
  BackgroundWriter writer([] {});
  writer.begin(copy_of(Numbers(), folder.path()));
  auto written = writer.finish();
  ASSERT_TRUE(written);
  ASSERT_FALSE(written->status.ok());
  EXPECT_EQ(written->status.error().code, Code::Invalid);
  EXPECT_NE(written->status.error().message.find("stage-1.safetensors"), std::string::npos);
  // A folder that has been removed belongs to a checkpoint that is not wanted any more.
  writer.begin(copy_of(Numbers(), folder.path() + "/removed"));
  written = writer.finish();
  ASSERT_TRUE(written);
  ASSERT_FALSE(written->status.ok());
  EXPECT_EQ(written->status.error().code, Code::Cancelled);
}

}  // namespace
}  // namespace tenuto
