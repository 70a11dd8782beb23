// Runs a program on a clock: when each op starts and ends if messages do not block their worker.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/longest_time.h"
#include "ir/compute_lane.h"
#include "sim/price.h"
#include "sim/program.h"
#include "world/port_sides.h"

namespace tenuto {

// Which ops of a plan are priced under the options; nullptr = all.
bool (*keep_of(const Plan& plan, const PriceOptions& options))(const Op&);

// The costs of an op at a worker: times and bytes by class of op.
class Tariff {
 public:
  // The costs of `program`'s classes. All arguments but the options must outlive the tariff.
  Tariff(const Program& program, const Plan& plan, const Model& model, const Cluster& cluster,
         const PriceOptions& options);
  // The time of a compute op.
  Duration time(int32_t op) const { return time(op, program_.worker(op)); }
  // The same, if the caller knows the op's worker.
  Duration time(int32_t op, int32_t worker) const {
    const Duration base = time_[at(program_.class_of(op))];
    const double speed = cluster_.workers[at(worker)].speed;
    return plus(speed == 1.0 ? base : at_speed(base, speed), per_op_);
  }
  // Bytes that the op writes, and bytes that it frees at its end.
  Bytes writes(int32_t op) const { return writes_[at(program_.class_of(op))]; }
  Bytes frees(int32_t op) const { return frees_[at(program_.class_of(op))]; }
  // Bytes of the value that a Send or Recv moves.
  Bytes moves(int32_t op) const { return moves_[at(program_.class_of(op))]; }
  // Bytes that a Reduce sums.
  Bytes reduces(const Op& op) const;
  // The collective of a group whose sum is reduced while the last op that adds to it computes; null
  // for others.
  const Collective* growing(GroupId group) const {
    if (growing_.empty() || !growing_[at(group.value)]) return nullptr;
    return &*growing_[at(group.value)];
  }
  // When a worker has each of so many chunks of its sum of a stage, if it has the whole `at`. A sum
  // grows evenly, from its end to its beginning.
  std::vector<Duration> grown_at(StageId stage, WorkerId worker, int32_t chunks, Duration at) const;
  // The cluster that the times are for.
  const Cluster& cluster() const { return cluster_; }

 private:
  static size_t at(int32_t index) { return static_cast<size_t>(index); }
  void find_growing(const Plan& plan);

  const Program& program_;
  const Cluster& cluster_;
  Duration per_op_;
  Bytes tied_;
  std::vector<StageCost> costs_;
  std::vector<Duration> time_;
  std::vector<Bytes> writes_, frees_, moves_;
  std::vector<std::optional<Collective>> growing_;  // by group; empty: no sum grows
  std::vector<Duration> last_op_;                   // by stage: that adds to the sum
};

// When everything happened. Times are indexed by op number; with several steps by step x size() +
// number.
struct Outcome {
  std::vector<Duration> start, finish;  // -1 = never; at most kLongestTime
  std::vector<double> peak_micros;      // per worker
  std::vector<Bytes> peak_bytes;        // per worker
  int64_t ended = 0;                    // ops
  Duration busy{};                      // of all compute lanes together, in the first step; at
                                        // most kLongestTime
  // If nothing can move before all ops have ended: ops that wait, as worker and list index.
  std::vector<std::pair<WorkerId, int32_t>> waiting;
};

// The ends of a reduction once all members of its group are in `waiting`; empty before. `waiting`
// has the numbers of their ops, or, with several steps, step x size() + number; `start` is indexed
// by the same numbers. The moves occupy `ports`.
std::vector<std::pair<int32_t, Duration>> reduction_of(
    const Program& program, const Schedule& schedule, const Tariff& tariff,
    const std::vector<int32_t>& waiting, const std::vector<Duration>& start, PortSides& ports);

// The op at the head of each lane, by worker and place in its list; next(lane) = the number of the
// next op of a lane of messages or reductions, or -1.
std::vector<std::pair<WorkerId, int32_t>> heads_of(const Program& program,
                                                   const std::vector<ComputeLane>& compute,
                                                   const std::function<int32_t(size_t)>& next);

// The bytes that a worker holds are counted up to this.
inline constexpr Bytes kMostBytes{int64_t{1} << 62};

// Fills in peak_bytes from the starts and ends of the first step, at most kMostBytes.
void note_bytes(const Program& program, const Tariff& tariff, Outcome& outcome);

// Runs the program, with listed or ready dispatch as the plan says. Runs options.steps steps (at
// least one); each worker begins the next one as soon as its own list is done.
Outcome run_clockwork(const Program& program, const Plan& plan, const Schedule& schedule,
                      const Tariff& tariff, const PriceOptions& options);

}  // namespace tenuto
