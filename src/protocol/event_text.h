// The events of a traced step as text, the form in which workers report them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/message_size.h"
#include "world/event.h"

namespace tenuto {

// Events as JSON lines, with the fields that event_text.cc names. If the text would be longer than
// `most` bytes, the last events are left out.
std::string to_text(const std::vector<Event>& events, size_t most = kMostTraceText);
// Reads them back; Invalid/Call with the number of the line at fault.
Result<std::vector<Event>> events_from_text(std::string_view text);

}  // namespace tenuto
