// Writes copies of a worker's state to a checkpoint's folder by a thread of its own, while the
// worker runs steps.
//
// Idea:  the thread must cost a step at most 3 %. It writes pieces of 1 MiB, and after each piece
//        it rests 32 times as long as the piece has used the processor: so it uses at most a 33rd
//        of one core. It also has a lower priority for the processor and the disk. Whoever
//        waits for the end calls hurry(), and it writes on without rests.
// Bound: one state is written at a time, so there is at most one copy.
// Right: tests/worker/background_writer_test.cc.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/id.h"
#include "base/result.h"
#include "base/unit.h"
#include "protocol/report.h"
#include "runtime/state_copy.h"

namespace tenuto {

// The copied state of one stage.
struct CopiedStage {
  StageId stage;
  StateCopy copy;
};

// The copied state of a worker, or of the stages that it is to save.
struct CopiedState {
  int64_t version = -1;
  std::string directory;  // of the files
  std::vector<CopiedStage> stages;
};

// What has become of it.
struct WrittenState {
  int64_t version = -1;
  // Not ok: a file could not be written. Cancelled: it was not wanted any more, or its folder has
  // been removed because a later checkpoint is complete.
  Status status = ok();
  std::vector<SavedShard> shards;  // without an error: one for each stage, durable
};

// The name of the file with the state of a stage.
std::string state_file_name(StageId stage);

// Writes the file of one stage into the folder of `state`, and describes it.
//
// Errors: those of write_safetensors and describe_shard
Result<SavedShard> write_stage(const CopiedState& state, const CopiedStage& stage,
                               const AfterPiece& after_piece);

// Processor time that the calling thread has used.
Duration thread_cpu_time();

// The thread and the state that it writes. All calls come from the worker's thread.
class BackgroundWriter {
 public:
  // Writes one stage, as write_stage does.
  using Write = std::function<Result<SavedShard>(const CopiedState& state, const CopiedStage& stage,
                                                 const AfterPiece& after_piece)>;
  // `ended` is called by the thread when it has written a state. `write` and `cpu_time`: tests give
  // others.
  explicit BackgroundWriter(std::function<void()> ended, Write write = write_stage,
                            std::function<Duration()> cpu_time = thread_cpu_time);
  // Gives up what is being written, at the end of a piece.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  // Begins to write. Requires: is_idle()
  void begin(CopiedState state);
  // Whether nothing is written, and no outcome waits to be taken.
  bool is_idle() const { return !thread_.joinable(); }
  // Lets the thread go on without rests until it has written the state.
  void hurry();
  // The outcome, once, when the state is written; none before.
  std::optional<WrittenState> take();
  // Hurries, waits for the end and takes the outcome; none if is_idle().
  std::optional<WrittenState> finish();

 private:
  void run(const CopiedState& state);
  WrittenState write_all(const CopiedState& state);
  bool rest(Duration& used);

  const std::function<void()> ended_;
  const Write write_;
  const std::function<Duration()> cpu_time_;
  std::thread thread_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool hurries_ = false, stops_ = false;
  std::optional<WrittenState> outcome_;
};

}  // namespace tenuto
