// tenuto analyze: who slowed a recorded run, by how much, and what would have helped.
#pragma once

#include <iostream>
#include <string>

namespace tenuto {

// The flags as given.
struct AnalyzeOptions {
  std::string trace;    // a trace file, a folder of traces, or the name of a run
  std::string picture;  // file for the heat map as SVG
  bool json = false;
};

// Analyzes and prints. Returns the exit code: 0; 1 the picture could not be written; 2 an
// unreadable trace or wrong flags. On 1 and 2 no picture appears.
int run_analyze(const AnalyzeOptions& options, std::ostream& out = std::cout,
                std::ostream& errors = std::cerr);

}  // namespace tenuto
