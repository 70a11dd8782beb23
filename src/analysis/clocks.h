// Clocks of different hosts differ: brings the times of a recording to one clock.
#pragma once

#include "analysis/recording.h"

namespace tenuto::analysis {

// If some message ends before it was sent, the clocks of workers differ. Then estimates how far
// each worker's clock is ahead from the messages in both directions between two workers, and from
// the ends of the collectives of a group, shifts all its ops, and adds a note. Workers that no
// message and no collective joins to worker 0 stay as they are, which a note says.
void align_clocks(Recording& recording);

}  // namespace tenuto::analysis
