// 1F1B. Idea: worker i of S runs S - i forwards ahead, then alternates one backward and one
// forward, so that a micro-batch leaves as soon as it can. Source: Narayanan et al.,
// "Memory-efficient pipeline-parallel DNN training" (PipeDream-Flush), ICML 2021.
#include <algorithm>

#include "plan/order/order.h"

namespace tenuto {

namespace {

std::vector<Slot> make(const OrderShape& shape, int32_t worker) {
  const auto all = ascending(shape.micros);
  return alternate(all, all, shape.workers - worker, 0);
}

}  // namespace

NamedOrder order_one_f_one_b() {
  OrderCard card;
  card.name = "1f1b";
  card.summary = "S-i forwards ahead, then one backward, one forward";
  card.bubble = "(S-1) t";
  card.memory = "S-i";
  card.source = "Narayanan et al., PipeDream-Flush, ICML 2021";
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    return (shape.micros + shape.workers - 1) * times.all();
  };
  card.peak_micros = [](const OrderShape& shape, int32_t worker) {
    return 1.0 * std::min(shape.micros, shape.workers - worker);
  };
  return {std::move(card), make};
}

}  // namespace tenuto
