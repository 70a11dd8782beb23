// What a part of the coordinator's logic returns: the edits of the state, and what is to be said,
// written and sent because of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unit.h"
#include "control/edit.h"
#include "control/state.h"
#include "monitor/verdict.h"
#include "protocol/report.h"
#include "remedy/choose_remedy.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// A step that is now final, as the metrics report it.
struct StepRecord {
  int64_t step = 0, epoch = 0;
  int32_t losses = 0;     // how many micro-batches have their loss reported
  bool complete = false;  // every micro-batch has its loss reported
  bool validated = true;  // false: not all losses of the held-out pass after it are reported
  double loss = 0;        // mean over micro-batches, folded in their order
  std::optional<double> validation_loss;
  std::optional<double> validation_accuracy;  // none: no validation, or the targets are no classes
  std::shared_ptr<const Plan> plan;           // the plan that the step ran under
  double gradient_norm = 0, learning_rate = 0;
  Duration duration{};  // of the slowest worker
  // Paced devices: from the first op on any worker to the last weight gradient, on their clock.
  std::optional<Duration> iteration;
  Duration iteration_end{};  // the moment of that last weight gradient
  Duration lag{};            // paced devices: how late ops end (Lag::p99), worst worker
  bool lag_valid = true;
  // Accelerators: time of the copies between device and host, each the longest of any worker; and
  // messages by path, summed over all workers.
  Duration to_host{}, to_device{};
  int64_t staged_messages = 0, direct_messages = 0;
  std::vector<std::string> events;  // per worker, of a traced step
  bool only_evaluated = false;      // the step is one of an earlier run, and has no losses here
  // True when `loss` is known.
  bool has_loss() const { return complete && !only_evaluated; }
};

// A connection between two workers broke and has been made again.
struct Repaired {
  int64_t step = 0;
  std::string sentence;
};

// All shards of a checkpoint are durable: its manifest may be written.
struct CheckpointRecord {
  int64_t version = 0;
  std::vector<SavedShard> shards;  // by stage
};

// Asks for a better plan for the cluster as it is now; it is computed while steps go on.
struct PlanRequest {
  int64_t request = 0;
  std::shared_ptr<const Plan> plan;  // the present one
  Model model;                       // as measured
  Cluster cluster;
  RemedyTerms terms = {};  // which changes may be taken
  bool update = false;     // asks only whether the same plan is faster with steps ahead of the norm
};

// The default kind of a reason.
inline constexpr const char* kDecisionEvent = "decision";

// What one part of the logic makes of a state and an input. A Decision holds what all parts make of
// them.
struct DecisionPart {
  EditList edits;      // of the state
  std::string reason;  // sentences; empty = nothing was decided
  // Kind of the reason: also "death", "recovery", "join", ...
  const char* event = kDecisionEvent;
  std::vector<WorkerId> expelled;  // no longer in the run, though their processes may live
  std::vector<WorkerId> cut_off;   // those of `expelled` that may return when a link works again
  std::vector<StepRecord> steps;   // newly committed
  std::optional<CheckpointRecord> checkpoint;
  std::vector<Verdict> verdicts;  // what detection has found
  std::vector<Repaired> repaired;
  std::optional<PlanRequest> wanted;
  // Of a decision about the plan: what was compared, and for how many steps the cluster is expected
  // to stay as it is.
  std::vector<Alternative> alternatives;
  double expected_steps = 0;

  // Adds the sentence to the reason; an empty sentence adds nothing.
  void say(const std::string& sentence);
  // Adds a sentence of the kind `of` to the reason.
  void say(const char* of, const std::string& sentence);
  // Appends all of `later`.
  void follow(DecisionPart later);
};

}  // namespace tenuto
