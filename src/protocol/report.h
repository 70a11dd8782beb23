// What workers report and what they are told, as plain values without protobuf (message.proto).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/host.h"
#include "base/result.h"
#include "base/text.h"
#include "base/unit.h"
#include "ir/inventory.h"
#include "ir/plan.h"
#include "protocol/directive.h"
#include "world/fault.h"
#include "world/micro_loss.h"
#include "world/sample.h"

namespace tenuto {

// How long a worker waits for a silent coordinator, and how long a coordinator that hears none of
// its workers waits for them.
inline constexpr Duration kReturnLimit = std::chrono::seconds(30);

// The exit code of a worker in whose place another process may succeed later.
inline constexpr int kTryAgain = 75;

// What one worker says of one step that it has finished.
struct StepSummary {
  int64_t step = 0;
  std::vector<MicroLoss> losses;      // of the micro-batches whose last stage this worker ran
  std::vector<MicroLoss> evaluation;  // held-out, with the parameters after the step
  double gradient_norm = 0;           // global, before clipping
  double learning_rate = 0;
  bool finite = true;       // false: the step was skipped, parameters are unchanged
  bool clipped = false;     // the gradients were scaled down, or are not finite
  bool broken_off = false;  // the held-out pass after it was not finished
  int64_t start_ns = 0;     // on the worker's clock
  int64_t finish_ns = 0;    // of the training step, without the held-out pass
  // Paced device only: the start of the first op and the end of the last weight gradient, on the
  // device's clock. A busy host does not change them if that clock is virtual.
  int64_t device_start_ns = 0, device_finish_ns = 0;
  int64_t lag_p99_ns = 0;  // paced device only: how late its ops end, Lag::p99
  bool lag_valid = true;   // paced device only: Lag::valid()
  // Accelerators only: time of the copies between device and host, and messages by path.
  int64_t to_host_ns = 0, to_device_ns = 0;
  int64_t staged_messages = 0, direct_messages = 0;
  StepSample sample;   // how long its ops and its messages took
  std::string events;  // of a traced step: JSON lines, see event_text.h
  auto operator<=>(const StepSummary&) const = default;
};

// One file of a checkpoint.
struct SavedShard {
  int64_t version = 0;
  std::string file;  // inside the checkpoint's folder
  int64_t bytes = 0;
  std::string checksum;  // crc32c of the whole file, 8 hexadecimal digits
  StageId stage = {};    // whose state it holds
  auto operator<=>(const SavedShard&) const = default;
};

// A connection between two workers that broke and has been made again.
struct RepairNote {
  int64_t serial = 0;  // of the worker's repairs, from 1
  WorkerId peer;
  int64_t step = 0;  // the step that was under way
  int64_t took_ns = 0;
  auto operator<=>(const RepairNote&) const = default;
};

// What a worker has of a step that is not committed.
struct StepInventory {
  int64_t step = 0;
  int64_t attempt = 0;  // the epoch in which this attempt at the step began from its start
  Inventory inventory;
  std::vector<int32_t> losses;  // micro-batches whose loss it knows
  auto operator<=>(const StepInventory&) const = default;
};

// A process that joins a run under way, in the place of a lost worker (join.h).
struct Joiner {
  WorkerId worker;
  int32_t incarnation = 0;
  std::vector<StageId> stages;  // that it is to hold, ascending
  // For each stage, the worker that sends it the state; empty while it has no place in a plan.
  std::vector<WorkerId> donors = {};
  // The plan that gives it the place, -1 = none yet. From the moment when this plan is in force,
  // the donors send parts of the state between any two steps.
  int64_t plan_serial = -1;
  auto operator<=>(const Joiner&) const = default;
};

// A message of a run with server shards between a worker and the coordinator, as bytes
// (parameter_server/message_bytes.h). The serials of each direction count up from 1. A message is
// repeated until the other end has acknowledged its serial.
struct Numbered {
  int64_t serial = 0;
  std::string bytes;
  auto operator<=>(const Numbered&) const = default;
};

// What one worker's process is told of such a run.
struct Hosted {
  WorkerId worker;
  int32_t incarnation = 0;
  WorkerId process;   // its number in the run: another one for each process, never used again
  int64_t heard = 0;  // serial of the last of its reports that has come
  std::vector<Numbered> commands;  // those after the last that it has obeyed, ascending
  auto operator<=>(const Hosted&) const = default;
};

// A worker's state, repeated until a newer one replaces it.
struct Report {
  WorkerId worker;
  int32_t incarnation = 0;  // number of its process: higher for each later one
  int64_t sequence = 0;     // counts up with each change
  int64_t term = 0, epoch = 0;
  Phase phase = Phase::Frozen;
  int64_t version = -1;            // of the parameters that it holds; -1 = none yet
  int64_t received = -1;           // joiner: the version at which it had all of the state
  int64_t seen = -1;               // last committed version it has heard of
  std::string address;             // where its transport listens; empty = not yet
  bool connected = false;          // to every peer of its plan, parameters in place
  std::vector<StepSummary> steps;  // from step `seen` on
  // Of checkpoints not yet complete: for each version, one for each stage that it saved, ascending.
  std::vector<SavedShard> shards;
  int64_t plan = 1;  // serial of the newest plan that it has
  std::vector<WorkerId> lost_peers;
  std::vector<RepairNote> repairs;  // the newest few; only one end of each pair reports
  bool resumes = false;             // it can go on with what is left of a step
  std::vector<StepInventory> held;  // frozen: of the steps that are perhaps unfinished
  // Of a run with server shards. `elements`: of a worker that computes, what
  // GivenParameters::parameter_count says of its stage; 0 = not known yet, or it keeps parameters.
  int64_t elements = 0;
  std::vector<Numbered> said;  // reports after Hosted::heard, ascending
  int64_t obeyed = 0;          // serial of the last command that it has obeyed
  std::string failure;         // one sentence; empty = all is well
  Code failure_code = Code::Invalid;
  std::string host;  // the name of its machine
  auto operator<=>(const Report&) const = default;
};

// What sentences call the host of a worker: "node7 (10.0.0.5)". Only one of the two where the other
// is not known, and empty where neither is.
inline std::string host_of_worker(const Report& report) {
  const std::string address(host_of(report.address));
  if (report.host.empty() || address.empty()) return report.host + address;
  return cat(report.host, " (", address, ")");
}

// What is left of the step with which an epoch begins: the workers run only this part of it.
struct RestOfStep {
  int64_t epoch = 0, step = 0;
  int64_t attempt = 0;  // the attempt that is interrupted, see StepInventory
  Plan plan;
  std::vector<RestPart> parts;  // of each worker
  bool operator==(const RestOfStep&) const = default;
};

// What all workers are told: the directive and what goes with it. Each plan is sent once per
// stream.
struct Instruction {
  int64_t sequence = 0;  // counts up with each change
  Directive directive;
  std::vector<std::string> addresses;  // of directive.members; empty text = not known yet
  std::vector<int32_t> incarnations;   // of directive.members; -1 = no process has reported yet
  std::vector<Joiner> joiners;
  // The newest plan, and the step from which it is in force; -1 = none yet, the workers are to
  // acknowledge the plan first (Report::plan). Commits and plans come in one sequence of
  // instructions, so a worker that knows of the commit of version v knows every plan that is in
  // force from step v + 1 on.
  int64_t plan_serial = 1, plan_from = 0;
  int64_t save_version = -1;     // the savers save this version when they hold it; -1 = none
  std::vector<WorkerId> savers;  // by stage: the holder that saves it; WorkerId{} = no holder can
  std::string save_directory;    // for the shards of save_version
  std::vector<std::string> resume_shards;  // to be loaded before the first step
  // Faults requested while the run goes on, beside those of the job. Each begins and ends with a
  // step that no worker can have begun when the instruction is sent, as plans do.
  std::vector<Fault> faults;
  // The steps in [trace_from, trace_until) are traced, beside those of the job. They, too, begin
  // with a step that no worker can have begun when the instruction is sent.
  int64_t trace_from = 0, trace_until = 0;
  // What is left of the step with which the epoch begins; each worker receives its own part only.
  // Null: the workers run the whole step.
  std::shared_ptr<const RestOfStep> rest;
  // Of a run with server shards: one for each process. Each worker's process receives its own only.
  std::vector<Hosted> hosted;
  // With Phase::Out: the exit code of the run and why it ended; empty = the job is done.
  int exit_code = 0;
  std::string ending;
  auto operator<=>(const Instruction&) const = default;
};

}  // namespace tenuto
