// Detection: what workers say of their steps, learned into the cluster as it is now.
//
// `learn` is called once for every committed step with the samples that have come since the last
// call, and returns what it knows now, the cluster to plan with and what it has found. It is a pure
// function: no clock, no I/O, and the order of the samples does not matter.
//
//   MonitorState state = make_monitor(nominal_cluster);
//   for each committed step:
//     Learned learned = learn(std::move(state), samples, step);
//     state = std::move(learned.state);
//     tell learned.verdicts; if (learned.changed) weigh a plan for learned.cluster
//
// A slow stage is told from a slow link by what is looked at: a link by the time from a message's
// stamp to its arrival, which does not contain computing; a worker by how long its ops last, which
// does not contain messages.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/id.h"
#include "base/unit.h"
#include "ir/op.h"
#include "monitor/link.h"
#include "monitor/sample.h"
#include "monitor/speed.h"
#include "monitor/verdict.h"
#include "world/cluster.h"

namespace tenuto {

// How the cluster is judged.
struct MonitorOptions {
  LinkOptions link;
  SpeedOptions speed;
  // A round trip that has gained less than both says nothing: it would not change a plan.
  Duration least_gain = std::chrono::microseconds(50);
  double least_op_share = 0.02;  // of the typical op
};

// How long the ops of one kind of one stage last on a worker of nominal speed.
struct StageTimes {
  Duration nominal{};            // as profiled; zero = not known, then what was seen counts
  Duration least{};              // lowest median over some steps that was seen; zero = none yet
  std::vector<Duration> latest;  // of the last steps, the middle holder's
};

// All that detection knows. A value, linear in the links that carry messages.
struct MonitorState {
  Cluster nominal;  // when all are well
  MonitorOptions options;
  std::map<std::pair<WorkerId, WorkerId>, LinkWatch> links;  // first < second
  std::map<WorkerId, SpeedWatch> workers;
  std::map<std::pair<StageId, OpKind>, StageTimes> stages;
  Duration typical_op{};  // median over stages and kinds, of the newest step
  Cluster cluster;        // as planned with after the last call
};

// What one call has learned.
struct Learned {
  MonitorState state;
  Cluster cluster;                // to plan with: nominal, with slow links and slow workers in it
  bool changed = false;           // it differs from the one of the call before
  std::vector<Verdict> verdicts;  // by link, then worker
};

// The state before the first step. `nominal`: the cluster when all are well, its workers' speeds
// as profiled.
MonitorState make_monitor(Cluster nominal, const MonitorOptions& options = {});

// Says how long an op of this kind and stage lasts on a worker of speed 1: workers are then held
// against it, and not against what was seen.
void set_nominal(MonitorState& state, StageId stage, OpKind kind, Duration time);

// Learns the samples that have come since the last call; `step` is the newest committed step. They
// may be of other steps, of any order, and some workers' may be missing: a link is judged by the
// steps of which both ends have told, within four of each other. Samples that name workers outside
// of the cluster are passed over.
//
// Cost: O(n log n) for n samples, plus one look at each link and worker
Learned learn(MonitorState state, std::span<const StepSample> samples, int64_t step);

// Forgets a worker that has left: its links, and its speed. What comes back begins anew.
MonitorState forget(MonitorState state, WorkerId worker);

}  // namespace tenuto
