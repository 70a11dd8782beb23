// StateStore reads and writes the parameters and the optimizer state of a device: what checkpoints
// and state transfers ask of it. Between two steps only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "runtime/state_copy.h"

namespace tenuto {

// The state of the stages that a device holds. Calls come from the worker's thread.
class StateStore {
 public:
  virtual ~StateStore() = default;
  // Writes parameters and optimizer state of `stage`, which it holds, to `path` (safetensors). The
  // file is durable when this returns, and `path` never names an incomplete one.
  virtual Status save(StageId stage, const std::string& path) = 0;
  // Copies what save() would write now.
  virtual Result<StateCopy> copy_state(StageId stage) = 0;
  // Reads parameters and optimizer state of what it holds from the shards in `paths`, which any
  // partition may have written.
  virtual Status load(const std::vector<std::string>& paths, int64_t version) = 0;
  // The size in bytes of the parameters and optimizer state of `stage`, which it holds. Holders
  // with the same version have the same bytes.
  virtual int64_t state_bytes(StageId stage) const = 0;
  // The size in bytes of a unit; a part of the state is made of whole units. Once a unit and all
  // units before it are written, the unit stays right through every Step that this worker takes
  // together with the other holders: the update of a unit reads only the gradient, the units before
  // it, and itself.
  virtual int64_t state_unit(StageId stage) const = 0;
  // Copies the part that begins at byte `first`.
  // Requires: first and the size are multiples of state_unit, first + size <= state_bytes
  virtual Status read_state(StageId stage, int64_t first, std::span<std::byte> to) = 0;
  // Writes a part that read_state has read from `first` on; the rest of the state stays as it is.
  // The last Step cannot be taken back any more. Requires: as read_state
  virtual Status write_state(StageId stage, int64_t first, std::span<const std::byte> from) = 0;
  // Sets the version to `version`, and leaves the state as it is. A joiner does this before it has
  // received the state; from then on it takes every Step together with the other holders, so that
  // the parts that it has received stay right.
  virtual Status adopt(int64_t version) = 0;
};

}  // namespace tenuto
