// Checks of the section [sync]: the modes that a job can train in, and the settings that do not go
// with server shards. A part of fit.h.
#pragma once

#include <optional>

#include "world/fit.h"

namespace tenuto {

// The first setting that does not fit to [sync], or none. What the chooser file says is not read
// here: sync/chooser_model.h reads it when the run begins.
std::optional<Misfit> find_misfit_of_sync(const Job& job);

}  // namespace tenuto
