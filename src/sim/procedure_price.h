// The price of a procedure under alpha and beta: what a message costs however small it is, and what
// a byte costs.
//
// The model: a member has one port out and one port in; both ends of a message are taken for the
// link's latency (alpha) and its bytes at the link's rate (beta). Rounds have no common beginning:
// each member makes its messages in its own order, and a message starts when both ports are free,
// both members have come, and the sender has what the message carries. Adding is free.
// This is the model of the closed forms below; `reduction_finish` prices reductions inside a plan,
// where the latency of a message does not keep its link.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "collective/algorithm.h"
#include "ir/procedure.h"
#include "world/cluster.h"

namespace tenuto {

// What a procedure costs, by place in its members.
struct ProcedurePrice {
  std::vector<Duration> finish;  // when it has all that it gets and has sent all that it sends
  std::vector<Bytes> sent;
  Duration last{};  // the latest finish
};

// Prices `collective` over `size` bytes when member i comes at arrivals[i].
//
// Shapes: arrivals by place in collective.members
// Cost:   linear in moves + members x chunks
ProcedurePrice price_collective(const Collective& collective, const std::vector<Duration>& arrivals,
                                Bytes size, const Cluster& cluster);

// What a message costs, and what its bytes cost; every link alike.
struct AlphaBeta {
  Duration alpha{};
  double bytes_per_second = 0;
};

// A round count and bytes through the busiest port as a time: rounds x alpha + bytes x beta.
Duration closed_form(double rounds, double bytes, AlphaBeta link);

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
// How late a member must be for the late exchange to be faster than the better of ring and halving,
// begun when it comes. It is also all that a wrong guess of who is late can cost.
Duration break_even_delay(int32_t members, int32_t chunks, Bytes size, AlphaBeta link);

// The all-reduce with the least price, and why.
struct CheapestProcedure {
  Procedure procedure;
  ProcedurePrice price;
  std::string reason;
};
// Tries every all-reduce of the table; those with late members with whoever comes behind the widest
// gap between two arrivals, and those with free chunks with a few counts of them. `link` is what
// most links are like.
//
// Shapes: arrivals by place in members
Result<CheapestProcedure> cheapest_all_reduce(const std::vector<WorkerId>& members,
                                              const std::vector<Duration>& arrivals, Bytes size,
                                              const Cluster& cluster, AlphaBeta link);

}  // namespace tenuto
