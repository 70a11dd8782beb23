// Finds the present state of the cluster from the samples that workers report.
//
// `detect` is called once for every committed step with the samples that have come since the last
// call, and returns its new state, the cluster to plan with and its verdicts. It is a pure
// function: no clock, no I/O, and the order of the samples does not matter.
//
//   MonitorState state = make_monitor(healthy_cluster);
//   for each committed step:
//     Detection detection = detect(std::move(state), samples, step);
//     state = std::move(detection.state);
//     report detection.verdicts; if (detection.changed) weigh a plan for detection.cluster
//
// A slow worker does not look like a slow link, nor the other way round. Links are judged by the
// time from a message's stamp to its arrival, which contains no computing; workers are judged by
// how long their ops last, which contains no messages. Why a worker is slow, is told with the
// verdict on it, or some steps later (load.h).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/unit.h"
#include "ir/op.h"
#include "monitor/link.h"
#include "monitor/load.h"
#include "monitor/speed.h"
#include "monitor/verdict.h"
#include "world/cluster.h"
#include "world/sample.h"

namespace tenuto {

// How the cluster is judged.
struct MonitorOptions {
  LinkOptions link;
  SpeedOptions speed;
  // A round trip that has grown by less than the larger of these is not slow: no plan would change.
  // Neither is one that has grown by less than a message may have waited for a processor.
  Duration least_gain = std::chrono::microseconds(50);
  double least_op_share = 0.02;  // of the typical op
};

// How long the ops of one kind of one stage last on a worker of healthy speed.
struct StageTimes {
  Duration profiled{};           // as profiled; zero = not known, then use what was measured
  Duration least{};              // lowest median of `latest` that was measured; zero = none yet
  std::vector<Duration> latest;  // of the last steps: the time of the median holder
};

// The state of detection. A value; its size is linear in the links that carry messages.
struct MonitorState {
  Cluster healthy;  // when nothing is slow
  MonitorOptions options;
  std::map<std::pair<WorkerId, WorkerId>, LinkWatch> links;  // first < second
  std::map<WorkerId, SpeedWatch> workers;
  std::map<WorkerId, LoadWatch> loads;      // why they are slow
  std::map<WorkerId, Duration> run_delays;  // per step, the newest that a kernel has told
  std::map<std::pair<StageId, OpKind>, StageTimes> stages;
  Duration typical_op{};               // median over stages and kinds, of the newest step
  Cluster cluster;                     // the one that the last call returned to plan with
  std::set<WorkerId> told_unmeasured;  // a verdict has said what the kernels of these do not tell
};

// What one call has found.
struct Detection {
  MonitorState state;
  Cluster cluster;                // to plan with: healthy, with the slow links and slow workers
  bool changed = false;           // `cluster` differs from that of the call before
  std::vector<Verdict> verdicts;  // by link, then worker
};

// The state before the first step. `healthy`: the cluster when nothing is slow, with its workers'
// speeds as profiled.
MonitorState make_monitor(Cluster healthy, const MonitorOptions& options = {});

// Sets how long an op of this kind and stage lasts on a worker of speed 1. Workers are then
// compared with this time instead of with measured times.
void set_profiled(MonitorState& state, StageId stage, OpKind kind, Duration time);

// Judges links and workers by the samples that have come since the last call; `step` is the newest
// committed step. Samples may be of other steps, in any order, and some workers' may be missing: a
// link is judged by the steps that both ends have reported. From each end of a link, at most four
// samples, of the newest steps, wait for those of the other end. Samples that name workers outside
// of the cluster are ignored. Each worker whose kernel does not tell all that causes are found by
// has one verdict that says so (Unmeasured); which workers share a host is not known here.
//
// Cost: O(n log n) for n samples, plus one look at each link and worker
Detection detect(MonitorState state, std::span<const StepSample> samples, int64_t step);

// Forgets the links and the speed of a worker that has left. If it comes back it begins anew.
MonitorState forget(MonitorState state, WorkerId worker);

}  // namespace tenuto
