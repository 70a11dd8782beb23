// Runs the coordinator until the run has ended. It receives the workers' reports, and from the
// launcher the ends of processes and the user's signals; `decide` turns these into decisions, and
// the coordinator executes them.
//
// For each decision the coordinator first writes metrics and plans to their files, then the
// decision to the store, and only then tells the workers. So it may die at any moment: the next
// coordinator reads the store, removes the metrics of steps that the store does not know to be
// committed, and goes on.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "control/decide.h"
#include "ir/plan.h"
#include "protocol/tls.h"
#include "run/progress.h"
#include "run/run_directory.h"
#include "run/supervise.h"
#include "world/job.h"

namespace tenuto {

// What a run is made of. All of it must outlive the run.
struct RunInput {
  const Job* job = nullptr;
  const Plan* plan = nullptr;
  const RunDirectory* directory = nullptr;
  Rules rules;  // all but the term
  std::string token;
  std::string token_file;          // the file that holds the token; empty = none
  std::shared_ptr<const Tls> tls;  // null: the conversation is not encrypted
  // The launcher that began the run is gone. The run continues from the state in the store; its
  // workers wait for a coordinator.
  bool takes_up = false;
  bool starts_workers = true;  // false: someone else starts them
  Progress* progress = nullptr;
  CoordinatorStart start;
};

// Runs the run to its end, from its beginning or from where the previous coordinator left it.
// Before this returns, it sends Leaving to the launcher, unless a successor is to try again.
//
// Errors: a coordinator cannot begin: no port, no store
Result<Ending> coordinate(const RunInput& input);

}  // namespace tenuto
