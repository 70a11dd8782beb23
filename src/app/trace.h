// What happened in a step: from a worker's events to a picture that Chrome and Perfetto show.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "control/message_size.h"
#include "ir/plan.h"
#include "world/event.h"

namespace tenuto {

// Events as JSON lines (docs/formats.md), the form in which workers report them. Events at the end
// are left out where the text would be longer than `most` bytes.
std::string to_text(const std::vector<Event>& events, size_t most = kMostTraceText);
// Reads them back; Invalid/Call with the number of the line at fault.
Result<std::vector<Event>> events_from_text(std::string_view text);

// The Chrome trace of a step, from the events of all workers. All times are taken to be of one
// clock, and count from the first event's start.
std::string trace_of(const std::vector<Event>& events, const Plan& plan);

}  // namespace tenuto
