// Orders that split the backward and put weight gradients off, so that the gradient reaches earlier
// stages sooner and weight gradients fill the gaps. Source: Qi et al., "Zero bubble pipeline
// parallelism", ICLR 2024.
//
// ZB-H1. Idea: 1F1B, but worker i puts each weight gradient off until i more input gradients are
// done; so it holds no more than the first worker of 1F1B.
//
// ZB-H2. Idea: 2(S-1-i)+1 forwards ahead, so that neighbours have one micro-batch to spare, and no
// worker waits if a link delays messages by up to one forward. Differs: weight gradients wait until
// no forward is left or the memory is full, so that they do not delay what neighbours wait for.
// With memory for 2S-1 micro-batches they lag by 2i, as in the paper.
#include <algorithm>

#include "plan/order/order.h"

namespace tenuto {

namespace {

std::vector<Slot> make_h1(const OrderShape& shape, int32_t worker) {
  const auto all = ascending(shape.micros);
  return alternate(all, all, shape.workers - worker, worker);
}

std::vector<Slot> make_h2(const OrderShape& shape, int32_t worker) {
  const int32_t ahead = std::min(shape.micros, 2 * (shape.workers - 1 - worker) + 1);
  const int32_t most = shape.memory > 0 ? std::max(shape.memory, ahead) : shape.micros;
  SlotList list(shape);
  for (int32_t k = 0; k < ahead; ++k) list.forward(0);
  int32_t held = ahead;
  for (int32_t k = 0; k < shape.micros; ++k) {
    list.backward_input(0);
    const bool forwards_left = list.forwards(0) < shape.micros;
    if ((!forwards_left || held == most) && list.backward_weight(0)) --held;
    if (list.forward(0)) ++held;
  }
  return list.finish();
}

}  // namespace

NamedOrder order_zb_h1() {
  OrderCard card;
  card.name = "zb-h1";
  card.summary = "1f1b with weight gradients put off by i micro-batches";
  card.bubble = "(S-1)(tF+tB-tW)";
  card.memory = "S";
  card.source = "Qi et al., Zero bubble, ICLR 2024";
  card.splits_backward = true;
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    if (!equal_times(times)) return std::nullopt;
    const int32_t before = shape.workers - 1;
    if (shape.micros < shape.workers) {
      return (shape.micros + before) * (times.forward + times.backward_input) +
             times.backward_weight;
    }
    return shape.micros * times.all() + before * times.forward;
  };
  card.peak_micros = [](const OrderShape& shape, int32_t) {
    return 1.0 * std::min(shape.micros, shape.workers);
  };
  return {std::move(card), make_h1};
}

NamedOrder order_zb_h2() {
  OrderCard card;
  card.name = "zb-h2";
  card.summary = "2(S-1-i)+1 forwards ahead, weight gradients when no forward is left";
  card.bubble = "(S-1)(tF+tB-tW) with a barrier behind each step, (S-1)(tF+tB-2tW) without";
  card.memory = "M; with a limit from 2S-1 on, that limit";
  card.source = "Qi et al., Zero bubble, ICLR 2024";
  card.splits_backward = true;
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    if (!equal_times(times) || shape.micros < 2 * shape.workers - 1) return std::nullopt;
    return shape.micros * times.all() + (shape.workers - 1) * times.forward;
  };
  card.peak_micros = [](const OrderShape& shape, int32_t worker) {
    if (shape.memory == 0) return 1.0 * shape.micros;
    const int32_t ahead = 2 * (shape.workers - 1 - worker) + 1;
    return 1.0 * std::min(shape.micros, std::max(shape.memory, ahead));
  };
  return {std::move(card), make_h2};
}

}  // namespace tenuto
