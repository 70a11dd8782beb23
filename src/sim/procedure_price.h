// The price of a procedure under alpha and beta: what a message costs however small it is, and what
// a byte costs.
//
// The model: a member has one port out and one port in; both ends of a message are taken for the
// link's latency (alpha) and its bytes at the link's rate (beta). Rounds have no common beginning:
// each member makes its messages in its own order, and a message starts when both ports are free,
// both members have come, and the sender has what the message carries. Adding is free.
// This is the model of the closed forms (collective/cost.h); `reduction_finish` prices reductions
// inside a plan, where the latency of a message does not keep its link.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "collective/algorithm.h"
#include "collective/cost.h"
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

// The all-reduce with the least price, and why.
struct CheapestProcedure {
  Procedure procedure;
  ProcedurePrice price;
  std::string reason;
};
// Tries every all-reduce of the table; those with late members with whoever comes behind the widest
// gap between two arrivals, those with one such member also with who has slower links than all
// others, and those with free chunks with a few counts of them. `link` is what most links are like.
//
// Shapes: arrivals by place in members
Result<CheapestProcedure> cheapest_all_reduce(const std::vector<WorkerId>& members,
                                              const std::vector<Duration>& arrivals, Bytes size,
                                              const Cluster& cluster, AlphaBeta link);

}  // namespace tenuto
