// When connections break in tests.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "../sanitized.h"
#include "base/random.h"

namespace tenuto {

// How many breaks a test plays: TENUTO_BREAKS, or `unasked`, fewer of them under a sanitizer.
inline int64_t wanted_breaks(int64_t unasked) {
  if (const char* asked = std::getenv("TENUTO_BREAKS")) return std::atoll(asked);
  return kSanitized ? unasked / 6 : unasked;
}

// How many bytes are written until the next break. Half of the breaks come soon, within a greeting,
// a header, a small message; the others after `mean` bytes in the mean.
inline int64_t bytes_until_break(Random& random, int64_t mean) {
  return random.below(random.below(2) == 0 ? 1500 : 2 * mean);
}

}  // namespace tenuto
