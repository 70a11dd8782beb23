// Counts the memory that the tensors of this process take on a device.
#pragma once

#include "base/unit.h"

namespace tenuto {

// Bytes of a device's memory.
struct MemoryUse {
  Bytes now;   // in use
  Bytes most;  // in use at once since reset_most()
};

// The tensors of all engines of the process count, and nothing else. Any thread.
class MemoryCount {
 public:
  virtual ~MemoryCount() = default;
  // What is in use, and what was at most.
  virtual MemoryUse use() const = 0;
  // From now on `most` counts anew, from what is in use now.
  virtual void reset_most() = 0;
};

}  // namespace tenuto
