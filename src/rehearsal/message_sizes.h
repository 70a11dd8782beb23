// The sizes of messages with which a rehearsal computes how long its links take.
#pragma once

#include "ir/plan.h"
#include "transport/transport.h"
#include "world/job.h"

namespace tenuto {

// The sizes of the messages of `plan`. Activations, gradients and messages of all-reduces have the
// sizes that follow from the job's profile; others, for example state transfers, have their real
// sizes. Empty if the job has no profile.
MessageSizes message_sizes(const Job& job, const Plan& plan);

}  // namespace tenuto
