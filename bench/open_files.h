// How many files a benchmark may have open.
#pragma once

#include <sys/resource.h>

#include <cstdint>

#include "base/check.h"

namespace tenuto {

// Raises the limit of this process as far as it may, and returns it.
inline int64_t most_files() {
  rlimit limit{};
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0, "the limit of open files");
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace tenuto
