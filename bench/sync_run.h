// A run with server shards over real processes (bench/sync_peer.h): starts them, is the host of the
// run, kills some of them, and audits what they have done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "sync/trial.h"

namespace tenuto {

// A process that is killed, and started again as a new one two seconds later.
struct ProcessKill {
  enum class Kind : uint8_t { Shard, Standby, Replica, Decider };
  Kind kind = Kind::Shard;  // of the first range; of replicas the last one
  Duration at{};            // after the run's begin
};

// shard|standby|replica|decider:SECONDS
//
// Errors: Invalid/Call  anything else
Result<ProcessKill> process_kill_from_text(const std::string& text);

// What is run.
struct SyncRunSetting {
  TrialSetting trial;   // with a fixed mode or the look-ahead; its limit is the length of the run
  int32_t servers = 2;  // each is the shard of one range, and the standby of another one
  std::vector<ProcessKill> kills;
};

// What came of it: measured from the first update on, as on the virtual clock.
struct SyncRunResult {
  SyncMeasure measure;  // gradients and updates per second, age, updates
  int64_t changes = 0;  // of the mode
  double accuracy = 0;  // at the end
  int64_t updates = 0;  // also those after the end of the measurement
  int64_t epochs = 0;
};

// Runs it in real time, and a few seconds longer.
//
// Errors: those of form; Invalid/Call  another policy, a method of a baseline or local steps, which
//         replicas here do not have; too few servers; a kill after the end
//         those of servers::audit; Corrupt/Job  two keepers of a range with different bits; a
//         process that ended by itself, said that it failed, or did not answer in time
Result<SyncRunResult> run_sync_processes(const SyncRunSetting& setting);

}  // namespace tenuto
