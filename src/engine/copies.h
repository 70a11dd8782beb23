// Copies between an engine's device and the host, by torch. Private to engine/.
#pragma once

#include <memory>

#include "engine/device.h"
#include "engine/value_store.h"
#include "runtime/copies.h"

namespace tenuto {

// The copies of the values in `store`, which are on `device`.
std::unique_ptr<Copies> make_copies(const TorchDevice& device, std::shared_ptr<ValueStore> store);

}  // namespace tenuto
