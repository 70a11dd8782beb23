// The steps of a run with server shards, counted by mass.
//
// Idea:  updates there have any mass, and a replica's iteration belongs to no step. So a step is
//        done whenever the mass in committed updates reaches the next multiple of a step's mass.
//        Its loss is the mean over as many micro-batches as it has, in the order in which replicas
//        have ended their iterations. In synchronous training these are its own micro-batches.
//        What replicas have measured comes over other connections than what is committed, so a
//        step is reported a short while after its commit. Replicas validate when they have got
//        parameters of the step or of a later one, each in its own time, so a step with a
//        validation is reported when all of them have done that.
// Right: tests/run/served_steps_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/unit.h"
#include "ir/mass.h"
#include "parameter_server/host_message.h"
#include "sync/loss_watch.h"
#include "world/job.h"

namespace tenuto {

// A step that is done, as the metrics report it.
struct ServedStep {
  int64_t step = 0;
  int64_t epoch = 0;                           // of the members
  std::optional<double> loss;                  // none: none of its iterations was reported
  std::optional<double> validation_loss = {};  // none: no validation is due, or nobody reported one
  std::optional<double> validation_accuracy = {};  // the same; none also where nobody knows it
  Duration duration{};  // since the step before; steps that are done together share it
  std::string mode;
  double age = 0;  // in gradients: the mean of the works decided since the step before
  Mass applied;    // in committed updates of the whole run
  Mass dropped;    // of offers that were dropped as stale
};

// What processes say in, steps out. It has no clock.
class ServedSteps {
 public:
  // How long each step waits for what replicas have measured: always, and at most, when an
  // iteration that must be in it was not reported.
  static constexpr Duration kPause = std::chrono::milliseconds(100);
  static constexpr Duration kWait = std::chrono::seconds(1);

  // `first_mass`: the mass with which the run begins; it has done first_mass / full_mass() steps.
  // `job` must outlive it.
  ServedSteps(const Job& job, Mass first_mass);

  // How long the line of a step waits at most for replicas that are to validate. In a run that does
  // nothing for so long something is wrong.
  static Duration validation_limit(const Job& job);

  // The run begins at this moment.
  void begin(Duration now) { committed_at_ = now; }
  // Steps that are done from now on are reported with this.
  void set_mode(const std::string& mode) { mode_ = mode; }
  // Steps that are done from now on are reported with this.
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  // The replicas that are in the run from now on. No validation of another one is waited for.
  void set_replicas(std::set<ReplicaId> replicas) { present_ = std::move(replicas); }
  // An iteration has ended.
  void add(const servers::MeasuredIteration& iteration);
  // Updates were committed.
  void add(const servers::CommittedReport& report, Duration now);
  // A replica has validated.
  void add(const servers::ValidatedReport& report);
  // The steps that can be reported by now, each once. Steps with the number `limit` or a higher one
  // are kept for a later call.
  std::vector<ServedStep> take(Duration now, int64_t limit);
  // The rises of the loss since the last call (sync/loss_watch.h), each as a sentence.
  std::vector<std::string> take_rises() { return std::exchange(rises_, {}); }
  // The changes of what age is thought to cost since the last call (has_kappa_changed of
  // sync/kappa_estimate.h), each as a sentence.
  std::vector<std::string> take_kappas() { return std::exchange(kappas_, {}); }
  // A step that is done waits for a validation, and may do so at this moment.
  bool waits_for_validation(Duration now) const;

  // Steps of the job whose updates are committed; some of them may not have been taken yet. The
  // last update may have the mass of more steps than the job has; these can be taken as well.
  int64_t done() const { return std::min(job_.steps, committed()); }
  // The mode that is in force.
  const std::string& mode() const { return mode_; }
  // The mass in committed updates.
  Mass applied() const { return applied_; }
  // The age of the works that were decided last, in gradients.
  double age() const { return age_; }

 private:
  int64_t committed() const { return applied_.micros / job_.full_mass(); }
  struct Measured {
    int64_t mass = 0;
    std::optional<double> loss;
  };
  // The iterations of one replica.
  struct Replica {
    std::deque<Measured> iterations;  // that are in no step yet
    int64_t used = 0;                 // the mass of those before
  };
  // What replicas have reported of one validation.
  struct Validation {
    double loss_sum = 0, accuracy_sum = 0;
    int64_t micros = 0;
    bool has_accuracy = true;  // of all of them
  };
  struct Waiting {
    ServedStep step;
    Duration since{};
    int64_t mass = 0;  // of all iterations that are in this step and in those before
  };
  bool waits_for_validation(const Waiting& waiting, Duration now) const;
  void use_validations(Waiting& waiting);
  Replica* next_replica();
  void use_iterations(Waiting& waiting);

  const Job& job_;
  std::string mode_;
  int64_t epoch_ = 1;
  Mass applied_, dropped_;  // as committed
  std::optional<Mass> first_dropped_;
  std::map<ReplicaId, Replica> replicas_;
  std::set<ReplicaId> present_;
  std::map<ReplicaId, int64_t> validated_;  // the newest validation of each, as a number of steps
  std::map<int64_t, Validation> validations_;  // by number of steps: of steps not taken yet
  int64_t measured_ = 0, used_ = 0;            // mass of iterations, with that of the run's begin
  std::deque<Waiting> waiting_;                // steps that are not taken yet
  Duration committed_at_{};                    // the newest step that is done
  double ages_ = 0;                            // over the works since then
  int64_t works_ = 0;
  double age_ = 0;
  LossWatch watch_;
  std::vector<std::string> rises_;
  double kappa_;  // that was told last; at first the job's
  std::vector<std::string> kappas_;
};

}  // namespace tenuto
