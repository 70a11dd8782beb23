// The coordinator at work: hears the workers, and through the launcher their processes and the
// user's signals, asks decide, and does what it says, until the run has ended.
//
// Whatever it writes beside the store (metrics, plans) is there before the store says that it is
// decided, and counts from then on; whatever it tells, it tells after that. So it may die at any
// moment: the next one reads the store, takes back what was written too early, and goes on.
#pragma once

#include <memory>
#include <string>

#include "app/progress.h"
#include "app/run_directory.h"
#include "app/supervise.h"
#include "base/result.h"
#include "control/decide.h"
#include "control/tls.h"
#include "ir/plan.h"
#include "world/job.h"

namespace tenuto {

// What a run is made of. All of it must outlive the run.
struct RunInput {
  const Job* job = nullptr;
  const Plan* plan = nullptr;
  const RunDirectory* directory = nullptr;
  Rules rules;  // but for its term
  std::string token;
  std::string token_file;          // that holds it; empty = none
  std::shared_ptr<const Tls> tls;  // null: the conversation is not encrypted
  // The run has begun with a launcher that is gone: it is gone on with where the store says, and
  // its workers, which wait for a coordinator, go on with it.
  bool takes_up = false;
  bool starts_workers = true;  // false: they are started by someone else
  Progress* progress = nullptr;
  Office office;
};

// Runs it, from its beginning or from where the coordinator before left it. The launcher has heard
// Leaving when this returns, unless a successor is to try again.
//
// Errors: what keeps a coordinator from beginning: no port, no store
Result<Ending> coordinate(const RunInput& input);

}  // namespace tenuto
