// Runs the coordinator until the run has ended. It receives the workers' reports, and from the
// launcher the ends of processes and the user's signals; `decide` turns these into decisions, and
// the coordinator executes them.
//
// For each decision the coordinator first writes metrics and plans to their files, then the
// decision to the store, and only then tells the workers. So it may die at any moment: the next
// coordinator reads the store, removes the metrics of steps that the store does not know to be
// committed, and goes on.
#pragma once

#include "base/result.h"
#include "control/store.h"
#include "run/run_input.h"

namespace tenuto {

// Runs the run to its end, from its beginning or from where the previous coordinator left it.
// Before this returns, it sends Leaving to the launcher, unless a successor is to try again.
//
// Errors: a coordinator cannot begin: no port, no store
Result<Ending> coordinate(const RunInput& input);

}  // namespace tenuto
