// The loss of one micro-batch.
#pragma once

#include "base/id.h"

namespace tenuto {

// In nats per target (per byte for byte-level text).
struct MicroLoss {
  MicroId micro;
  double loss = 0;
  auto operator<=>(const MicroLoss&) const = default;
};

}  // namespace tenuto
