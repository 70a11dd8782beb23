// All that the coordinator knows: a value. It is made once (begin(), take_up.h) and then changed by
// edits alone (edit.h).
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unit.h"
#include "control/store.h"
#include "control/treatment.h"
#include "control/update_choice.h"
#include "ir/layer_move.h"
#include "monitor/monitor.h"
#include "protocol/report.h"
#include "remedy/trouble_log.h"
#include "world/cluster.h"
#include "world/fault.h"
#include "world/model.h"

namespace tenuto {

// Layers that are moving now: their receivers get the state while steps go on (layers.h).
struct LayerTransfer {
  std::vector<LayerMove> moves;
  // What the workers are told: for each receiver, the stages that it receives, their donors, and
  // the serial of the plan with which the transfer begins.
  std::vector<Joiner> places;
  std::shared_ptr<const Plan> plan;  // after the moves
  std::string reason;
};

// What is fixed for the run.
struct Rules {
  std::string run;  // its name among all runs, see Facts::run
  int64_t term = 1;
  int64_t epoch = 1;       // of the first plan
  int64_t first_step = 0;  // 0, or the version that is resumed
  int64_t steps = 0;       // the version to end with
  // The run makes one held-out pass with the parameters of version `first_step`, and no step. It
  // begins as if the update that made this version were not committed: the pass commits it.
  bool evaluates = false;
  int64_t checkpoint_every = 0;  // steps; 0 = only at the end
  int64_t trace_after = 0;       // steps traced after each detection or decision
  // Workers report a version that is to be saved once they have copied it, and its shards later.
  bool saves_later = false;
  int64_t saved = -1;                         // version of the newest checkpoint on disk; -1 = none
  int32_t micro_count = 0;                    // training micro-batches of a step; 0 = it evaluates
  int32_t evaluation_count = 0;               // micro-batches of a held-out pass
  int32_t pipelines = 0;                      // of the job; 0 = the most holders that a stage has
  std::vector<std::vector<WorkerId>> places;  // if the places are no grid: the workers of each
  std::vector<Stage> stages;                  // of the plan, or of `whole`
  std::shared_ptr<const Plan> plan;           // the first one; a healthy cluster returns to it
  // The plan that also has the workers absent at the start. Once one of them has joined, a healthy
  // cluster returns to this one; null: no worker is absent.
  std::shared_ptr<const Plan> whole;
  Model model;                  // as profiled; for planning, op times are replaced by measured ones
  Cluster cluster;              // when all are well
  Treatments treatments;        // when the run begins; Planning has those of now
  bool survive = false;         // steps go on without a lost worker if the others can do its work
  int32_t restarts = 0;         // before the first step: how often a worker may be started again
  bool chooses_update = false;  // the run chooses its kind of update itself (update_choice.h)
  std::vector<std::string> resume_shards;
  std::string directory;  // where checkpoint folders are made
  // How long each of these may last:
  Duration start_limit{};  // gathering without progress, see ReportReceived::progress
  // Silence of a joiner, or of any worker while salvaging; and a recovery, until all have frozen.
  Duration silence_limit{};
  Duration lost_limit{};     // silence of a member, unless salvaging; 0 = silence_limit
  Duration explain_limit{};  // from the loss of a worker to the news of how its process ended
  Duration stop_limit{};     // for the step under way when asked to stop; then it is abandoned
  Duration salvage_limit{};  // for one answer while salvaging
  // How long to wait while no worker is heard: the coordinator's own link may be cut. 0 = it cannot
  // be cut, all are on one host.
  Duration cut_off_limit{};
  // The version that is committed when the run begins.
  int64_t first_committed() const { return evaluates ? first_step - 1 : first_step; }
  int32_t worker_count() const;  // including workers that the plan does without
  // For saving, which may take several times as long as any other answer while salvaging.
  Duration save_limit() const { return 10 * salvage_limit; }
};

// How far a process that takes the place of a lost worker has come (join.h). Invited: it gets
// ready, and is not a member yet. Receiving: it is a member, runs no ops, and receives the state.
enum class Joining : uint8_t { No, Invited, Receiving };

// Member::since of a joiner whose plan is not in force yet.
inline constexpr int64_t kNeverNeeded = std::numeric_limits<int64_t>::max();

// What the coordinator knows of one worker.
struct Member {
  bool alive = true;
  bool absent = false;  // had no process at the start, and does not count as dead: see State::grown
  bool heard = false;   // has reported at all
  bool exited = false;  // its process is known to have ended
  Report report;        // the newest
  Duration heard_at{};
  std::optional<Duration> suspect_since;  // since a peer lost it, or its stream ended
  std::string suspicion;                  // what makes it suspect, as a clause
  bool stream_ended = false;              // its stream to the coordinator is over
  std::map<WorkerId, Duration> lost;      // peers that it has lost in this epoch, and since when
  int64_t repairs = 0;                    // serial of its newest RepairNote that was passed on
  Joining joining = Joining::No;
  Joiner place;       // Receiving: what the workers are told of it
  int64_t since = 0;  // versions above this one need it for their commit
  // Before the first step: how often it has died, the lowest incarnation that may take its place,
  // and whether it was expelled and the end of its process has not been reported yet.
  int32_t deaths = 0, least_incarnation = 0;
  bool expelled = false;
};

// A change of plan: the planner is asked for a plan and computes it (`answered` is false); the plan
// is proposed, that is, sent to all (`from` is -1); all have acknowledged it, and it is in force
// from step `from` on.
struct Planning {
  std::shared_ptr<const Plan> present;   // the last one sent
  std::shared_ptr<const Plan> previous;  // in force until `present` is
  // Their names in files: the epoch; for later plans of an epoch the serial follows.
  std::string present_name, previous_name;
  int64_t serial = 1;  // of `present`
  int64_t from = 0;    // the step it is in force from; -1 = not yet acknowledged
  std::shared_ptr<const MonitorState> monitor;
  int64_t request = 0;     // the newest plan that was asked for
  bool answered = true;    // false: the planner still computes it
  bool stale = false;      // ask for a plan: the cluster has changed, or `present` is interim
  int64_t review_at = -1;  // at the commit of this version a better plan is sought in any case
  int64_t changed_at = 0;  // the step at which the cluster last changed
  TroubleLog troubles;     // that the run has had
  Treatments treatments;   // as the job says, or as a user has asked since
  UpdateChoice update;
};

// Where a run is.
enum class Situation : uint8_t { Gathering, Running, Recovering, Salvaging, Ended };

// How the steps go on without the lost workers.
struct LossRecovery {
  std::string cause;                 // why, a sentence for each death
  std::vector<WorkerId> dead;        // workers lost since steps last ran
  Duration since{};                  // when the first death was heard of
  Duration deadline{};               // for all to report their version
  std::shared_ptr<const Plan> plan;  // without the dead
  // What is left of the step with which the epoch begins; null: that step is run whole.
  std::shared_ptr<const RestOfStep> rest;
  bool redone = false;   // the step with which the epoch begins is done again
  bool waiting = false;  // no worker has begun again yet
};

// A step that is abandoned for good and what follows.
struct Salvage : LastResort {
  int64_t target = -1;  // the version that is saved; -1 = not known yet
  Duration deadline{};  // for the next answer
};

// All that the coordinator knows.
struct State {
  Rules rules;
  Situation situation = Situation::Gathering;
  bool begun = false;  // the workers have been told to run
  std::vector<Member> members;
  int64_t epoch = 1;
  int64_t committed = 0;
  int64_t stop_at = 0;        // the version to stop at
  int64_t saved = -1;         // version of the newest complete checkpoint
  int64_t storing = -1;       // the version whose manifest is being written; -1 = none
  int64_t save_request = -1;  // the version of a checkpoint that a user asked for; -1 = none
  // The steps in [trace_from, trace_until) are traced, beside those of the job.
  int64_t trace_from = 0, trace_until = 0;
  int signal = 0;  // the signal that asked for the stop
  std::optional<Duration> stop_since;
  Duration progress_at{};  // Gathering: the last time of ReportReceived::progress
  std::map<int64_t, std::map<int32_t, SavedShard>> shards;  // by version, by stage
  int64_t target = -1;     // the version from which this epoch goes on; -1 = not agreed on yet
  int64_t first_plan = 1;  // serial of the epoch's first plan
  LossRecovery recovery;
  Salvage salvage;
  std::optional<Ending> ending;
  Planning planning;
  // A worker that was absent at the start has joined. From then on no worker is absent: a worker
  // without a process counts as dead.
  bool grown = false;
  std::vector<Stage> stages;  // who holds each stage when all workers live: Rules::stages, changed
                              // by all moves of layers since
  std::shared_ptr<const Plan> moved;      // see plan_of_moved(); null: no layer has moved
  int64_t moved_at = -1;                  // the committed version at the last move of layers
  std::optional<LayerTransfer> transfer;  // layers that are moving now
  std::vector<Fault> faults;              // requested while the run goes on, and not yet over
  Instruction told;                       // the last one
  Duration listened_at{};                 // when the last input came, a Tick included
  // Since when no worker has been heard; set once this has been announced.
  std::optional<Duration> unheard_since;
};

// The state before anything was heard, at `now`.
State begin(const Rules& rules, Duration now);

}  // namespace tenuto
