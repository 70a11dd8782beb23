// DualPipe-V. Idea: V placement, and in the steady state each worker pairs a forward of one chunk
// with a backward of the other, so that the messages of one hide behind the other's work. Here a
// pair is a forward, then a backward, because Tenuto's message lanes run beside every op anyway.
//
// Phases of worker i: 2(S-1-i) forwards of chunk 0; i+1 times a forward of each chunk; S-1-i times
// a backward and a forward of chunk 1; the pairs; then the ops that are left, with the later
// backwards split, so that their weight gradients fill the gaps.
// Source: DeepSeek-AI, "DeepSeek-V3 technical report" (DualPipe), 2024; Qi et al., the V-shaped
// half of it ("cut in half"), 2025.
#include <deque>

#include "base/text.h"
#include "plan/order/order.h"

namespace tenuto {

namespace {

// The end: S-1-i times a backward of each chunk with one of the last forwards between; i+1 pairs of
// backwards, the later half of them without their weight gradients; then these weight gradients,
// between the last input gradients.
void drain(const OrderShape& shape, int32_t worker, SlotList& list) {
  const int32_t after = shape.workers - 1 - worker, pairs = worker + 1;
  for (int32_t k = 0; k < after; ++k) {
    list.backward(1);
    list.forward(1);
    list.backward(0);
  }
  std::deque<int32_t> put_off;  // chunks whose weight gradients are due, oldest first
  for (int32_t k = 0; k < 2 * pairs; ++k) {
    const int32_t chunk = k % 2 == 0 ? 1 : 0;
    if (k < pairs) {
      list.backward(chunk);
    } else {
      list.backward_input(chunk);
      put_off.push_back(chunk);
    }
  }
  for (int32_t k = 0; k < after; ++k) {
    list.backward_weight(put_off.front());
    put_off.pop_front();
    list.backward_input(0);
    put_off.push_back(0);
  }
  for (const int32_t chunk : put_off) list.backward_weight(chunk);
}

std::vector<Slot> make(const OrderShape& shape, int32_t worker) {
  const int32_t after = shape.workers - 1 - worker;
  SlotList list(shape);
  for (int32_t k = 0; k < 2 * after; ++k) list.forward(0);
  for (int32_t k = 0; k < worker + 1; ++k) {
    list.forward(0);
    list.forward(1);
  }
  for (int32_t k = 0; k < after; ++k) {
    list.backward(1);
    list.forward(1);
  }
  for (int32_t k = 0; k < shape.micros - 2 * shape.workers + worker + 1; ++k) {
    list.forward(0);
    list.backward(1);
    list.forward(1);
    list.backward(0);
  }
  drain(shape, worker, list);
  return list.finish();
}

}  // namespace

NamedOrder order_dualpipe_v() {
  OrderCard card;
  card.name = "dualpipe-v";
  card.summary = "two chunks in V placement, a forward of one beside a backward of the other";
  card.bubble = "(S-1) tF / 2 when tF = tB = tW";
  card.memory = "S + 1/2";
  card.source = "DeepSeek-AI, DeepSeek-V3 technical report, 2024; its V-shaped half";
  card.splits_backward = true;
  card.placement = Placement::V;
  card.chunks = 2;
  card.refusal = [](const OrderShape& shape) {
    if (shape.micros >= 2 * shape.workers) return std::string();
    return cat("it needs at least 2 micro-batches for each of the ", shape.workers,
               " workers of a pipeline, found ", shape.micros,
               ": give micros >= ", 2 * shape.workers, " or take zb-v");
  };
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    if (!equal_times(times)) return std::nullopt;
    return shape.micros * times.all() + (shape.workers - 1) * times.forward / 2;
  };
  card.peak_micros = [](const OrderShape& shape, int32_t) { return shape.workers + 0.5; };
  return {std::move(card), make};
}

}  // namespace tenuto
