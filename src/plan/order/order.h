// Orders: in which sequence a worker runs the micro-batches of its pipeline. One file per family;
// the passes in plan/lower.h do everything else (numbering, messages, reductions).
//
// A new order is a file here and a line in the table of order.cc (CONTRIBUTING.md shows one).
#pragma once

#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/op.h"
#include "plan/make_plan.h"

namespace tenuto {

// One op of a worker's sequence: its kind, the position of its micro-batch in the pipeline (from
// 0), and the worker's chunk that runs it.
struct Slot {
  OpKind kind = OpKind::Forward;
  int32_t position = 0;
  int32_t chunk = 0;
  auto operator<=>(const Slot&) const = default;
};

// The sequence of one worker of a pipeline: for each position and chunk Forward, BackwardInput and
// BackwardWeight exactly once, each kind of a chunk in ascending position.
using OrderMaker = std::vector<Slot> (*)(const OrderShape& shape, int32_t worker);

// An order: what is known of it, and what makes it.
struct NamedOrder {
  OrderCard card;
  OrderMaker make = nullptr;
};

// The order of a name, or nullptr.
const NamedOrder* find_order(std::string_view name);

// Builds a sequence op by op: each call appends the next position of its kind and chunk.
class SlotList {
 public:
  // An empty sequence for `shape`.
  explicit SlotList(const OrderShape& shape);
  // Appends the chunk's next forward; false when there is none.
  bool forward(int32_t chunk) { return next(OpKind::Forward, chunk, micros_); }
  // Appends the chunk's next input gradient whose forward is in the list; false when there is none.
  bool backward_input(int32_t chunk);
  // Appends the chunk's next weight gradient whose input gradient is in the list; false when there
  // is none.
  bool backward_weight(int32_t chunk);
  // Appends both gradients of the chunk's next micro-batch, one after the other.
  void backward(int32_t chunk);
  // How many of a chunk's forwards are in the list.
  int32_t forwards(int32_t chunk) const { return done(OpKind::Forward, chunk); }
  // Appends the missing gradients that can run, input gradients, then weight gradients, and returns
  // the sequence.
  std::vector<Slot> finish();

 private:
  bool next(OpKind kind, int32_t chunk, int32_t end);
  int32_t done(OpKind kind, int32_t chunk) const {
    return counts_[static_cast<size_t>(chunk)][static_cast<size_t>(kind)];
  }

  int32_t micros_;
  std::vector<std::array<int32_t, 3>> counts_;  // [chunk][kind]: those in the list
  std::vector<Slot> slots_;
};

// The sequence that alternates one backward and one forward once `ahead` forwards are done: its
// forwards in the order of `forwards`, its backwards in that of `backwards`. Each weight gradient
// runs `lag` input gradients after the input gradient of the same micro-batch.
//
// Shapes: forwards and backwards are (position, chunk), the same ones
std::vector<Slot> alternate(const std::vector<std::pair<int32_t, int32_t>>& forwards,
                            const std::vector<std::pair<int32_t, int32_t>>& backwards,
                            int32_t ahead, int32_t lag);

// Positions 0 to micros of chunk 0, for alternate.
std::vector<std::pair<int32_t, int32_t>> ascending(int32_t micros);

// True when forward, input and weight gradient last equally long, as the closed forms of orders
// with a split backward require.
bool equal_times(const OpTimes& times);

// All forwards, then all backwards. (The letters S, V and i below: see OrderCard.)
NamedOrder order_gpipe();
// S - i forwards, then one backward and one forward in turn.
NamedOrder order_one_f_one_b();
// 1F1B over V x S stages, S micro-batches at a time.
NamedOrder order_interleaved();
// All forwards chunk by chunk, then all backwards.
NamedOrder order_looped_bfs();
// 1F1B with weight gradients put off by i micro-batches.
NamedOrder order_zb_h1();
// 2(S-1-i)+1 forwards, then one backward and one forward in turn, weight gradients when no forward
// is left or the memory is full.
NamedOrder order_zb_h2();
// Two chunks in V placement, at most S micro-batches held.
NamedOrder order_zb_v();
// Interleaved 1F1B with weight gradients put off.
NamedOrder order_interleaved_zb();
// Two chunks in V placement, a forward of one beside a backward of the other.
NamedOrder order_dualpipe_v();

}  // namespace tenuto
