// A trial of a sync mode: a small network is trained on the virtual clock until it reaches an
// accuracy, with the mode fixed or chosen on the way. It shows what look-ahead and model of
// accuracy are worth; all gradients are computed from the parameters that their replica had read.
//
// The scenario says which optimizer trains. In a mode with local steps each replica has an
// optimizer of its own, which takes every local step as one of full mass; their mean change is then
// the gradient of the mode's outer step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "sync/chooser_model.h"
#include "sync/simulator.h"
#include "sync/trial_method.h"

namespace tenuto {

// Who says which mode is in force.
enum class SyncPolicy : uint8_t {
  Fixed,      // TrialSetting::mode all the time
  LookAhead,  // look_ahead_chooser, every second as all choosers (sync/chooser.h)
  Published,  // published_chooser
  Learned,    // learned_chooser with TrialSetting::chooser
  Balanced,   // mode_by_speed whenever an iteration has ended, beginning with equal shares
  Switched,   // mode_by_switch every second, with TrialSetting::synchronous_share
};

// The most local steps of a trial. All gradients of an offer are computed before the clock goes on,
// so that the limit of a trial cannot end them.
constexpr int32_t kMostTrialSteps = 1000;
// The most replicas of a trial: each has samples of its own.
constexpr int32_t kMostTrialReplicas = 16'000;

// One trial. The defaults are those of the reference experiment.
struct TrialSetting {
  SyncScenario scenario;
  SyncPolicy policy = SyncPolicy::Fixed;
  SyncMode mode;               // Fixed; formed from the scenario's mean times if it is not formed
  uint64_t seed = 0;           // of data, parameters and times
  int64_t batch = 16;          // samples of a replica's iteration
  std::optional<double> rate;  // of an update of full mass; none = the optimizer's usual_rate
  double clip = 0;       // the longest mean gradient of an update or a local step; 0 = no clipping
  double target = 0.94;  // test accuracy, on two evaluations in succession
  Duration evaluation = from_milliseconds(250);  // between two of them
  Duration limit = from_milliseconds(90'000);    // the trial ends without reaching the target
  double kappa = 0.3;                            // of all choosers; more while the loss rises
  bool learns_kappa = false;                     // `kappa` is where it begins (LookAhead)
  std::optional<ChooserModel> chooser;           // Learned
  bool grace = true;  // LookAhead: it may choose modes with a window of grace
  // Switched: gradients that the run is expected to take, and the part of them, from 0 to 1, that
  // shall be in synchronous updates.
  double planned = 1000, synchronous_share = 0;
  MethodKind method = MethodKind::Plain;  // others: only with a fixed mode, without local steps
};

// What came of it.
struct TrialResult {
  std::optional<Duration> reached;  // when the target was reached
  double gradients = 0;             // applied until the end, of one replica's batch each
  double accuracy = 0;              // at the last evaluation
  int64_t changes = 0;              // of the mode
  int64_t rises = 0;                // of the loss: the rate is too high (sync/loss_watch.h)
  double kappa = 0;                 // at the end: as it was given, or learned
  SyncMeasure measure;
};

// The mean iterations of the scenario's replicas over its phases and many draws.
std::vector<IterationTime> mean_times(const SyncScenario& scenario, uint64_t seed);

// Errors: those of form and UpdateRule::make; Invalid/Call  a batch, a rate, a number of replicas
//         or of local steps, a share or a plan out of range; a method that does not fit the mode;
//         Learned without a chooser, or with one for another number of replicas
Result<TrialResult> run_trial(const TrialSetting& setting);

}  // namespace tenuto
