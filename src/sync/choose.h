// Which mode gets there soonest: each candidate is simulated by the update rule itself, on the
// iterations that were measured last, and scored by its gradients per second times what a gradient
// of its age is worth (sync/progress.h).
//
// The candidates have the same luck: the same measured iteration stands in for the same iteration
// of a replica in all of them, from one table of draws that is filled once for a decision. A
// formula is not used, because the published one is wrong by up to a factor of five where one
// replica is slow (sync/heuristic.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sync/relay.h"
#include "sync/simulator.h"

namespace tenuto {

// A mode is left only for one that is better by this factor.
constexpr double kHysteresis = 1.04;
// Windows of grace that differ by less than this share of the window in force are one candidate.
constexpr double kSameWindow = 0.01;
// Measured iterations of a replica that are kept; older ones say nothing about now.
constexpr size_t kKeptSamples = 24;

// The last iterations of one replica, without any waiting: the prediction of its next ones.
class TimeSamples {
 public:
  // An iteration has ended; `share` is its mass as a part of a whole iteration's.
  void add(const IterationTime& time, double share = 1);
  // The samples, oldest first.
  const std::vector<IterationTime>& all() const { return samples_; }
  // Their mean; zero without samples.
  IterationTime mean() const;

 private:
  std::vector<IterationTime> samples_;
};

// What is taken for the iteration of a replica that has not been heard of since it began: half as
// long again as it has lasted so far, of which it computes for `compute`.
IterationTime guess_from(Duration lasted, Duration compute);

// What a choice is made from.
struct ChooseInput {
  std::vector<std::vector<IterationTime>> samples;  // of each replica, at least one
  Duration apply{};                                 // of one update
  int64_t micros = 1;                               // of a replica's iteration
  double kappa = 0.3;
  SyncMode current;  // formed
  uint64_t seed = 0;
  double noise = 0;   // the gradient noise scale in micro-batches; 0 = not known
  bool grace = true;  // candidates with a window of grace, too
  // What the host of each replica can do for a ring; none = anything.
  std::vector<RelayLimit> relays = {};
};

// A candidate and what the simulation says of it.
struct SyncAlternative {
  SyncMode mode;
  SyncMeasure measure;
  double score = 0;  // gradients of age zero per second
};

// The mode to run from now on.
struct SyncChoice {
  SyncMode mode;
  std::string reason;                         // one sentence
  std::vector<SyncAlternative> alternatives;  // those that were compared, best first
};

// From this kappa on a run begins synchronous. Partial updates cost most while a model is young: a
// dozen of them at its begin cost a GPT that is trained with AdamW 0.03 nats at the end.
inline constexpr double kDearAge = 1;

// The mode with which a run begins: half of the replicas with grace. It is as fast as synchronous
// when nobody straggles, and one straggler cannot hold it up. Synchronous for one replica, and
// where age costs much.
SyncMode first_mode(std::span<const IterationTime> times, double kappa);

// The candidates for replicas with these mean times; all are formed. Rings are within the limits of
// `relays`, if there are any.
std::vector<SyncMode> sync_candidates(std::span<const IterationTime> times, int64_t micros,
                                      std::span<const RelayLimit> relays = {});

// The mean iteration of each replica, of its last kKeptSamples ones.
std::vector<IterationTime> means_of(const std::vector<std::vector<IterationTime>>& samples);

// The candidates for these replicas, and the current mode: in the place of the candidate that
// differs from it by less than kSameWindow of its window, or after all if there is none.
//
// Errors: Invalid/Call  no replica; one without samples; a kappa below 0
Result<std::vector<SyncMode>> modes_to_compare(const ChooseInput& input);

// Gradients of age zero per second: what a mode with this measure makes.
double progress_of(const SyncMeasure& measure, int32_t replicas, double kappa);

// Sorts the alternatives by score, and keeps the current mode unless another is better by
// kHysteresis. A ring that is against the limits of `relays`, as the one in force may be by now,
// counts for nothing.
//
// Requires: the current mode among the alternatives
SyncChoice choose_best(std::vector<SyncAlternative> alternatives, const SyncMode& current,
                       std::span<const RelayLimit> relays = {});

// Simulates the current mode and all candidates, and keeps the current one unless another is better
// by kHysteresis.
//
// Errors: those of modes_to_compare; Invalid/Call  a current mode that the rule does not accept
// Cost:   candidates x 180 W offers, and 256 W draws
Result<SyncChoice> choose_by_look_ahead(const ChooseInput& input);

}  // namespace tenuto
