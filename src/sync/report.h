// What `tenuto simulate --sync MODE` answers: figures of a mode for replicas with given times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/unit.h"
#include "sync/choose.h"

namespace tenuto {

// The flags as given.
struct SyncQuestion {
  std::string mode;  // as ir/sync_mode.h reads it, or "auto"
  int32_t replicas = 8;
  // Compute times of all replicas, or one per replica; empty = 100. Transfers take no time, so
  // rebalanced shares scale all of it: add what links take to the times for any other mode.
  std::vector<double> iteration_ms;
  double apply_ms = 0;             // of one update
  double jitter_percent = 0;       // deviation of an iteration
  double seconds = 100;            // simulated
  double kappa = 0.3;              // what age costs (sync/progress.h)
  double target_gradients = 1000;  // gradients of age zero that reach the target accuracy
  uint64_t seed = 0;
  // Of each replica. Above 0: trees on the way to one server shard are priced, too
  // (sync/aggregation_tree.h).
  double gradient_mb = 0;
  std::vector<double> port_mb_per_second;  // one, or one per replica; empty = 1000
  double shard_mb_per_second = 0;          // of the shard's port; 0 = as that of the first replica
};

// The gradients' way to the shard, from the moment when all replicas have them.
struct TreeReport {
  std::vector<int32_t> parents;  // of the best tree (AggregationTree::parents)
  Duration time{};               // of this tree
  Duration star{};               // if each replica sends to the shard
};

// The figures of a mode.
struct SyncReport {
  SyncMode mode;  // formed
  int32_t replicas = 0;
  SyncMeasure measure;
  double target_gradients = 0, target_seconds = 0;  // target_seconds: 0 = never
  std::string reason;                               // "auto": why this mode
  std::vector<SyncAlternative> alternatives;        // "auto": best first
  std::optional<TreeReport> tree;                   // none: gradient_mb is 0
};

// Simulates.
//
// Errors: those of sync_mode_from_text, check and UpdateRule::make; Invalid/Call  times of another
//         number of replicas, or not above 0; more iterations in the time than can be simulated; a
//         tree for a mode that does not wait for all replicas; those of make_tree
Result<SyncReport> answer(const SyncQuestion& question);

// The report as people's text, one figure a line.
std::string to_text(const SyncReport& report);
// The report as JSON: gradients_per_second, updates_per_second, mean_age, dropped_fraction, and
// more (docs/sync-modes.md).
Json to_json(const SyncReport& report);

}  // namespace tenuto
