// Holds a process to a number of cores by pauses between its works. It needs no privilege, and is
// exact on average: within a work the process uses what it can.
#pragma once

#include "base/unit.h"

namespace tenuto {

// The longest pause. A wrong figure then costs no more.
inline constexpr Duration kMostPause = std::chrono::seconds(30);

// How long a process has to pause so that it has used at most `cores` on average: `cpu` is the
// processor time that it has used within `elapsed`. Zero if it has used less; and for `cores` that
// are not above 0, which mean no limit.
Duration pause_for(Duration cpu, Duration elapsed, double cores);

}  // namespace tenuto
