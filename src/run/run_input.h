// What a coordinator gets: the run that it is to lead.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "control/state.h"
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
  const Plan* plan = nullptr;  // with server shards: of one replica
  const RunDirectory* directory = nullptr;
  Rules rules;  // all but the term
  std::string token;
  std::string token_file;          // the file that holds the token; empty = none
  std::shared_ptr<const Tls> tls;  // null: the conversation is not encrypted
  // The launcher that began the run is gone. The run continues from the state in the store; its
  // workers wait for a coordinator.
  bool takes_up = false;
  int64_t first_mass = 0;      // server shards: of the checkpoint that is resumed
  bool starts_workers = true;  // false: someone else starts them
  Progress* progress = nullptr;
  CoordinatorStart start;
};

}  // namespace tenuto
