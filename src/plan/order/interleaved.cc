// Orders over V chunks a worker in loop placement, so that a micro-batch passes every worker V
// times and each op that a worker waits for is V times shorter. Micro-batches go in rounds: each
// round takes one chunk after the other. A round has S micro-batches; when S does not divide M,
// there are M / S rounds (at least one) of sizes that differ by one at most.
//
// Interleaved 1F1B. Idea: 1F1B over passes (a pass is one micro-batch through one chunk), 2(S-1-i)
// + (V-1) R + 1 of them ahead (R = micro-batches of the longest round). Source: Narayanan et al.,
// "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021;
// rounds that are longer than S: as in torch's pipelining.
//
// Interleaved zero bubble. Idea: with the backward split, S-1-i fewer passes ahead are enough, and
// weight gradients are put off by i, as in ZB-H1. Source: Qi et al., "Zero bubble pipeline
// parallelism", ICLR 2024.
#include <algorithm>

#include "plan/order/order.h"

namespace tenuto {

namespace {

int32_t longest_round(const OrderShape& shape) {
  const int32_t rounds = std::max(1, shape.micros / shape.workers);
  return (shape.micros + rounds - 1) / rounds;
}

// All passes in their order: round by round, chunk by chunk; `back`: the last chunk first.
std::vector<std::pair<int32_t, int32_t>> passes(const OrderShape& shape, bool back) {
  const int32_t rounds = std::max(1, shape.micros / shape.workers);
  std::vector<std::pair<int32_t, int32_t>> all;
  int32_t first = 0;
  for (int32_t round = 0; round < rounds; ++round) {
    const int32_t end = first + shape.micros / rounds + (round < shape.micros % rounds ? 1 : 0);
    for (int32_t c = 0; c < shape.chunks; ++c) {
      for (int32_t k = first; k < end; ++k) all.emplace_back(k, back ? shape.chunks - 1 - c : c);
    }
    first = end;
  }
  return all;
}

int32_t ahead_of_all(const OrderShape& shape) {
  return (shape.chunks - 1) * longest_round(shape) + 1;
}

double in_micros(const OrderShape& shape, int32_t held) {
  return 1.0 * std::min(shape.micros * shape.chunks, held) / shape.chunks;
}

std::vector<Slot> make_interleaved(const OrderShape& shape, int32_t worker) {
  const int32_t ahead = 2 * (shape.workers - 1 - worker) + ahead_of_all(shape);
  return alternate(passes(shape, false), passes(shape, true), ahead, 0);
}

std::vector<Slot> make_interleaved_zb(const OrderShape& shape, int32_t worker) {
  const int32_t ahead = shape.workers - 1 - worker + ahead_of_all(shape);
  return alternate(passes(shape, false), passes(shape, true), ahead, worker);
}

}  // namespace

NamedOrder order_interleaved() {
  OrderCard card;
  card.name = "interleaved";
  card.summary = "1f1b over V chunks a worker, S micro-batches at a time";
  card.bubble = "(S-1) t / V when S divides M";
  card.memory = "S + (S-1-2i)/V when S divides M";
  card.source = "Narayanan et al., Megatron-LM, SC 2021";
  card.placement = Placement::Loop;
  card.chunks = 2;
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    if (shape.micros % shape.workers != 0) return std::nullopt;
    return shape.micros * times.all() + (shape.workers - 1) * times.all() / shape.chunks;
  };
  card.peak_micros = [](const OrderShape& shape, int32_t worker) {
    return in_micros(shape, 2 * (shape.workers - 1 - worker) + ahead_of_all(shape));
  };
  return {std::move(card), make_interleaved};
}

NamedOrder order_interleaved_zb() {
  OrderCard card;
  card.name = "interleaved-zb";
  card.summary = "interleaved with weight gradients put off by i chunks";
  card.bubble = "(S-1)(tF+tB-tW) / V when S divides M";
  card.memory = "S when S divides M";
  card.source = "Qi et al., Zero bubble, ICLR 2024";
  card.splits_backward = true;
  card.placement = Placement::Loop;
  card.chunks = 2;
  card.makespan = [](const OrderShape& shape, const OpTimes& times) -> std::optional<double> {
    if (!equal_times(times) || shape.micros % shape.workers != 0) return std::nullopt;
    return shape.micros * times.all() + (shape.workers - 1) * times.forward / shape.chunks;
  };
  card.peak_micros = [](const OrderShape& shape, int32_t) {
    return in_micros(shape, shape.workers - 1 + ahead_of_all(shape));
  };
  return {std::move(card), make_interleaved_zb};
}

}  // namespace tenuto
