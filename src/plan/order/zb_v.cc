// ZB-V. Idea: worker i holds stages i and 2S-1-i, so that a micro-batch begins and ends at worker 0
// and its backward can follow at once. Every worker holds as much as the first worker of 1F1B.
// There is no bubble when forward, input and weight gradient last equally long and steps have no
// barrier between them.
//
// Phases of worker i: 2(S-i)-1 forwards of chunk 0; i times a forward of each chunk; S-i times a
// forward and a backward of chunk 1; then in turn a forward and a backward of chunk 0 and of chunk
// 1; i pairs of input gradients (chunk 0, chunk 1); S-i input gradients of chunk 0, each with a
// weight gradient of chunk 0; the remaining gradients.
// Source: Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, section 6.
#include <algorithm>

#include "plan/order/order.h"

namespace tenuto {

namespace {

std::vector<Slot> make(const OrderShape& shape, int32_t worker) {
  const int32_t rest = shape.workers - worker;
  SlotList list(shape);
  for (int32_t k = 0; k < 2 * rest - 1; ++k) list.forward(0);
  for (int32_t k = 0; k < worker; ++k) {
    list.forward(1);
    list.forward(0);
  }
  for (int32_t k = 0; k < rest; ++k) {
    list.forward(1);
    list.backward(1);
  }
  while (list.forwards(0) < shape.micros || list.forwards(1) < list.forwards(0)) {
    for (const int32_t chunk : {0, 1}) {
      list.forward(chunk);
      list.backward(chunk);
    }
  }
  for (int32_t k = 0; k < worker; ++k) {
    list.backward_input(0);
    list.backward_input(1);
  }
  for (int32_t k = 0; k < rest; ++k) {
    list.backward_input(0);
    list.backward_weight(0);
  }
  return list.finish();
}

}  // namespace

NamedOrder order_zb_v() {
  OrderCard card;
  card.name = "zb-v";
  card.summary = "two chunks in V placement: a micro-batch begins and ends at worker 0";
  card.bubble = "(S-1) tF / 2 with a barrier behind each step, none without, when tF = tB = tW";
  card.memory = "S";
  card.source = "Qi et al., Zero bubble, ICLR 2024, section 6";
  card.splits_backward = true;
  card.placement = Placement::V;
  card.chunks = 2;
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    if (!equal_times(times) || shape.micros < 2 * shape.workers - 1) return std::nullopt;
    return shape.micros * times.all() + (shape.workers - 1) * times.forward / 2;
  };
  card.peak_micros = [](const OrderShape& shape, int32_t worker) {
    return 0.5 * std::min({2 * shape.workers, shape.micros + worker + 1, 2 * shape.micros});
  };
  return {std::move(card), make};
}

}  // namespace tenuto
