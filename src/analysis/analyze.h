// Who slowed a recorded run, and by how much: its steps are replayed with other durations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/recording.h"
#include "analysis/step_graph.h"
#include "base/result.h"

namespace tenuto::analysis {

// A part of a run: a worker, a stage, a kind of op, a link.
struct PartShare {
  std::string name;
  double slowdown = 1;   // of a step in which only this part keeps its durations: 1.2 = 20 % longer
                         // than the balanced step; below 1 if the part is faster than the mean
  double recovered = 0;  // share of the lost time that would be saved if only this part were
                         // balanced; may be below 0
};

// A part that accounts for much of the lost time.
struct Suspect {
  // What the part is.
  enum class Kind : uint8_t { Worker, Stage, Link, Operation };
  Kind kind = Kind::Worker;
  int32_t index = 0;  // in Analysis::by_worker, by_stage, by_link or by_operation
};

// The durations of a run, as recorded and balanced. Both are indexed as Recording::ops.
struct Durations {
  std::vector<double> recorded;  // own durations in ms, see StepGraph::measure
  std::vector<double> balanced;  // of compute ops and other work the mean of their kind, of
                                 // messages and collectives the median
  std::vector<LinkOf> links;     // -1 for ops that are no message
};

// What was found. Times are means over the steps.
struct Analysis {
  double slowdown = 1;     // replayed / balanced
  double recorded_ms = 0;  // a step, from its first start to its last end
  double replayed_ms = 0;  // a step of the recorded durations, without pauses between ops
  double balanced_ms = 0;  // a step in which every op of a kind lasts equally long
  std::vector<PartShare> by_operation;  // by label, the largest slowdown first
  std::vector<PartShare> by_worker;     // by worker
  std::vector<PartShare> by_stage;      // by place in a pipeline
  std::vector<PartShare> by_pipeline;
  std::vector<PartShare> by_link;  // in the order of `links`
  std::vector<LinkOf> links;       // the two workers of each
  std::vector<Suspect> suspects;   // the one with the largest slowdown first
  double recovered = 0;            // share of the lost time that all suspects account for together
  std::string verdict;             // one or two sentences
};

// The durations of all ops of a recording and their balanced values.
//
// Shapes: graphs as graphs_of(recording)
Durations durations_of(const Recording& recording, const std::vector<StepGraph>& graphs);

// Replays all steps with the durations of each part alone, and of all parts but it.
//
// Requires: the recording has a step
// Shapes:   graphs as graphs_of(recording), durations as durations_of(...)
// Source:   "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025
// Cost:     two replays of all steps for each part
Analysis analyze(const Recording& recording, const std::vector<StepGraph>& graphs,
                 const Durations& durations);

// The part that a suspect names: its share, and what it is called in a sentence.
const PartShare& share_of(const Analysis& analysis, const Suspect& suspect);

// "worker", "stage", "link" or "operation".
const char* kind_name(Suspect::Kind kind);

}  // namespace tenuto::analysis
