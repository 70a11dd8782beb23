// What `tenuto status` tells of a live run.
#pragma once

#include <string>

#include "control/decide.h"

namespace tenuto {

// The state of the run as one JSON object.
std::string status_text(const State& state);

}  // namespace tenuto
