// A picture of a run: how long each step took, and what happened when.
#pragma once

#include <string>

#include "base/result.h"

namespace tenuto {

// Draws RUN/metrics.jsonl (iteration_ms, else step_ms) and RUN/events.jsonl (faults, detections,
// decisions) as an SVG of one file, without network: time of an iteration over steps, with a mark
// and a number for every event and the sentences below. Of more steps than the picture has columns,
// the median of each column and its range are drawn.
//
// Errors: as file.h
Result<std::string> picture_of_steps(const std::string& run);

}  // namespace tenuto
