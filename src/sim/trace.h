// Traces for Chrome and Perfetto. The same writer shows what a price predicts and what workers
// measured, also one beside the other, with what the coordinator found and decided meanwhile
// (docs/timeline.md).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/unit.h"
#include "ir/plan.h"
#include "sim/price.h"

namespace tenuto {

// The categories ("cat") of slices that are no op as it happened. Ops have none.
inline constexpr std::string_view kPromisedCategory = "promised", kWaitCategory = "wait";

// Something that happened at one moment: a detection, a decision, a fault, a join, ...
struct TraceMark {
  Duration at{};         // on the clock of the spans
  std::string kind;      // as in events.jsonl
  std::string sentence;  // why, or what
  int64_t epoch = 0, step = 0;
};

// What a trace shows beside the spans.
struct TraceDetails {
  // The same step as it was priced; empty = there is no such price. Only ops of compute lanes are
  // shown.
  std::vector<Span> promised = {};
  std::vector<TraceMark> marks = {};
  double loss = 0;  // of the step
  bool has_loss = false;
};

// Writes a Chrome trace, event by event: a process for each worker, a thread for each of its lanes.
// Arrows follow each message from its send to its receive and on to the first op that reads it.
// Weight gradients of a whole backward that take no time are left out. Slices of a thread do not
// overlap, except that one without a length may lie within another one; each arrow begins and ends
// in a slice that has a length (of a send that takes no time, in the op that made the value).
//
// Shapes: spans as Timeline::spans
// Units:  microseconds with three decimals, so that every nanosecond is kept
void write_trace(std::ostream& out, const std::vector<Span>& spans, const Plan& plan);

// The same with more threads for each worker: "promised compute" and "waiting" (the times in which
// it runs no op, named by the message that the next op waited for), a counter of the micro-batches
// that it keeps between a forward and its input gradient; and a process of the run for the marks
// and the loss.
//
// Shapes: spans and details.promised as Timeline::spans
void write_trace(std::ostream& out, const std::vector<Span>& spans, const Plan& plan,
                 const TraceDetails& details);

// The name of the file of a step's trace in the folder of a run: trace-STEP.json.
std::string trace_file_name(int64_t step);

// The step in such a name, or -1.
int64_t step_of_trace(std::string_view name);

}  // namespace tenuto
