// Rounds for moves that are given in an order in which they could be made one by one.
#pragma once

#include <vector>

#include "ir/collective.h"

namespace tenuto {

// Puts each move, in the order of the list, into the first round in which its sender has what it
// sends and both ports are free.
//
// Cost: moves x rounds at worst
std::vector<Round> pack_rounds(const std::vector<Move>& moves, int32_t chunk_count);

}  // namespace tenuto
