// GPipe. Idea: all forwards, then all backwards. Source: Huang et al., "GPipe", NeurIPS 2019;
// differs: backwards run in ascending order too, so that sums are made in micro-batch order.
#include "plan/order/order.h"

namespace tenuto {

namespace {

std::vector<Slot> make(const OrderShape& shape, int32_t) {
  SlotList list(shape);
  while (list.forward(0)) {
  }
  for (int32_t k = 0; k < shape.micros; ++k) list.backward(0);
  return list.finish();
}

}  // namespace

NamedOrder order_gpipe() {
  OrderCard card;
  card.name = "gpipe";
  card.summary = "all forwards, then all backwards";
  card.bubble = "(S-1) t";
  card.memory = "M";
  card.source = "Huang et al., GPipe, NeurIPS 2019";
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    return (shape.micros + shape.workers - 1) * times.all();
  };
  card.peak_micros = [](const OrderShape& shape, int32_t) { return 1.0 * shape.micros; };
  return {std::move(card), make};
}

}  // namespace tenuto
