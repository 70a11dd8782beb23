// The two tasks of a worker process that `tenuto profile` starts: it measures the model's layers on
// its device, or its links to the other workers.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tenuto {

// The arguments for measuring layers. The job file has the text of to_toml() (world/load.h).
struct LayersTask {
  std::string job_file, out;
  double seconds = 20;
};

// Measures the job's model on its device and writes the model file. Errors: measure_layers'; a file
// that cannot be read or written
Status measure_layers_of(const LayersTask& task);

// The name in the hello of the transport. All processes that measure links together use the same.
inline std::string links_hello(int32_t workers) {
  return "links of " + std::to_string(workers) + " workers";
}

// The arguments for measuring links.
struct LinksTask {
  std::string job_file, hub, token;
  int32_t worker = 0, workers = 1;
};

// Connects to the hub and the other workers, and measures what the hub asks for, over the transport
// that the job's workers use. Links are measured between the memories of the hosts, even where
// devices have their own memory.
Status measure_links_with(const LinksTask& task);

}  // namespace tenuto
