// Our own Chrome traces, read back: what workers measured, as spans again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "sim/price.h"

namespace tenuto {

// The spans of a trace that write_trace has written, by worker, then start. An op is known by its
// worker and its name; other rows of the file are ignored, among them those with a category
// ("cat"): promised ops, and times in which no op ran. Ops of the held-out pass are left out, and
// so are weight gradients that are part of a whole backward.
//
// Requires: plan is the one that was run
// Errors:   Invalid/Call   not JSON, or a time or a name is missing (`path` is named)
//           Invalid/Job    an op that the plan does not have, or one twice
Result<std::vector<Span>> spans_of_trace(std::string_view text, const std::string& path,
                                         const Plan& plan);

}  // namespace tenuto
