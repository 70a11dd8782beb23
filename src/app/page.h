// The page of a schedule as a file, and what a finished run measured.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "sim/page.h"

namespace tenuto {

// What a run measured in one step.
struct Measured {
  std::vector<Span> spans;
  std::string path;  // the trace that it comes from
};

// Reads the newest trace of a run's folder, or the trace that `path` names.
//
// Requires: plan is the one that was run
// Errors:   Invalid/Call  there is no trace, or it is not readable; what to do
//           Invalid/Job   the trace is not of this plan
Result<Measured> read_measured(const std::string& path, const Plan& plan);

// Writes the page to `path`; the error is that of write_file.
Status write_page_file(const std::string& path, const PageContent& content);

}  // namespace tenuto
