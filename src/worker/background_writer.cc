#include "worker/background_writer.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "protocol/saved_shard.h"

namespace tenuto {
namespace {

// The thread rests so many times as long as it has used the processor.
constexpr int64_t kRest = 32;

// Takes a lower priority for the calling thread. It is only a little lower: on a busy host the
// lowest one would hardly ever run, and in the end the run waits for the file. If the system
// refuses, the rests alone have to do.
void step_back() {
  constexpr int kNice = 5;
  constexpr int kWhoThread = 1;                     // IOPRIO_WHO_PROCESS; 0 = the calling thread
  constexpr int kLastOfBestEffort = (2 << 13) | 7;  // class and level of ioprio_set(2)
  (void)::setpriority(PRIO_PROCESS, 0, kNice);
  (void)::syscall(SYS_ioprio_set, kWhoThread, 0, kLastOfBestEffort);
}

}  // namespace

std::string state_file_name(StageId stage) { return cat("stage-", stage, ".safetensors"); }

Result<SavedShard> write_stage(const CopiedState& state, const CopiedStage& stage,
                               const AfterPiece& after_piece) {
  const std::string file = state_file_name(stage.stage);
  const Status written =
      write_state_file(cat(state.directory, "/", file), stage.copy.state(), after_piece);
  if (!written.ok()) return written.error();
  Result<SavedShard> shard = describe_shard(state.directory, file, state.version, after_piece);
  if (shard.ok()) shard.value().stage = stage.stage;
  return shard;
}

Duration thread_cpu_time() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

BackgroundWriter::BackgroundWriter(std::function<void()> ended, Write write,
                                   std::function<Duration()> cpu_time)
    : ended_(std::move(ended)), write_(std::move(write)), cpu_time_(std::move(cpu_time)) {}

BackgroundWriter::~BackgroundWriter() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::begin(CopiedState state) {
  CHECK(is_idle(), "one state is written at a time");
  {
    const std::lock_guard lock(mutex_);
    hurries_ = false;
    outcome_.reset();
  }
  thread_ = std::thread([this, owned = std::move(state)] { run(owned); });
}

void BackgroundWriter::hurry() {
  {
    const std::lock_guard lock(mutex_);
    hurries_ = true;
  }
  changed_.notify_all();
}

std::optional<WrittenState> BackgroundWriter::take() {
  if (is_idle()) return std::nullopt;
  std::optional<WrittenState> outcome;
  {
    const std::lock_guard lock(mutex_);
    outcome.swap(outcome_);
  }
  if (outcome) thread_.join();
  return outcome;
}

std::optional<WrittenState> BackgroundWriter::finish() {
  if (is_idle()) return std::nullopt;
  hurry();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return outcome_.has_value(); });
  }
  return take();
}

void BackgroundWriter::run(const CopiedState& state) {
  step_back();
  WrittenState written = write_all(state);
  {
    const std::lock_guard lock(mutex_);
    outcome_ = std::move(written);
  }
  changed_.notify_all();
  ended_();
}

WrittenState BackgroundWriter::write_all(const CopiedState& state) {
  WrittenState written;
  written.version = state.version;
  Duration used = cpu_time_();
  const AfterPiece after_piece = [this, &used] { return rest(used); };
  for (const CopiedStage& stage : state.stages) {
    Result<SavedShard> shard = write_(state, stage, after_piece);
    if (shard.ok()) {
      written.shards.push_back(std::move(shard).value());
      continue;
    }
    written.shards.clear();
    written.status = shard.error();
    std::error_code failure;
    // The coordinator removes the folders of unfinished checkpoints once a later one is complete.
    if (!std::filesystem::exists(state.directory, failure)) {
      written.status = not_wanted(state.directory);
    }
    break;
  }
  return written;
}

// Rests after a piece; false when the rest of the file is not wanted any more. `used`: the
// processor time at the end of the piece before.
bool BackgroundWriter::rest(Duration& used) {
  const Duration now = cpu_time_();
  const Duration pause = (now - used) * kRest;
  used = now;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, pause, [this] { return hurries_ || stops_; });
  return !stops_;
}

}  // namespace tenuto
