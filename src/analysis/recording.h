// What was recorded of a training run: every op of every worker in time, in one form whatever
// program has written the trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenuto::analysis {

// What an op has to wait for.
enum class OpRole : uint8_t {
  Forward,         // of a micro-batch at a stage: the activation of the stage before
  Backward,        // whole or input gradient: the gradient of the stage behind
  WeightGradient,  // nothing but its turn
  Send,            // one end of a message between two stages
  Receive,         // the other end
  Collective,      // communication of a group of workers, see Scope
  Local,           // other work on the compute lane: optimizer, clean-up
};

// Which workers take part in a collective. Its transfer begins when the last of them has come.
enum class Scope : uint8_t { Alone, Stage, Pipeline, All };

// A kind of op of a recording.
struct OpKindSeen {
  std::string name;   // as the trace has it
  std::string label;  // under which its times are reported: both ends of a message have the same
  OpRole role = OpRole::Local;
  Scope scope = Scope::Alone;
  bool gradient = false;  // of messages: a gradient, not an activation
  bool first = false;     // of collectives: before the first compute op (parameters are gathered)
};

// One worker: a process with one device.
struct RecordedWorker {
  int32_t pipeline = 0;
  int32_t stage = 0;  // of a worker with several stages: the first of them
};

// One op of one worker in one step.
struct RecordedOp {
  int32_t kind = 0;    // index in Recording::kinds
  int32_t worker = 0;  // index in Recording::workers
  int32_t step = 0;    // index in Recording::steps
  int32_t stage = -1;  // of the model. A message has that of the worker that sends it; -1 = none
  int32_t micro = -1;  // micro-batch; -1 = none
  int32_t set = 0;     // micro-batches are numbered within one set
  double start = 0;    // milliseconds on the clock of the worker
  double finish = 0;
};

// The compute ops of one kind at one stage, as the simulator promised them and as they were. Times
// are means over those ops that the trace has both of.
struct PromisedKind {
  int32_t kind = 0;  // index in Recording::kinds
  int32_t stage = 0;
  int64_t ops = 0;
  double promised_ms = 0, recorded_ms = 0;  // how long an op lasts
  double late_ms = 0;                       // by how much it ends after its promised end
};

// A recorded run.
struct Recording {
  std::string format;  // for people: "Tenuto's trace"
  std::vector<OpKindSeen> kinds;
  std::vector<RecordedWorker> workers;  // by pipeline, then stage
  std::vector<int64_t> steps;           // their numbers, ascending
  std::vector<RecordedOp> ops;          // by step, then worker, then start
  int32_t pipelines = 0;
  int32_t stages = 0;             // of the model: more than the workers of a pipeline if a worker
                                  // has several
  int32_t width = 0;              // workers of a pipeline
  bool ends_together = false;     // both ends of a message end at the same moment
  bool starts_when_sent = false;  // the start of a receive means nothing: its message starts when
                                  // it is sent
  std::vector<PromisedKind> promised;  // by stage, then kind; empty if nothing was promised
  std::vector<std::string> notes;      // sentences on what was left out or changed
};

// "worker 5 (pipeline 1, stage 1)".
std::string worker_name(const Recording& recording, int32_t worker);

}  // namespace tenuto::analysis
