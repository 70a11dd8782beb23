// One step of a recording as a graph: what each op waits for. With other durations of its ops it
// says how long the step would have taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "analysis/recording.h"
#include "base/result.h"

namespace tenuto::analysis {

// The two workers of a message, the lower first; -1 for ops that are no message.
using LinkOf = std::pair<int32_t, int32_t>;

// The ops of one step in an order in which each comes after all that it waits for:
// - compute ops of a worker one after the other as recorded, and its collectives one after the
//   other;
// - a forward for the message with the activation, a backward for the one with the gradient, and
//   these for the op that makes the value. Messages do not wait for each other: what one waited for
//   its link is a part of its recorded duration;
// - a collective for all members of its group, and for the compute ops whose results it sums; the
//   first compute op of a stage for the parameters that are gathered before it;
// - other work on the compute lane for the collectives that began before it.
class StepGraph {
 public:
  // The graph of recording.ops[first, end), which are of one step.
  //
  // Errors: Invalid/Call with step, worker, op: an op whose value nobody made (is the trace of a
  //         worker missing?), ops that wait for each other
  static Result<StepGraph> make(const Recording& recording, size_t first, size_t end);

  // Writes each op's own duration in milliseconds to `durations`, and each message's link to
  // `links`, both indexed as recording.ops. What an op waited for others is no part of it: a
  // message counts from the later start of its two ends (see starts_when_sent), a collective from
  // the start of its last member.
  void measure(const Recording& recording, std::vector<double>& durations,
               std::vector<LinkOf>& links) const;

  // Milliseconds from the begin to the last end, with `durations` indexed as recording.ops.
  double length(const std::vector<double>& durations) const;

 private:
  friend class GraphBuilder;
  struct Node {
    int32_t op = -1, other = -1;  // other: the second end of a message; -1 = none
    int32_t first_need = 0, end_need = 0;
  };
  std::vector<Node> nodes_;
  std::vector<int32_t> needs_;  // places in nodes_
  std::vector<std::vector<int32_t>> groups_;
};

// The graphs of all steps. Errors: those of StepGraph::make
Result<std::vector<StepGraph>> graphs_of(const Recording& recording);

}  // namespace tenuto::analysis
