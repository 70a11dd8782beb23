// `tenuto launch`: trains PyTorch modules that a Python script makes (docs/bring-your-model.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run/run_directory.h"

namespace tenuto {

// The options on the command line.
struct LaunchOptions {
  int32_t workers = 0;                 // 0 = as many as the script's job has
  std::string python;                  // empty = the one of the active environment
  std::vector<std::string> script;     // the script and its arguments
  std::vector<std::string> overrides;  // "section.key=value"
  Beginning beginning = Beginning::Fresh;
  int64_t from_step = -1;
  bool json = false;
  std::string describe;  // write the script's job to this file and train nothing; empty = train
  // One address or several (protocol/addresses.h): only workers are started, for a coordinator that
  // others have started there. Empty = all of the run is started here.
  std::string coordinator;
  // With `coordinator`: the workers to start, such as "0-1,4"; what they show; the folder with the
  // certificates of this host, empty = none.
  std::string own_workers, token, tls;
};

// Asks the script for its job, then trains: a coordinator, and a Python with the script for each
// worker; or does the part of this that the options ask for. Returns the exit code. Must be called
// from the main thread, before any other is started.
int launch_script(const LaunchOptions& options);

}  // namespace tenuto
