// Counts the memory that tensors of this process use on a device.
#pragma once

#include "base/unit.h"

namespace tenuto {

// Bytes of a device's memory.
struct MemoryUse {
  Bytes now;   // in use
  Bytes most;  // the largest number in use since reset_most()
};

// Counts the tensors of all engines of the process, and nothing else. Calls from any thread.
class MemoryCount {
 public:
  virtual ~MemoryCount() = default;
  // The bytes in use now, and the largest number that was in use.
  virtual MemoryUse use() const = 0;
  // Sets `most` to the number of bytes in use now.
  virtual void reset_most() = 0;
};

}  // namespace tenuto
