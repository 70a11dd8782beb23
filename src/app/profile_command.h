// tenuto profile: measures what `tenuto plan` needs to know, on the job's own device and workers.
// Writes the times and bytes of the model's layers into a model file, and the links between the
// workers into a cluster file.
#pragma once

#include <iostream>
#include <string>
#include <vector>

namespace tenuto {

// The flags as given.
struct ProfileOptions {
  std::string job_file;
  std::vector<std::string> overrides;  // "section.key=value" of the job
  std::string out = ".";               // folder for model.json and cluster.json
  double seconds = 20;                 // for the layers, and again for the links
  bool layers_only = false, links_only = false;
  bool json = false;
};

// Measures, writes the files and prints a summary. A file is written only when all its values are
// measured. However it ends, the processes that it started end too. Returns the exit code:
// 0; 1 a measurement failed or a file could not be written; 2 wrong flags or a bad job.
//
// Requires: the process's main thread (see run/launch.h); seconds > 0
int run_profile(const ProfileOptions& options, std::ostream& out = std::cout,
                std::ostream& errors = std::cerr);

}  // namespace tenuto
