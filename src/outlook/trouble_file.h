// Recorded troubles, as a CSV file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "outlook/trouble.h"

namespace tenuto::outlook {

// The first line of a file of troubles.
inline constexpr std::string_view kTroubleHead = "time_s,kind,target,factor,duration_s";

// Reads lines `time_s,kind,target,factor,duration_s` below that head. The kind is dead-worker,
// slow-worker or slow-link, the target P.S: pipeline and stage, of a link those of its upper end.
// The factor says how many times longer ops or messages take, at least 1; a dead worker has none.
// Without a duration the trouble stays. Empty lines and what follows # do not count.
//
// Returns: the troubles, ordered by their begin
// Errors:  Invalid/Call with the file's name, the line, what was expected and what was found
Result<std::vector<Trouble>> read_troubles(std::string_view text, const std::string& name,
                                           const ClusterShape& shape);

}  // namespace tenuto::outlook
