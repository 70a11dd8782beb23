// What each remedy would have earned: the steps of a run replayed as they would be with it.
#pragma once

#include <string>
#include <vector>

#include "analysis/analyze.h"
#include "analysis/recording.h"
#include "analysis/step_graph.h"

namespace tenuto::analysis {

// A change of the run, and a step with it.
struct Remedy {
  std::string name;    // "shares", "warm-up", "layers", "drop", "replace"
  std::string what;    // a sentence without its full stop
  double step_ms = 0;  // with it
  double speedup = 1;  // a step as it is / a step with it
};

// The remedies that can be computed, the best first, and a sentence for each that cannot.
struct Remedies {
  std::vector<Remedy> priced;
  std::vector<std::string> notes;
};

// Prices the remedies that fit the suspects:
// - replace: the suspects at the balanced durations (all recorded steps are replayed);
// - shares: pipelines get micro-batches by their speed, for the same number in all;
// - drop: the pipeline of the slowest worker does nothing, the others run its micro-batches;
// - layers: each stage's compute ops become longer or shorter so that all stages take equally long,
//   with the assumption that stages have equal numbers of layers, which can be cut anywhere;
// - warm-up: if a link is slow, the stages before it run 1, 2 or 4 more forwards ahead.
// All but the first replay one step whose ops last as long as their worker's mean, in the recorded
// order (a warm-up of forwards, then a backward and a forward in turn). If workers ran
// another order or several stages, only replace and layers are priced.
//
// Shapes: graphs, durations, found as for analyze()
Remedies price_remedies(const Recording& recording, const std::vector<StepGraph>& graphs,
                        const Durations& durations, const Analysis& found);

}  // namespace tenuto::analysis
