#include "runtime/state_copy.h"

#include <algorithm>
#include <span>

namespace tenuto {

Status write_state_file(const std::string& path, const StateTensors& state,
                        const AfterPiece& after_piece) {
  return write_safetensors(path, state.tensors, state.metadata, after_piece);
}

StateCopy::StateCopy(const StateTensors& from) : state_(from) {
  size_t size = 0;
  for (const NamedTensor& tensor : from.tensors) size += tensor.bytes.size();
  bytes_.resize(size);
  std::span<std::byte> left = bytes_;
  for (NamedTensor& tensor : state_.tensors) {
    const std::span<std::byte> own = left.first(tensor.bytes.size());
    std::copy(tensor.bytes.begin(), tensor.bytes.end(), own.begin());
    tensor.bytes = own;
    left = left.subspan(own.size());
  }
}

}  // namespace tenuto
