#include "plan/order/order.h"

#include <algorithm>

#include "base/check.h"

namespace tenuto {

namespace {

// The table: every order, as `tenuto schedule list` shows them.
const std::vector<NamedOrder>& orders() {
  static const std::vector<NamedOrder> all = {
      order_gpipe(),           //
      order_one_f_one_b(),     //
      order_zb_h1(),           //
      order_zb_h2(),           //
      order_interleaved(),     //
      order_interleaved_zb(),  //
      order_looped_bfs(),      //
      order_zb_v(),            //
      order_dualpipe_v(),      //
  };
  return all;
}

}  // namespace

const std::vector<OrderCard>& order_cards() {
  static const std::vector<OrderCard> cards = [] {
    std::vector<OrderCard> all;
    for (const NamedOrder& order : orders()) all.push_back(order.card);
    return all;
  }();
  return cards;
}

const OrderCard* find_card(const std::string& name) {
  const NamedOrder* order = find_order(name);
  return order != nullptr ? &order->card : nullptr;
}

const NamedOrder* find_order(std::string_view name) {
  for (const NamedOrder& order : orders()) {
    if (order.card.name == name) return &order;
  }
  return nullptr;
}

int32_t stage_of(Placement placement, const OrderShape& shape, int32_t worker, int32_t chunk) {
  CHECK(worker >= 0 && worker < shape.workers && chunk >= 0 && chunk < shape.chunks,
        "a chunk of a worker of the pipeline");
  if (placement == Placement::V && chunk == 1) return 2 * shape.workers - 1 - worker;
  return chunk * shape.workers + worker;
}

SlotList::SlotList(const OrderShape& shape)
    : micros_(shape.micros), counts_(static_cast<size_t>(shape.chunks)) {}

bool SlotList::next(OpKind kind, int32_t chunk, int32_t end) {
  int32_t& count = counts_[static_cast<size_t>(chunk)][static_cast<size_t>(kind)];
  if (count >= end) return false;
  slots_.push_back({kind, count++, chunk});
  return true;
}

bool SlotList::backward_input(int32_t chunk) {
  return next(OpKind::BackwardInput, chunk, done(OpKind::Forward, chunk));
}

bool SlotList::backward_weight(int32_t chunk) {
  return next(OpKind::BackwardWeight, chunk, done(OpKind::BackwardInput, chunk));
}

void SlotList::backward(int32_t chunk) {
  if (backward_input(chunk)) backward_weight(chunk);
}

std::vector<Slot> SlotList::finish() {
  for (auto chunk = static_cast<int32_t>(counts_.size()); chunk-- > 0;) {
    while (backward_input(chunk)) {
    }
  }
  for (auto chunk = static_cast<int32_t>(counts_.size()); chunk-- > 0;) {
    while (backward_weight(chunk)) {
    }
  }
  return std::move(slots_);
}

std::vector<Slot> alternate(const std::vector<std::pair<int32_t, int32_t>>& forwards,
                            const std::vector<std::pair<int32_t, int32_t>>& backwards,
                            int32_t ahead, int32_t lag) {
  const auto count = static_cast<int32_t>(forwards.size());
  ahead = std::min(ahead, count);
  std::vector<Slot> slots;
  slots.reserve(3 * forwards.size());
  const auto add = [&](OpKind kind, const std::vector<std::pair<int32_t, int32_t>>& of, int32_t k) {
    const auto& [position, chunk] = of[static_cast<size_t>(k)];
    slots.push_back({kind, position, chunk});
  };
  for (int32_t k = 0; k < ahead; ++k) add(OpKind::Forward, forwards, k);
  for (int32_t k = 0; k < count; ++k) {
    add(OpKind::BackwardInput, backwards, k);
    if (k >= lag) add(OpKind::BackwardWeight, backwards, k - lag);
    if (k + ahead < count) add(OpKind::Forward, forwards, k + ahead);
  }
  for (int32_t k = std::max(0, count - lag); k < count; ++k) {
    add(OpKind::BackwardWeight, backwards, k);
  }
  return slots;
}

std::vector<std::pair<int32_t, int32_t>> ascending(int32_t micros) {
  std::vector<std::pair<int32_t, int32_t>> all;
  for (int32_t k = 0; k < micros; ++k) all.emplace_back(k, 0);
  return all;
}

bool equal_times(const OpTimes& times) {
  return times.forward == times.backward_input && times.forward == times.backward_weight;
}

}  // namespace tenuto
