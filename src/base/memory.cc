#include "base/memory.h"

#include <malloc.h>

namespace tenuto {

void keep_freed_memory() {
  constexpr int kKept = 1 << 30;
  mallopt(M_TRIM_THRESHOLD, kKept);
  // Some versions of the allocator accept no more than this.
  constexpr int kMostOfOld = 32 << 20;
  if (mallopt(M_MMAP_THRESHOLD, kKept) == 0) mallopt(M_MMAP_THRESHOLD, kMostOfOld);
}

}  // namespace tenuto
