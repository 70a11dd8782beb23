// Reads a recorded run: one face for all formats of traces.
#pragma once

#include <string>

#include "analysis/recording.h"
#include "base/result.h"

namespace tenuto::analysis {

// Reads a trace file, plain or gzip, or all traces of a folder: trace-STEP.json of a run, else
// every *.json and *.json.gz, such as PyTorch's profiler writes one a rank. Steps that lack
// forwards which other steps have are left out, and clocks are brought together; both with a note.
//
// Errors: those of read_packed_file, read_trace_rows, recording_of_phases, recording_of_actions;
//         Invalid/Call with the path: a folder without traces, no event at all, a trace of another
//         tool (with names that were found)
Result<Recording> read_recording(const std::string& path);

}  // namespace tenuto::analysis
