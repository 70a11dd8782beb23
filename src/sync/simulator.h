// Replicas under a sync mode, as a simulation of events on a virtual clock: the update rule itself
// (ir/update_rule.h), with the times of iterations and of applying updates around it.
//
// A released replica reads the parameters, computes, and sends its gradient; when that has arrived
// it is an offer. What the offer decides is applied at once or, while another update is applied,
// after that one. A replica begins its next iteration when the parameters that it was released for
// have been applied.
//
// Replicas of several simulations may share a host: then the caller runs the events of all of them
// in order, hears who computes, and sets the speeds (sync/jobs.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "ir/update_rule.h"
#include "sync/progress.h"
#include "sync/scenario.h"

namespace tenuto {

// What is simulated: a formed mode, the replicas' times, and the time that one update takes.
struct SyncSetting {
  RuleStart start;
  IterationTimes times;
  Duration apply{};
};

// Called while the clock runs; each may be empty.
struct SyncHooks {
  // A replica reads the parameters and begins; how long its iteration takes, at full speed, is
  // known here alone.
  std::function<void(const Release&, const IterationTime&)> begun;
  // An offer arrives: whether it is of no use, and dropped (UpdateRule::refuse). Empty = none is.
  std::function<bool(const Offer&)> refuses;
  // An update has been applied.
  std::function<void(const Update&)> applied;
  // A replica has computed, and sends. Only with this hook replicas have speeds.
  std::function<void(ReplicaId)> computed;
};

// What a mode did, from the first update after the warm-up to the last one.
struct SyncMeasure {
  double gradients_per_second = 0;  // applied ones, of one replica's iteration each
  double updates_per_second = 0;
  double mean_age = 0;          // in gradients, sync/progress.h
  double dropped_fraction = 0;  // of all offered micro-batches
  // Of each replica: the share of its offered micro-batches that was applied; 1 if it offered none.
  std::vector<double> applied_fraction;
  int64_t updates = 0;
  Duration end{};  // when the last update was applied
};

// When a simulation ends: at whichever comes first. Zero = no such limit.
struct SyncLimits {
  int64_t warm_up_offers = 0;  // that are not measured
  Duration warm_up{};          // that is not measured, either
  int64_t offers = 0;          // in all
  int64_t updates = 0;         // in all
  Duration time{};
};

// One simulation, event by event. Events of one moment come in the order in which they were caused,
// and by replica, so equal settings give equal results.
class SyncSimulator {
 public:
  // Errors: UpdateRule::make's
  static Result<SyncSimulator> make(SyncSetting setting, SyncHooks hooks = {});

  // Runs the next event. False when there is none: no replica is left. After changes of speed there
  // are events in which nothing happens.
  bool step();
  // The clock goes on to a moment from now() to next_at().
  void advance_to(Duration moment);
  // The replica computes at this part of its full speed from now() on, also what it computes at
  // this moment. At first all have 1. Above 0; only with the hook `computed`.
  void set_speed(ReplicaId replica, double speed);
  // Another mode from this moment on. Errors: UpdateRule::change's
  Status change(const SyncMode& mode);
  // What was applied so far counts as warm-up.
  void begin_to_measure();

  // The moment of the next event; none = no replica is left.
  std::optional<Duration> next_at() const;
  // The moment of the last event, or a later one that advance_to went on to.
  Duration now() const { return now_; }
  // Offers that have arrived, and updates that have been applied.
  int64_t offers() const { return offers_; }
  int64_t updates() const { return applied_updates_; }
  // The rule, after the last event.
  const UpdateRule& rule() const { return rule_; }
  // What was measured so far.
  SyncMeasure measure() const;

 private:
  enum class Kind : uint8_t { Begin, Computed, Arrive, Applied, WindowOver };
  // It is small because a heap moves its events often: what a replica begins or offers is in
  // released_.
  struct Event {
    Duration at{};
    int64_t sequence = 0;
    int64_t number = 0;  // WindowOver: of the window; Begin, Computed, Arrive: of the replica
    Kind kind = Kind::Begin;
  };
  struct Later {
    bool operator()(const Event& left, const Event& right) const {
      return left.at != right.at ? left.at > right.at : left.sequence > right.sequence;
    }
  };
  struct Counted {
    Mass offered, dropped;
  };
  // What a replica computes, where replicas have speeds.
  struct Computing {
    double speed = 1;
    double left = 0;  // nanoseconds at full speed, from `since` on
    Duration since{}, transfer{};
    int64_t event = -1;  // the sequence number of its end; -1 = the replica does not compute
  };

  SyncSimulator(SyncSetting setting, SyncHooks hooks, UpdateRule rule);
  const Event* next() const;
  int64_t push(Duration at, Kind kind, int64_t number);
  void begin(const Release& release);
  void expect_end(ReplicaId replica);
  void end_computing(const Event& event);
  void follow(Decided decided);
  void apply_next();
  void count(const Update& update);

  SyncSetting setting_;
  SyncHooks hooks_;
  UpdateRule rule_;
  // Begin and Applied are caused in order of time, so a queue keeps them, at less cost than a heap.
  std::deque<Event> in_order_;
  std::priority_queue<Event, std::vector<Event>, Later> events_;  // the other ones
  std::vector<Release> released_;  // by replica: what it was released for last
  std::deque<Update> decided_;     // updates that are being applied, or wait for it
  Duration now_{}, free_at_{};     // free_at_: the end of the last update that was decided
  int64_t sequence_ = 0, offers_ = 0, applied_updates_ = 0;
  AppliedMass applied_;
  std::vector<Counted> replicas_;     // since begin_to_measure
  std::vector<Computing> computing_;  // by replica; empty = replicas have no speeds
  bool measures_ = false;             // the update after which measuring begins has been applied
  Duration first_{}, last_{};
  Mass measured_mass_;
  int64_t measured_updates_ = 0;
  double age_sum_ = 0;  // mass x age, in micro-batches
};

// Simulates a mode until a limit.
//
// Errors: UpdateRule::make's; Invalid/Call  no limit
// Cost:   offers x (replicas + log replicas)
Result<SyncMeasure> simulate_sync(const SyncSetting& setting, const SyncLimits& limits);

}  // namespace tenuto
