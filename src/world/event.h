// Events: what a worker did, and when.
#pragma once

#include <cstdint>

#include "base/unit.h"
#include "ir/op.h"

namespace tenuto {

// One op as it happened. Times on the worker's own clock, compared only with each other.
struct Event {
  WorkerId worker;
  int64_t step = 0;
  Op op;
  Duration start{}, finish{};
  Bytes moved;      // Send, Recv: size of the message
  Duration sent{};  // Recv: the sender's stamp, on the sender's clock
};

}  // namespace tenuto
