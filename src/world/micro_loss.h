// The loss of one micro-batch, and what is known with it.
#pragma once

#include <optional>

#include "base/id.h"

namespace tenuto {

// What the last stage reports of a micro-batch.
struct MicroLoss {
  MicroId micro;
  double loss = 0;  // in nats per target (per byte for byte-level text)
  // The share of the targets that the model finds likeliest, in a held-out pass; none: in training,
  // and of a model whose targets are no classes.
  std::optional<double> accuracy = {};
  auto operator<=>(const MicroLoss&) const = default;
};

}  // namespace tenuto
