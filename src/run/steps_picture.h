// A picture of a run: how long each step took, and what happened when.
#pragma once

#include <string>

#include "base/result.h"

namespace tenuto {

// Draws RUN/metrics.jsonl and RUN/events.jsonl as one SVG file that loads nothing from the network.
// Over the steps: the time of a step (period_ms, else iteration_ms, else step_ms), the losses, the
// accuracy on the held-out data and the sync mode, as far as the run has them. Faults, detections,
// stragglers, decisions, repairs and rises of the loss have a mark and a number, and their
// sentences stand below. If there are more steps than the picture has columns, it shows the median
// and the range of the steps in each column.
//
// Errors: as file.h
Result<std::string> picture_of_steps(const std::string& run);

}  // namespace tenuto
