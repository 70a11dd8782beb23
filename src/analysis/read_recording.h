// Reads a recorded run: one face for all formats of traces.
#pragma once

#include <string>
#include <vector>

#include "analysis/recording.h"
#include "analysis/trace_dialects.h"
#include "base/result.h"

namespace tenuto::analysis {

// The recording of traces whose events are read. Steps that lack forwards which other steps have
// are left out, and clocks are brought together; both with a note.
//
// Requires: at least one source
// Errors:   those of recording_of_phases and recording_of_actions; Invalid/Call with the path: no
//           event at all, a trace of another tool (with names that were found), traces of two
//           kinds, no whole step
Result<Recording> recording_of(const std::vector<TraceSource>& sources);

// Reads a trace file, plain or gzip, or all traces of a folder: trace-STEP.json of a run, else
// every *.json and *.json.gz, such as PyTorch's profiler writes one a rank.
//
// Errors: those of read_packed_file, read_trace_rows and recording_of; Invalid/Call with the path
//         for a folder without traces
Result<Recording> read_recording(const std::string& path);

}  // namespace tenuto::analysis
