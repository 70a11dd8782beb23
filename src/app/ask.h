// `tenuto status` and `tenuto inject`: questions and requests to a live run.
#pragma once

#include <string>

namespace tenuto {

// `tenuto status RUN`, `tenuto inject RUN WISH`; the exit code.
int run_status(const std::string& run, bool json);
int run_inject(const std::string& run, const std::string& wish);

}  // namespace tenuto
