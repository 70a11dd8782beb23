// What happened in a step: from a worker's events to a picture that Chrome and Perfetto show.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "world/event.h"

namespace tenuto {

// The longest text of a traced step's events in one report, which is a message of at most 64 MiB.
inline constexpr size_t kMostTraceText = size_t{48} << 20;

// Events as JSON lines (docs/formats.md), the form in which workers report them: the first that
// make up at most `most` bytes.
std::string to_text(const std::vector<Event>& events, size_t most = kMostTraceText);
// Reads them back; Invalid/Call with the number of the line at fault.
Result<std::vector<Event>> events_from_text(std::string_view text);

// The Chrome trace of a step that all workers' events make up. Times are taken as of one clock and
// count from the first event's start.
std::string trace_of(const std::vector<Event>& events, const Plan& plan);

}  // namespace tenuto
