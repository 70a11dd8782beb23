#include "counted_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> taken{0};

}  // namespace

// These take the place of the library's for the whole program.
void* operator new(size_t size) {
  taken += size;
  void* const memory = std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) std::abort();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }

void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tenuto {

size_t memory_taken() { return taken; }

}  // namespace tenuto
