// The bytes that the links of a rehearsal count for messages.
#pragma once

#include "ir/plan.h"
#include "transport/transport.h"
#include "world/job.h"

namespace tenuto {

// The sizes of the messages of `plan`: activations, gradients and parts of sums have those of the
// job's profile. Empty without a profile. Messages of other kinds, state transfers among them,
// count as they are.
MessageSizes message_sizes(const Job& job, const Plan& plan);

}  // namespace tenuto
