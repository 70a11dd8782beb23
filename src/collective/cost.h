// Closed forms for the time of all-reduces, to choose an algorithm by. A message costs alpha, plus
// beta for each byte.
//
// All arithmetic is in integers. Each member chooses by these figures for itself; so all choose the
// same, whatever compiler built them.
#pragma once

#include <cstdint>

#include "base/unit.h"

namespace tenuto {

// The costs of a message and of its bytes; all links are alike.
struct AlphaBeta {
  Duration alpha{};
  double bytes_per_second = 0;  // counted in whole bytes, 1 at least; 0 = unlimited
};

// The most moves of a schedule that is generated to find a price: about twice members x chunks.
constexpr int64_t kMostMoves = int64_t{1} << 22;

// The time of `rounds` rounds that move `parts` / `of` of the tensor through the busiest port.
Duration closed_form(int64_t rounds, int64_t parts, int64_t of, Bytes size, AlphaBeta link);

// Closed forms for n members and s bytes, all members there from the start.
Duration ring_time(int32_t members, Bytes size, AlphaBeta link);
Duration halving_time(int32_t members, Bytes size, AlphaBeta link);

// The time of the exchange with the late member, from its arrival on, if the others then have their
// sums: (k + L - 1)(alpha + s beta / k). This and the two that follow require members >= 2.
Duration late_exchange_time(int32_t members, int32_t chunks, Bytes size, AlphaBeta link);
// The time in which the others make their sums, if none of them is late.
Duration early_sum_time(int32_t members, int32_t chunks, Bytes size, AlphaBeta link);
// The count of chunks with the least late_exchange_time: near sqrt((L - 1) s beta / alpha). It is
// bounded, so that the rounds fit into memory even if a message costs nothing.
int32_t best_chunks(int32_t members, Bytes size, AlphaBeta link);
// The count of chunks that is good where one member's links are slow: n - 1 in each of about
// sqrt(s beta / (2 (n - 1) alpha)) passes (slow_one.cc).
int32_t best_slow_chunks(int32_t members, Bytes size, AlphaBeta link);
// How late a member must be for the late exchange to be faster than the better of ring and halving,
// begun when that member comes. A wrong guess of who is late costs at most as much.
Duration break_even_delay(int32_t members, int32_t chunks, Bytes size, AlphaBeta link);

// The time of a call by ring or halving and by late-one, in nanoseconds.
struct CallCosts {
  bool halving = false;     // halving is chosen, else the ring
  int32_t chunks = 0;       // of late-one; 0 = too few members for it
  int64_t base_ns = 0;      // by ring or halving, from when all are there
  int64_t early_ns = 0;     // late-one: the others' sums
  int64_t exchange_ns = 0;  // late-one: the rest, once these sums and the late member are there

  // How late a member must be for late-one to be faster; a wrong guess costs at most as much.
  int64_t break_even_ns() const { return early_ns + exchange_ns - base_ns; }
};

// The rules of a choice.
struct CostRules {
  int32_t margin_thousandths = 20;  // halving has to be better than the ring by this
  Bytes least_chunk{16 << 10};
};

// The costs of a call of that size; late-one with its best count of chunks.
//
// Requires: members >= 1
CallCosts call_costs(int32_t members, Bytes size, AlphaBeta link, CostRules rules);

}  // namespace tenuto
