// The report of a worker whose list makes no progress.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "ir/walk.h"

namespace tenuto {

// The list around the waiting ops as one line, with "=>" before each waiting op; then a line for
// each waiting op, which says what it misses or which worker it waits for. `done` and `under_way`
// are indexed by place in the list; `held_back` has the places of ops whose inputs are here, but
// which may not start yet.
std::string hang_report(const Walk& walk, std::span<const uint8_t> done,
                        std::span<const uint8_t> under_way, std::span<const int32_t> held_back);

}  // namespace tenuto
