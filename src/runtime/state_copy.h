// The state of a stage as the tensors of its file, and a copy of it that stays as it is while steps
// go on.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "base/safetensors.h"

namespace tenuto {

// What the file of a stage holds. The tensors' bytes belong to whoever made it.
struct StateTensors {
  std::vector<NamedTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Writes the file of a stage, as write_safetensors() says. All files of checkpoints are written
// here, so those that are written in the background have the same bytes.
Status write_state_file(const std::string& path, const StateTensors& state,
                        const AfterPiece& after_piece = {});

// A copy of the tensors. It can be moved, and its tensors stay where they are.
class StateCopy {
 public:
  // Copies the bytes of all tensors.
  explicit StateCopy(const StateTensors& from);
  StateCopy(StateCopy&&) noexcept = default;
  StateCopy& operator=(StateCopy&&) noexcept = default;
  StateCopy(const StateCopy&) = delete;
  StateCopy& operator=(const StateCopy&) = delete;
  // The copied tensors, which live as long as this object.
  const StateTensors& state() const { return state_; }

 private:
  std::vector<std::byte> bytes_;
  StateTensors state_;  // of bytes_
};

}  // namespace tenuto
