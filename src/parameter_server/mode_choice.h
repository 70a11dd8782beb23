// Which sync mode shall be in force: chosen from measured iterations, or wanted by a person.
//
// It lives where the decider lives, and hears of every iteration. Once a second it is asked for a
// mode. A wanted mode takes the same way as a chosen one, but at once, and stays until the wish is
// withdrawn.
//
// The choice of a job that shares its host (ModeChoiceSettings::asks) has a gate. While it is
// closed the chooser cannot leave the synchronous mode: what it would take instead is asked for.
// When the gate closes, the mode goes back to synchronous. A wanted mode passes it: a person knows
// what the other jobs are worth.
//
// A ring that is made here has no member whose host is overloaded, and no member that passes on the
// gradients of more children than its port takes (sync/relay.h). If no ring of the wanted size is
// so, it is made without these limits, and the reason says what is against it.
//
// A choice that learns what age costs (ModeChoiceSettings::learns_kappa) hears of what is committed
// as well. What it has learned lives and ends with this process, as what it knows of times does.
//
// Where replicas keep the parameters, a change into a ring or out of one hands ranges over, which
// takes their links. So the chooser's change waits until it pays: until what was missed without it,
// with what it gains until the next decision, exceeds the time of the handover. Where the times
// change from decision to decision nothing adds up, and the mode stays.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "parameter_server/host_message.h"
#include "sync/chooser.h"
#include "sync/kappa_estimate.h"
#include "sync/loss_watch.h"
#include "sync/progress.h"
#include "sync/relay.h"

namespace tenuto::servers {

// What a choice of modes needs to know of the run.
struct ModeChoiceSettings {
  int32_t replicas = 1;
  Duration apply{};            // of one update, until it is measured
  Duration compute{};          // of an iteration of a replica that has not been heard of
  int64_t micros = 1;          // of a replica's iteration
  double kappa = kPlainKappa;  // what age costs; more while the loss rises (sync/loss_watch.h)
  uint64_t seed = 0;
  bool asks = false;          // before the chooser leaves the synchronous mode
  bool learns_kappa = false;  // `kappa` is where it begins; only with a chooser
  // In a ring (DeciderStart). Otherwise children cost their parents nothing, and it does not matter
  // how many there are.
  bool children_send_to_parents = false;
  // Numbers that the keepers of a parameter each have of it, where replicas keep the parameters; 0
  // = servers do, and no change of the mode moves them.
  double kept_numbers = 0;
};

// The best of what this mode was chosen from, at most kMostAlternatives, best first; none of a mode
// that a person wants.
std::vector<ModeAlternative> best_alternatives(const SyncChoice& choice);

// The choice. It has no clock and no thread.
class ModeChoice {
 public:
  // Without a chooser only a wish changes the mode.
  ModeChoice(const ModeChoiceSettings& settings, std::unique_ptr<Chooser> chooser);

  // A replica has ended an iteration.
  //
  // Errors: Invalid/Call  a replica that the run does not have; a time below 0; a share that is not
  //         above 0
  Status add(const MeasuredIteration& iteration);

  // The decider has committed more.
  void add(const CommittedReport& report);
  // What it has learned that age costs; none = it learns nothing.
  std::optional<double> learned_kappa() const;

  // An update lasts so long, as it was measured last.
  void set_apply(Duration apply) { settings_.apply = apply; }

  // From now on the run shall have this mode. One that is not formed yet waits until each replica
  // has ended an iteration, but not for long. None = the chooser decides again, and without one the
  // mode stays. Choosers know no local steps, so these end then.
  //
  // Errors: check_mode_of_run's
  Status want(const std::optional<SyncMode>& mode);

  // The mode to change to, if it is time for a choice and it is another one than `current`. The
  // first call begins the first second, so it has no answer unless a mode is wanted.
  //
  // Units:  `now`: on one clock in all calls, never going back
  // Errors: those of Chooser::choose and form
  Result<std::optional<SyncChoice>> next(const SyncMode& current, Duration now);

  // Opens or closes the gate of a choice that asks; it begins closed. The mode that was asked for
  // last is taken when it opens.
  void set_gate(bool is_open);
  // What the last call of next() would have chosen if the gate was open, once. So there is at most
  // one question a second.
  std::optional<AskReport> take_question();

 private:
  std::vector<std::vector<IterationTime>> samples(Duration now) const;
  std::vector<RelayLimit> relay_limits() const;
  bool waits_for_times(Duration now) const;
  Result<SyncChoice> choose(const SyncMode& current, Duration now);
  Result<SyncChoice> choose_wanted(Duration now);
  bool is_held_back(const SyncMode& mode) const;
  Duration handover_time(const SyncMode& from, const SyncMode& to) const;
  void wait_until_it_pays(SyncChoice& choice, const SyncMode& current);

  ModeChoiceSettings settings_;
  std::unique_ptr<Chooser> chooser_;
  std::vector<TimeSamples> samples_;  // of each replica
  RelayWatch relays_;
  LossWatch watch_;
  std::optional<KappaEstimate> kappa_;  // none: it learns nothing
  std::optional<Mass> applied_;         // in committed updates; none: nothing was reported yet
  std::optional<double> age_;           // of the gradients that were committed last
  std::optional<SyncMode> wanted_;
  std::optional<Duration> begun_;   // the first call of next()
  Duration next_{};                 // choice
  bool is_open_ = false;            // the gate
  std::optional<SyncChoice> held_;  // that was asked for; kept until the gate opens
  std::optional<AskReport> question_;
  std::optional<SyncChoice> delayed_;  // a change that does not pay yet
  double missed_ = 0;                  // without it so far, in seconds of progress
};

}  // namespace tenuto::servers
