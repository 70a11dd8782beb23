// The price of a procedure under alpha, the cost of each message, and beta, the cost of each byte.
//
// The model: a member has one port out and one port in; a message occupies the ports at both ends
// for the link's latency (alpha) and its bytes at the link's rate (beta). Rounds have no common
// start: each member handles its messages in its own order, and a message starts when both ports
// are free, both members have arrived, and the sender has what the message carries. Adding is free.
// This is the model of the closed forms (collective/cost.h); `reduction_finish` prices reductions
// inside a plan, where the latency of a message does not occupy its link.
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

// Prices `collective` over `size` bytes when member i comes at arrivals[i]. With ports of the
// cluster, a message begins when those on its way are free, too, and occupies them for its bytes at
// their rates.
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
// Tries every all-reduce of the table. An algorithm with late members is tried with the members
// that arrive after the widest gap between two arrivals, and, if it takes one late member, with the
// member that has the slowest links. An algorithm whose number of chunks is free is tried with a
// few numbers. `link` is a typical link.
//
// Shapes: arrivals by place in members
Result<CheapestProcedure> cheapest_all_reduce(const std::vector<WorkerId>& members,
                                              const std::vector<Duration>& arrivals, Bytes size,
                                              const Cluster& cluster, AlphaBeta link);

}  // namespace tenuto
