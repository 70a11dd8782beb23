// How much memory this process can still get.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// The least of what the machine has available, what the process may have (ulimit -v) and what its
// control group may have, each without what is taken. What cannot be found out is no limit.
Bytes memory_left();

// Whether so much memory is there; small needs are not looked at. `what` begins the sentence:
// "the plan of 1000 stages".
//
// Errors: Exhausted/Call  with what is needed and what is there
Status check_memory(const std::string& what, double bytes);

}  // namespace tenuto
