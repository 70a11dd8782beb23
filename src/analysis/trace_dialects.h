// The two ways in which traces name their ops.
#pragma once

#include <string>
#include <vector>

#include "analysis/recording.h"
#include "analysis/trace_rows.h"
#include "base/result.h"

namespace tenuto::analysis {

// The events of one file.
struct TraceSource {
  std::string path;
  int64_t step = -1;  // of the file's first step, if its name says so; else -1
  TraceRows rows;
};

// Whether a trace names its ops by phase: forward-compute, grads-reduce-scatter, ...
bool names_phases(const TraceRows& rows);

// Whether a trace names its ops by action: PP:2F4, PP:2SEND_F4, ...
bool names_actions(const TraceRows& rows);

// Reads traces that name phases: "pid" is the pipeline, threads are named "PP rank 2, TP rank 0,
// compute", args have step, mb_id and model_chunk. Messages have no micro-batch: the i-th of a
// worker belongs to its i-th op that has one. Steps in which the numbers differ are left out, with
// a note. Of several tensor-parallel ranks the first is read.
//
// Requires: names_phases(...) for each source
// Errors:   Invalid/Call with the path: a thread without a stage, no whole step, a missing worker
Result<Recording> recording_of_phases(const std::vector<TraceSource>& sources);

// Reads traces that name actions: Tenuto's, in which "pid" is the worker, and those of PyTorch's
// profiler, of one rank each. Held-out forwards, messages of norms, and whatever else is in
// the trace are left out. If a step number is not given, the n-th op of one name is of step n.
//
// Requires: names_actions(...) for each source
// Errors:   Invalid/Call with the path: no forward, or none of some stage
Result<Recording> recording_of_actions(const std::vector<TraceSource>& sources);

}  // namespace tenuto::analysis
