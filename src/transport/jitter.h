// The jitter of one message: a function of its name, so that a run repeats on any clock.
#pragma once

#include <cstdint>

#include "transport/transport.h"

namespace tenuto {

// Uniform in [0, jitter), by seed, link, step and name of the message.
Duration jitter_of(uint64_t seed, WorkerId from, WorkerId to, const Tag& tag, Duration jitter);

}  // namespace tenuto
