#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tenuto {

void check_failed(const char* condition, const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", file, line, condition, what.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace tenuto
