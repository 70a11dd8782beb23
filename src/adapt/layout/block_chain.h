// A step as a chain of places through which every micro-batch passes, there and back. The code that
// makes and searches schedules shares it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "adapt/layout/block_schedule.h"
#include "adapt/layout/problem.h"

namespace tenuto {

// A stage, or a half-duplex link. It runs one op at a time, forwards and backwards alike.
struct BlockPlace {
  double forward = 0, backward = 0;
  double reduction = 0;
  int32_t stage = -1, link = -1;  // of the loads; the other one is -1
};

// The chain of a step. Half-duplex links are places, because their transfers have an order that a
// schedule may choose. Full-duplex links are hops: each direction runs in the order of
// micro-batches and does not disturb the other. Half-duplex links that take no time are left out.
struct BlockChain {
  std::vector<BlockPlace> places;
  std::vector<LinkLoad> hops;  // [p] joins places p and p + 1
  size_t micros = 1;
  // Of each place.
  size_t ops() const { return 2 * micros; }
  // Of all places together.
  size_t all_ops() const { return places.size() * ops(); }
};
// Requires: at least one stage and one micro-batch, and a link between each stage and the next
BlockChain chain_of(const LayoutLoads& loads);

// The order of the ops of every place: [p * ops() + i] = 1 if op i of place p is a backward.
using PlaceOrders = std::vector<uint8_t>;

// The time of a step that never ends.
inline constexpr double kNeverEnds = std::numeric_limits<double>::infinity();

// How a place takes its next op.
enum class PlaceChoice : uint8_t {
  BackwardFirst,  // of the ops that can run, a backward
  Listed,         // by the order given
};
// What a place follows when it takes an op.
struct PlaceRule {
  PlaceChoice choice = PlaceChoice::BackwardFirst;
  int32_t most = std::numeric_limits<int32_t>::max();  // micro-batches in flight
};

// Runs steps of one chain, again and again without allocation.
class BlockPlayer {
 public:
  explicit BlockPlayer(const BlockChain& chain);

  // Runs the places by their rules and writes the orders that result. A listed place reads its
  // order instead. Returns the makespan, or kNeverEnds.
  //
  // Cost: O(B log P) for B ops at P places, some 30 ns an op
  double play(const std::vector<PlaceRule>& rules, PlaceOrders& orders);

  // Runs the places in the given orders. Returns the makespan, or kNeverEnds when a place waits for
  // ever. Cost: linear, some 5 ns an op.
  double replay(const PlaceOrders& orders);

 private:
  struct State {
    double free = 0;                                 // when the last op ends
    double hop_forward = 0, hop_backward = 0;        // when the hops that leave the place are free
    uint32_t forwards = 0, backwards = 0;            // begun
    uint32_t forwards_here = 0, backwards_here = 0;  // whose inputs have a known time
    bool backward_next = false;
  };
  void reset();
  // The time at which the place can take its next op, and whether that is a backward.
  struct Next {
    double time = kNeverEnds;
    bool backward = false;
  };
  Next next_of(size_t place, const PlaceRule& rule, const PlaceOrders& orders) const;
  // Runs an op of a place; returns the place that gets its result (or the same place).
  size_t run_op(size_t place, bool backward, double start);
  double makespan() const;
  void set_next(size_t place, const PlaceRule& rule, const PlaceOrders& orders);

  const BlockChain& chain_;
  std::vector<State> states_;
  std::vector<double> forward_ready_, backward_ready_;  // [place * micros + micro]
  // A tournament over the places: who takes an op first; the lowest place of those at equal times.
  std::vector<double> keys_;
  std::vector<uint32_t> winners_;
  size_t leaves_ = 1;
  std::vector<uint32_t> to_visit_;
};

// What a search for orders must keep and may spend.
struct OrderLimits {
  std::vector<int32_t> most;  // in flight, of each place
  double least = 0;           // a makespan that no order undercuts: the search ends there
};

// The orders of the best step that a search has found.
struct FoundOrders {
  PlaceOrders orders;
  double makespan = kNeverEnds;
};

// Exchanges neighbouring ops on the longest path, the most promising first, without taking back a
// recent exchange (tabu search). Each exchange costs some 3 to 10 ns an op. Improves `found`;
// returns true when no order is faster, and false after `exchanges`.
//
// Source: Nowicki and Smutnicki, "A fast taboo search algorithm for the job shop problem",
//         Management Science 1996; Taillard, "Parallel taboo search techniques for the job shop
//         scheduling problem", ORSA J. Computing 1994 (the estimate of an exchange)
bool exchange_ops(const BlockChain& chain, const OrderLimits& limits, int64_t exchanges,
                  FoundOrders& found);

// Looks for better orders than `found` by branch and bound. Of the ops that could run next, let X
// be the one that would end first. The search tries only those ops of X's place that could start
// before X ends: X could run before any later one without delaying it. Returns true when it has
// looked at everything, so that `found` is the best order; false after `nodes` choices.
//
// Source: Giffler and Thompson, "Algorithms for solving production-scheduling problems", 1960
bool branch_orders(const BlockChain& chain, const OrderLimits& limits, int64_t nodes,
                   FoundOrders& found);

// The five policies under limits of micro-batches in flight (`most`: of each stage; empty = any).
FoundOrders play_policy(const LayoutLoads& loads, const BlockChain& chain, BlockPolicy policy,
                        const std::vector<int32_t>& most, BlockPlayer& player);

// The schedule of orders.
BlockSchedule schedule_of(const LayoutLoads& loads, const BlockChain& chain,
                          const FoundOrders& found, BlockPolicy policy);

}  // namespace tenuto
