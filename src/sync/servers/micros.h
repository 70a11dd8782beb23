// Which micro-batches a work has: none is given out twice, and those of lost works are given out
// again.
#pragma once

#include <vector>

#include "sync/servers/message.h"

namespace tenuto::servers {

// Takes micro-batches for a work of this mass: those of `returned` first, from its beginning, then
// the next ones of `own`, the data of the replica that does the work. So a replica that never
// computes for others has the same micro-batches in each iteration as in synchronous training.
std::vector<MicroRange> deal(std::vector<MicroRange>& returned, Stream& own, ReplicaId replica,
                             Mass mass);

// Puts the micro-batches of a work into `returned`. Ranges stay in order, and those that touch
// become one. `returned` holds at most the mass of one work of each replica, because fresh
// micro-batches are given out only while it is empty.
void give_back(std::vector<MicroRange>& returned, const Work& work);

}  // namespace tenuto::servers
