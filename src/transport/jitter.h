// The jitter of one message: it depends on the message's name and not on time, so that every run of
// a job has the same.
#pragma once

#include <cstdint>

#include "transport/transport.h"

namespace tenuto {

// Uniform in [0, jitter), by seed, link, step and name of the message.
Duration jitter_of(uint64_t seed, WorkerId from, WorkerId to, const Tag& tag, Duration jitter);

}  // namespace tenuto
