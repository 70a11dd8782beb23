#include "plan/order/order.h"

namespace tenuto {

namespace {

// A card and its maker, side by side, so that neither can be forgotten.
struct Entry {
  OrderCard card;
  OrderMaker make;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {{"gpipe", false,
        "all forwards, then all backwards; bubble (S-1)t, M micro-batches held; GPipe, 2019"},
       order_gpipe},
      {{"1f1b", false,
        "S-i forwards ahead, then one backward, one forward; bubble (S-1)t, S-i held; "
        "PipeDream-Flush, 2021"},
       order_one_f_one_b},
      {{"zb-h1", true,
        "1f1b with weight gradients put off by i; bubble (S-1)(tF+tB-tW), S held; zero bubble, "
        "2024"},
       order_zb_h1},
  };
  return all;
}

}  // namespace

const std::vector<OrderCard>& order_cards() {
  static const std::vector<OrderCard> cards = [] {
    std::vector<OrderCard> all;
    for (const Entry& entry : entries()) all.push_back(entry.card);
    return all;
  }();
  return cards;
}

OrderMaker find_order(std::string_view name) {
  for (const Entry& entry : entries()) {
    if (entry.card.name == name) return entry.make;
  }
  return nullptr;
}

}  // namespace tenuto
