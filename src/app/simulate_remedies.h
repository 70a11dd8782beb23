// What the run of a job would do about the faults that the job injects. A part of simulate.h.
#pragma once

#include <optional>

#include "app/simulate_case.h"
#include "base/result.h"
#include "remedy/rehearse.h"

namespace tenuto {

// The first steps of the job's run with its decisions about slow workers, slow links and killed
// workers, as [resilience] allows them: for each the plan, its step, the cost of the change, and a
// lower bound.
//
// Returns: nothing when no fault changes the cluster in these steps, or the job only observes
// Errors:  as rehearse(), as bound_of_routings()
Result<std::optional<RehearsedJob>> rehearse_job(const SimulationCase& it, int64_t iterations);

}  // namespace tenuto
