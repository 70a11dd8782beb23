// Looped breadth-first. Idea: GPipe over V chunks a worker in loop placement: all micro-batches of
// a chunk before the next chunk, so that a chunk's weight gradient is whole early and its reduction
// runs beside the other chunks. Source: Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys
// 2023; differs: backwards run in ascending order too, so that sums are made in micro-batch order.
#include <algorithm>

#include "plan/order/order.h"

namespace tenuto {

namespace {

std::vector<Slot> make(const OrderShape& shape, int32_t) {
  SlotList list(shape);
  for (int32_t c = 0; c < shape.chunks; ++c) {
    while (list.forward(c)) {
    }
  }
  for (int32_t c = shape.chunks; c-- > 0;) {
    for (int32_t k = 0; k < shape.micros; ++k) list.backward(c);
  }
  return list.finish();
}

}  // namespace

NamedOrder order_looped_bfs() {
  OrderCard card;
  card.name = "looped-bfs";
  card.summary = "all forwards, chunk by chunk, then all backwards";
  card.bubble = "(S-1) t / V when M >= S";
  card.memory = "M";
  card.source = "Lamy-Poirier, Breadth-first pipeline parallelism, MLSys 2023";
  card.placement = Placement::Loop;
  card.chunks = 2;
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    // A worker begins a chunk when it has finished the chunk before, or, if that is later, when the
    // first micro-batch has come from the last worker.
    const int32_t passes = (shape.chunks - 1) * std::max(shape.micros, shape.workers) +
                           shape.micros + shape.workers - 1;
    return passes * times.all() / shape.chunks;
  };
  card.peak_micros = [](const OrderShape& shape, int32_t) { return 1.0 * shape.micros; };
  return {std::move(card), make};
}

}  // namespace tenuto
