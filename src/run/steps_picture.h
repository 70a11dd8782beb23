// A picture of a run: how long each step took, and what happened when.
#pragma once

#include <string>

#include "base/result.h"

namespace tenuto {

// Draws RUN/metrics.jsonl (iteration_ms, else step_ms) and RUN/events.jsonl (faults, detections,
// decisions) as one SVG file that loads nothing from the network: the time of an iteration over the
// steps, with a mark and a number for every event, and the events' sentences below. If there are
// more steps than the picture has columns, it shows the median and the range of the steps in each
// column.
//
// Errors: as file.h
Result<std::string> picture_of_steps(const std::string& run);

}  // namespace tenuto
