// How much memory this process can still get.
#pragma once

#include <string>

#include "base/result.h"
#include "base/unit.h"

namespace tenuto {

// The least of three: what the machine has available, and what the limits of the process
// (ulimit -v) and of its control group still allow. A limit that cannot be read counts as none.
Bytes memory_left();

// Checks that `bytes` of memory are available; small needs are not checked. `what` begins the
// error's sentence: "the plan of 1000 stages".
//
// Errors: Exhausted/Call  with what is needed and what is there
Status check_memory(const std::string& what, double bytes);

}  // namespace tenuto
