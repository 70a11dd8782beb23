// `tenuto train`: trains the model of a job file, or says in a sentence why not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/run_directory.h"
#include "world/load.h"

namespace CLI {
class App;
}

namespace tenuto {

// The options on the command line.
struct TrainOptions {
  std::string job_file;
  std::vector<std::string> overrides;  // "section.key=value"
  Beginning beginning = Beginning::Fresh;
  int64_t from_step = -1;  // Resume: the checkpoint to begin from; -1 = the newest
  bool goes_on = false;    // the run has not ended and goes on from where it is; set by train()
  bool json = false;
  bool follows = false;    // with `json`: an earlier run of the same script has printed its object
  std::string token_file;  // holds the token, or is written with a new one; empty = none
  bool start_workers = true;  // false: someone else starts them (`tenuto coordinator`)
  // While another coordinator leads the run, wait until it is gone, and then go on in its place.
  bool stands_by = false;
  // `tenuto launch`: the Python, the script and the script's arguments; empty = workers are
  // tenuto's own programs.
  std::vector<std::string> script;
  std::vector<std::string> own_overrides;  // of `overrides`: those that the user gave
};

// The job as it is run: without a limit of the user's, the workers of a script get time to come.
Job job_to_run(const LoadedJob& loaded);

// Trains; returns the exit code. Must be called from the main thread, before any other is started.
int train(const TrainOptions& options);

}  // namespace tenuto
