// A worker's parts of `tenuto profile`, which starts it for one of them: to measure the model's
// layers on its device, or links with the other workers.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tenuto {

// To measure layers. The job file is one that load_job's to_toml wrote.
struct LayersTask {
  std::string job_file, out;
  double seconds = 20;
};

// Measures the job's model on its device and writes the model file. Errors: measure_layers'; a file
// that cannot be read or written
Status measure_layers_of(const LayersTask& task);

// The name that those who measure links together show each other in the wire's hello.
inline std::string links_hello(int32_t workers) {
  return "links of " + std::to_string(workers) + " workers";
}

// To measure links.
struct LinksTask {
  std::string job_file, hub, token;
  int32_t worker = 0, workers = 1;
};

// Meets the hub and the other workers, and measures as the hub says, over the transport that the
// job's workers have. Links are measured between the memories of the hosts, also where devices have
// memory of their own.
Status measure_links_with(const LinksTask& task);

}  // namespace tenuto
