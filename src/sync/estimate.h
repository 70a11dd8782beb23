// What a sync mode makes by a closed form for each kind of mode: cheaper than a simulation and less
// exact. The learned chooser corrects it (sync/chooser_model.h).
//
// The last iterations of the replicas stand side by side as rounds. A round lasts until those have
// ended their iteration for whom the mode waits. What a late replica adds, follows from how many
// rounds its iteration takes. Local steps are not counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sync/choose.h"

namespace tenuto {

// The estimate for one mode.
struct SyncEstimate {
  double gradients = 0, updates = 0;  // per second, as far as the server can apply them
  double age = 0;                     // mean, in gradients
  double demand = 0;  // time of applying that is asked for per time; above 1, the server is behind
};

// The last iterations of all replicas as rounds of one iteration of each.
class RecentRounds {
 public:
  // Requires: a sample of each replica
  explicit RecentRounds(const ChooseInput& input);

  // The estimate for a formed mode that these replicas can run.
  SyncEstimate estimate(const SyncMode& mode) const;

  // The number of replicas.
  size_t replicas() const { return means_.size(); }
  // Seconds of each replica's mean iteration.
  const std::vector<double>& means() const { return means_; }
  // Seconds of the slowest iteration of a round, on average.
  double slowest() const;
  // The share of all iterations that take more than kStraggler times the fastest replica's mean.
  double late_share() const;

 private:
  struct Seconds {
    double compute = 0, transfer = 0;
  };
  using Round = std::vector<Seconds>;  // one iteration of each replica
  // What a round makes. A gradient that is late by some rounds counts as its part of one.
  struct Outcome {
    double length = 0, gradients = 0;
    double delay = 0;  // sum over late gradients of the rounds that they are late
  };

  Outcome outcome(const SyncMode& mode, const Round& round) const;
  void add_late(Outcome& to, double time, double applied) const;
  SyncEstimate by_rounds(const SyncMode& mode) const;
  SyncEstimate by_groups(const std::vector<std::vector<size_t>>& groups) const;
  SyncEstimate by_count(int32_t count) const;

  double apply_ = 0;   // seconds
  double micros_ = 1;  // of a replica's iteration
  std::vector<Round> rounds_;
  std::vector<double> means_;
};

}  // namespace tenuto
