// Counts the memory that a test program takes.
#pragma once

#include <cstddef>

namespace tenuto {

// Bytes that `new` has given out since the program began, whether they were given back or not.
size_t memory_taken();

}  // namespace tenuto
