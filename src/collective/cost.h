// Closed forms of what all-reduces take, under what a message costs however small it is (alpha) and
// what a byte costs (beta): the figures by which one is chosen.
//
// All of it is integer arithmetic: members that choose by these figures, each for itself, come to
// the same choice whatever they were compiled with.
#pragma once

#include <cstdint>

#include "base/unit.h"

namespace tenuto {

// What a message costs, and what its bytes cost; every link alike.
struct AlphaBeta {
  Duration alpha{};
  double bytes_per_second = 0;  // counted in whole bytes, 1 at least; 0 = unlimited
};

// Moves of a schedule that is still worth generating for a price: about twice members x chunks.
constexpr int64_t kMostMoves = int64_t{1} << 22;

// So many rounds, and parts / of of the tensor through the busiest port, as a time.
Duration closed_form(int64_t rounds, int64_t parts, int64_t of, Bytes size, AlphaBeta link);

// Closed forms for n members and s bytes, all members there from the start.
Duration ring_time(int32_t members, Bytes size, AlphaBeta link);
Duration halving_time(int32_t members, Bytes size, AlphaBeta link);

// What the exchange with the late member takes from its arrival on, the others' sums being made:
// (k + L - 1)(alpha + s beta / k). This and the two that follow require members >= 2.
Duration late_exchange_time(int32_t members, int32_t chunks, Bytes size, AlphaBeta link);
// What the others need for their sums, if nobody is late.
Duration early_sum_time(int32_t members, int32_t chunks, Bytes size, AlphaBeta link);
// The count of chunks with the least late_exchange_time: near sqrt((L - 1) s beta / alpha), and not
// so many that the rounds fill the memory where a message costs nothing.
int32_t best_chunks(int32_t members, Bytes size, AlphaBeta link);
// The count of chunks that is good where one member's links are slow: n - 1 in each of about
// sqrt(s beta / (2 (n - 1) alpha)) passes (slow_one.cc).
int32_t best_slow_chunks(int32_t members, Bytes size, AlphaBeta link);
// How late a member must be for the late exchange to be faster than the better of ring and halving,
// begun when it comes. It is also all that a wrong guess of who is late can cost.
Duration break_even_delay(int32_t members, int32_t chunks, Bytes size, AlphaBeta link);

// What a call takes by the two ways that a choice is between, in nanoseconds.
struct CallCosts {
  bool halving = false;     // who begins together uses halving, else the ring
  int32_t chunks = 0;       // of late-one; 0 = with so few members nobody can be waited for
  int64_t base_ns = 0;      // by ring or halving, from when all are there
  int64_t early_ns = 0;     // late-one: the others' sums
  int64_t exchange_ns = 0;  // late-one: from when these are made and the late member is there

  // How late a member must be for late-one to be the faster way; all that a wrong guess costs.
  int64_t break_even_ns() const { return early_ns + exchange_ns - base_ns; }
};

// What a choice goes by.
struct CostRules {
  int32_t margin_thousandths = 20;  // halving has to be better than the ring by that
  Bytes least_chunk{16 << 10};
};

// Both ways of a call of that size, late-one with the chunks that are best for it.
//
// Requires: members >= 1
CallCosts call_costs(int32_t members, Bytes size, AlphaBeta link, CostRules rules);

}  // namespace tenuto
