// The passes that turn compute lists into a whole schedule. An order writes which ops a worker runs
// and in which sequence; whoever moves an op to another worker runs the same passes again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "ir/stores.h"

namespace tenuto {

// Puts a Send right after each op whose value another worker needs, and a Recv right before the op
// that needs it. Only activations and gradients: values of a micro-batch.
//
// What a worker has in its store and another reads goes out at the front of its list.
//
// Requires: lists hold compute ops only, and each op at most once over all lists; a value is in one
//           store, or made by one op
void insert_messages(Schedule& schedule, const Stores& stores = {});

// What the update of a plan is like, whoever holds what.
struct UpdateStyle {
  bool tied = false;                // first and last stage share a weight
  bool staggered = false;           // each stage steps when its own gradients are whole
  std::string all_reduce = "ring";  // see Schedule
  std::map<std::vector<StageId>, Summing> summings = {};  // by a group's stages, where not the ring
};

// The style of a schedule's update.
UpdateStyle update_style_of(const Schedule& schedule);

// The name by which a plan says that each group sums by an algorithm of its own.
inline constexpr const char* kAutoAllReduce = "auto";
// By this one the member that comes last is late; as long as nobody knows who, the last holder.
inline constexpr const char* kLateOne = "late-one";

// Refuses a name by which no plan can sum: all-reduces of the table for which nobody has to be
// named as late, late-one and auto are those by which it can.
//
// Errors: Invalid/Call  with the nearest name
Status check_all_reduce(const std::string& name);

// Puts at the end of each holder's list what makes the step: Reduce with each of its stages' group
// (over the holders, by the collective of the style), Measure with the norm passed from the last
// stage to the first, the verdict passed from worker to worker the other way, once to each, then a
// Step for each of its stages: on a slow link the norm's way is that of the last gradient, and the
// verdict is there before the next step's first activation. Stages may have unequal numbers of
// holders: a holder takes the norm from the worker that most of its gradients come from, and the
// verdict from the one that most of its activations come from, without a most in turn; all of these
// have the same one, bit for bit. `staggered`, with at least two stages: a MeasureAhead and a
// StepAhead for each stage, the norm passed from the first stage to the last, and at the front of
// the lists a Validate for each, the verdict passed from worker to worker from the last stage to
// the first. With `tied`, and at least two stages, the first and the last stage reduce in two
// buckets: 0 = what is theirs alone, 1 = the shared weight, over the holders of both. Where the
// members of a group cannot sum as the style has it, they sum by the ring.
//
// Requires: with `tied`, no worker holds both the first and the last stage
void append_update(Schedule& schedule, const std::vector<Stage>& stages, const UpdateStyle& style);

// The same for what is left of a step. Totals that a holder has are copied by the others of its
// stage, and only gradients without one are reduced. With a verdict in some store nothing is
// measured, and it goes from there to those that need it. `stepped` says of each stage and worker
// that it has its Step behind it; the others step.
//
// Requires: a total of a stage is in the store of every part or of none
void append_update_left(Schedule& schedule, const std::vector<Stage>& stages,
                        const UpdateStyle& style, const Stores& stores,
                        const std::vector<std::vector<bool>>& stepped);

// The plan with the other kind of update, see append_update; as it is when it has that already.
Plan with_update(Plan plan, bool staggered);

// The plan with its update made anew, for holders that have changed.
Plan with_update_of_holders(Plan plan);

// True when the cluster as it is says how a plan sums: all-reduce auto, or late-one.
bool sums_follow_cluster(const Schedule& schedule);

// The plan with all sums made by an algorithm, by its name or auto. Requires: check_all_reduce
Plan with_all_reduce(Plan plan, const std::string& name);
// The plan with other sums of one group, which is of these stages. Where the members cannot sum so,
// by the ring.
Plan with_summing(Plan plan, const std::vector<StageId>& stages, const Summing& summing);

// True when the first and the last stage of the schedule share a weight, see append_update.
bool is_tied(const Schedule& schedule);

// What a list asks of its worker: micro-batches held at once, each of its stages counting one, and
// forwards before the first backward.
Limit limit_of(const std::vector<Op>& list);

// The room of a worker that may hold `memory` micro-batches and has `chunks` stages, each of which
// takes an equal part of one; `late_share` of a part is still held between the input gradient and
// the weight gradient. Unlimited with memory = 0.
Room room_of(int32_t memory, int32_t chunks, double late_share);

// The most that a list holds at once, in the room's unit.
int64_t peak_of(const std::vector<Op>& list, const Room& room);

}  // namespace tenuto
