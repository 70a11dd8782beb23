// What keepers have of a job's model, and how they step: the job's optimizer, by mass.
//
// Idea:  an update of full mass does what a synchronous step of the engine does (Weights::update in
//        engine/weights.cc): the same learning rate, clip factor, weight decay and moments. Only
//        the rounding of fp32 numbers differs, because torch multiplies and adds in other orders.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parameter_server/mass_store.h"
#include "sync/servers/message.h"
#include "world/job.h"

namespace tenuto::servers {

// The ranges that the keepers of a job have, by stage, then by element, of about the same size.
// With servers there is one for each server: servers are divided among the stages, and each stage
// has one range at least. Without them each stage has one for each replica. A range begins at a
// multiple of 16 elements; a stage that has fewer such pieces has fewer ranges. If the job clips
// gradients, a stage is one range, whose keeper knows the norm.
//
// Units:    elements[stage]: GivenParameters::parameter_count
// Requires: a stage or more; each has an element or more; with servers job.sync.servers above 0
std::vector<ElementRange> ranges_of_job(const Job& job, std::span<const int64_t> elements);

// How a keeper of such a range steps. MassStore::make() refuses these settings if the job clips
// gradients and has several stages: no keeper knows the norm of the whole model then.
//
// Units: `decayed`: GivenParameters::decayed_count of the range's stage
MassStoreSettings store_settings_of(const Job& job, const ElementRange& range, int64_t decayed);

}  // namespace tenuto::servers
