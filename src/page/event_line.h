// A line of events.jsonl, as far as the page shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "page/snapshot.h"

namespace tenuto::page {

// What the line says.
struct EventLine {
  std::string kind;
  int64_t epoch = 0, step = 0;
  std::string reason;
  int64_t plan = 0;                            // serial of the plan that is proposed; 0 = none is
  std::vector<ShownAlternative> alternatives;  // at most kMostAlternatives
};

// So many alternatives of a decision are shown, the first ones.
inline constexpr size_t kMostAlternatives = 64;

// Reads a line; none = it is no event. A field that is missing, or has another type than it should
// have, has its default: what is written by a later version is shown as far as it is known. An
// alternative is {"name", "step_ms", "change_ms", "total_ms", "chosen"}, and that of a sync mode
// {"mode", "progress"}; one without a name is left out.
std::optional<EventLine> event_of_line(const std::string& line);

}  // namespace tenuto::page
