// Schedules for the loads of a layout: in which order each stage runs its forwards and backwards.
//
// Stages and links are resources that do one thing at a time. A micro-batch passes through the
// stages and links, and back. On each stage, forwards run in the order of their micro-batches, and
// so do backwards. A link carries the transfers of each direction in the order of micro-batches.
// The reduction of a stage begins when its last backward ends, and disturbs nothing.
//
// With half-duplex links, the two directions of a link have an order as well. The policies send a
// waiting backward transfer before a waiting forward one, except those that list their order
// (ForwardsFirst, Periodic). Searches choose the order of each link too: on random steps of 2 to 4
// stages and micro-batches, with backwards always first, the best orders of the stages alone miss
// the optimum in 10 to 14 % of the steps, by up to 15 %.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adapt/layout/problem.h"

namespace tenuto {

// By which rule a stage takes its next op.
enum class BlockPolicy : uint8_t {
  OneForwardOneBackward,  // a backward first; a forward only while fewer than min(M, N - n)
                          // micro-batches of stage n, of N, are in flight (forward begun, backward
                          // not ended)
  WithTransfers,          // the same with a limit for stages far from each other: round trip /
                          // busiest resource, rounded up, plus one before the last stage
  BackwardFirst,          // a backward first, and no limit
  ForwardsFirst,          // all forwards, then all backwards
  Periodic,               // every micro-batch repeats the times of the first one a period later
};
// As users see it: "1f1b", "1f1b+transfers", "backward-first", "gpipe", "periodic".
const char* name_of(BlockPolicy policy);

// The times of a step by some order.
struct BlockSchedule {
  double makespan = 0;                                      // to the end of the last reduction
  BlockPolicy policy = BlockPolicy::OneForwardOneBackward;  // that made it, or that it began with
  bool improved = false;                                    // a search changed the order
  // Of each stage: true = the next backward, false = the next forward.
  std::vector<std::vector<bool>> order;
  // The same of each half-duplex link; an entry is empty when its link takes no time. Empty with
  // full duplex.
  std::vector<std::vector<bool>> link_order;
  std::vector<int32_t> in_flight;  // of each stage: micro-batches in flight, at most
};

// Requires: at least one stage
// Cost: O(M N log N) for M micro-batches and N stages; O(M N) for ForwardsFirst and Periodic
BlockSchedule schedule_blocks(const LayoutLoads& loads, BlockPolicy policy);

// Runs the stages and the half-duplex links in the given orders; without orders, links send a
// waiting backward transfer first. Returns nothing when a stage or a link waits for ever.
//
// Requires: two ops for every micro-batch in each order, except of a link that takes no time
// Cost:     linear, some 5 ns a block; some 70 ns for half-duplex links without orders
std::optional<BlockSchedule> replay_blocks(const LayoutLoads& loads,
                                           const std::vector<std::vector<bool>>& order,
                                           const std::vector<std::vector<bool>>& link_order = {});

// How much a search for a schedule may try.
struct BlockEffort {
  // Schedules with two neighbouring ops of a stage or link exchanged, or with other limits of a
  // stage. An exchange costs about as much as replay_blocks().
  int64_t replays = 0;
  // Choices of a branch-and-bound search over all orders. Only for steps with at most 1,024 ops;
  // 1,000 choices suffice for almost all steps of 4 stages and 4 micro-batches.
  int64_t nodes = 0;
  // Micro-batches that each stage may have in flight; empty = any number.
  std::vector<int32_t> most_in_flight;
};

// The best of the five policies, improved by searches within `effort`. Deterministic. Stops as soon
// as least_makespan() is reached or no order can be better.
//
// Returns: nothing when effort.most_in_flight leaves some stage no micro-batch
std::optional<BlockSchedule> best_schedule(const LayoutLoads& loads,
                                           const BlockEffort& effort = {});

}  // namespace tenuto
