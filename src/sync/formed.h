// Fills in what a mode leaves to the replicas' times: groups, a ring with children, shares, and the
// window of grace.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "ir/sync_mode.h"
#include "sync/relay.h"
#include "sync/scenario.h"

namespace tenuto {

// The window of grace as a share of the median iteration.
constexpr double kGraceShare = 0.12;
// Replicas whose times differ by more than this factor from the next faster one begin a new group.
constexpr double kGroupGap = 1.15;

// Groups of replicas with similar times, numbered by lowest replica: sorted by time, a new group
// begins wherever a time is more than `gap` times the one before.
std::vector<int32_t> groups_by_time(std::span<const IterationTime> times, double gap);

// Parents of a ring of the `count` fastest replicas. The others are its children, dealt to the
// members in turn, fastest first.
std::vector<ReplicaId> ring_by_time(std::span<const IterationTime> times, int32_t count);

// The same of the replicas whose hosts are not overloaded: these are members, and a member that has
// as many children as its port takes gets no more.
//
// Shapes:   limits: of each replica, or none: then it is ring_by_time
// Requires: a count from 1 to the number of replicas
// Errors:   Infeasible/Call  fewer members than `count` whose hosts are not overloaded; more
//           children than the ports of the members take
Result<std::vector<ReplicaId>> ring_within(std::span<const IterationTime> times, int32_t count,
                                           std::span<const RelayLimit> limits);

// Micro-batches of each replica, so that all iterations last as nearly as possible equally long.
// They add up to replicas x micros; each is at least 1, at least a quarter of `micros`, rounded
// down, and at most twice `micros`.
//
// Source: Chen et al., "Semi-dynamic load balancing", SoCC 2020; shares solved for, not stepped to.
std::vector<int64_t> shares_by_time(std::span<const IterationTime> times, int64_t micros);

// The mode with all that the update rule needs. What the mode names itself, stays.
//
// Shapes: times: the mean iteration of each replica; relays: what its host can do for a ring that
//         is made here, or none
// Errors: check's (ir/sync_mode.h); ring_within's; Invalid/Call  no micro-batch
Result<SyncMode> form(const SyncMode& mode, std::span<const IterationTime> times, int64_t micros,
                      std::span<const RelayLimit> relays = {});

}  // namespace tenuto
