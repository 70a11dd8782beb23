// The passes that turn compute lists into a whole schedule. An order says which ops a worker runs
// and in which sequence; code that moves an op to another worker runs the same passes again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "ir/stores.h"

namespace tenuto {

// Puts a Send right after each op whose value another worker needs, and a Recv right before the op
// that needs it. Only activations and gradients, the values of a micro-batch, are sent.
//
// A stored value that another worker reads is sent at the front of its owner's list.
//
// Requires: lists hold compute ops only, and each op at most once over all lists; a value is in one
//           store, or made by one op
void insert_messages(Schedule& schedule, const Stores& stores = {});

// How each group that does not sum by the ring sums; the key is the group's stages.
using Summings = std::map<std::vector<StageId>, Summing>;

// The summings of a schedule's groups.
Summings summings_of(const Schedule& schedule);

// The name by which a plan says that each group sums by an algorithm of its own.
inline constexpr const char* kAutoAllReduce = "auto";
// The algorithm that lets one member come late: the member that is measured to come last, or the
// last holder while nothing is measured.
inline constexpr const char* kLateOne = "late-one";

// Refuses a name by which no plan can sum. Allowed are auto, late-one, and the all-reduces of the
// table that need no late member.
//
// Errors: Invalid/Call  with the nearest name
Status check_all_reduce(const std::string& name);

// Appends the update to each holder's list: a Reduce for each of its stages (over the stage's
// holders, by the schedule's all_reduce and by `summings`); a Measure for each, with the norm
// passed from the last stage to the first; the clip decision, passed in the other direction, once
// to each worker; and a Step for each stage. So on a slow link the norm travels right behind the
// last gradient, and the clip decision arrives before the next step's first activation. Stages may
// have different numbers of holders: a holder takes the norm from the worker that sends it most
// gradients, and the clip decision from the one that sends it most activations; on a tie senders
// take turns. All possible senders have the same value, bit for bit. With `update.staggered`, and
// at least two stages, it appends a MeasureAhead and a StepAhead for each stage instead, with the
// norm passed from the first stage to the last, and puts a Validate for each stage at the front of
// the lists, with the clip decision passed from the last stage to the first. With `update.tied`,
// and at least two stages, the first and the last stage reduce in two buckets: 0 = what is theirs
// alone, 1 = the shared weight, over the holders of both. A group whose members cannot use the
// algorithm sums by the ring. With one stage, both flags of `plan.update` are set to false.
//
// Requires: a schedule without groups; with `update.tied`, no worker holds both the first and the
// last stage
void append_update(Plan& plan, const Summings& summings = {});

// Appends the update for the rest of an interrupted step. A total that some worker has is copied to
// the holders of its stage; only stages without a total are reduced. If a clip decision is in some
// store, nothing is measured, and the clip decision is sent from there to the workers that need it.
// `stepped`: by stage and worker, true if the worker has taken the stage's Step already; the others
// step.
//
// Requires: of each stage the totals of all parts are stored, or none
void append_update_left(Plan& plan, const Summings& summings, const Stores& stores,
                        const std::vector<std::vector<bool>>& stepped);

// The plan with a staggered update or without, see append_update; unchanged if it is so already.
Plan with_update(Plan plan, bool staggered);

// The plan with its update made anew, for holders that have changed.
Plan with_update_of_holders(Plan plan);

// True when the way to sum depends on the current cluster: all-reduce auto, or late-one.
bool sums_follow_cluster(const Schedule& schedule);

// The plan in which all groups sum by the algorithm of that name; with auto, by the ring until
// with_summing() changes a group. Requires: check_all_reduce
Plan with_all_reduce(Plan plan, const std::string& name);
// The plan in which the group of these stages sums in another way; by the ring if its members
// cannot sum in that way.
Plan with_summing(Plan plan, const std::vector<StageId>& stages, const Summing& summing);

// The limits that a list needs: micro-batches held at once, each counted once for each of the
// worker's stages, and forwards before the first backward.
Limit limit_of(const std::vector<Op>& list);

// The memory limit of a worker that may hold `memory` micro-batches. Each of its `chunks` stages
// takes an equal part of a micro-batch's memory, and `late_share` of that part is still held
// between the input gradient and the weight gradient. Unlimited with memory = 0.
MemoryLimit memory_limit_of(int32_t memory, int32_t chunks, double late_share);

// The most that a list holds at once, in the limit's unit.
int64_t peak_of(const std::vector<Op>& list, const MemoryLimit& memory);

}  // namespace tenuto
