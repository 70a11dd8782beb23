// The steps of a run with server shards, counted by mass.
//
// Idea:  updates there have any mass, and a replica's iteration belongs to no step. So a step is
//        done whenever the mass in committed updates reaches the next multiple of a step's mass.
//        Its loss is the mean over the iterations that have ended since the step before.
// Right: tests/run/served_steps_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unit.h"
#include "ir/mass.h"
#include "parameter_server/host_message.h"
#include "world/job.h"

namespace tenuto {

// A step that is done, as the metrics report it.
struct ServedStep {
  int64_t step = 0;
  int64_t epoch = 0;           // of the members
  std::optional<double> loss;  // none: no iteration has ended since the step before
  Duration duration{};         // since the step before; steps that are done together share it
  std::string mode;
  double age = 0;  // in gradients: the mean of the works decided since the step before
  Mass applied;    // in committed updates of the whole run
  Mass dropped;    // of offers that were dropped as stale
};

// What processes say in, steps out. It has no clock.
//
// What a replica has measured and what the decider has committed come over two connections. So a
// step waits a short while for the iterations that are in it and have not been reported yet.
class ServedSteps {
 public:
  // How long a step waits for them.
  static constexpr Duration kWait = std::chrono::seconds(1);

  // `first_mass`: the mass with which the run begins; it has done first_mass / full_mass() steps.
  // `job` must outlive it.
  ServedSteps(const Job& job, Mass first_mass);

  // The run begins at this moment.
  void begin(Duration now) { taken_at_ = committed_at_ = now; }

  // From now on steps are reported with this.
  void set_mode(const std::string& mode) { mode_ = mode; }
  // From now on steps are reported with this.
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  // An iteration has ended.
  void add(const servers::MeasuredIteration& iteration);
  // Updates were committed.
  void add(const servers::CommittedReport& report, Duration now);
  // The steps that are complete by now, each once.
  std::vector<ServedStep> take(Duration now);

  // Steps whose updates are committed; some of them may not have been taken yet.
  int64_t done() const;
  // The mode of the newest step.
  const std::string& mode() const { return mode_; }
  // The mass in committed updates.
  Mass applied() const { return applied_; }
  // The age of the works that were decided last, in gradients.
  double age() const { return age_; }

 private:
  const Job& job_;
  std::string mode_;
  int64_t epoch_ = 1;
  int64_t taken_ = 0;                  // steps
  Mass applied_, dropped_;             // as committed
  Mass measured_;                      // as measured, with the mass of the run's begin
  Duration taken_at_{};                // the moment of the newest step that was taken
  Duration committed_at_{};            // the newest report
  std::optional<Duration> complete_;   // since when a step waits to be taken
  double losses_ = 0, loss_mass_ = 0;  // since the newest step that was taken
  double ages_ = 0;                    // the same, over the works
  int64_t works_ = 0;
  double age_ = 0;
};

}  // namespace tenuto
