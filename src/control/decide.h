// The coordinator's mind: one pure function from what is known and what has just been heard to what
// is known now, what everybody is told, and why.
//
// A run goes through five situations. Gathering: workers come forward, tell where they listen, and
// connect; one that dies may come again, and all connect anew in the next epoch. Running: steps are
// committed. Recovering: a worker is gone; the others agree on where to go on without it
// (recover.h). Salvaging: it cannot be done without, or a worker has failed; the step is abandoned
// and the newest version that every stage still has is saved. Ended: all are told to go.
//
// Version v is committed when every member has reported it (running, in this epoch), with all the
// losses of its step, and, when v is to be saved, when its shards are there too. The Step op of
// step v waits for that, so versions differ by at most one and one undo suffices.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/unit.h"
#include "control/report.h"
#include "control/store.h"
#include "control/update_choice.h"
#include "monitor/monitor.h"
#include "world/cluster.h"
#include "world/fault.h"
#include "world/model.h"

namespace tenuto {

// What is done about slow links. Observe: they are told, the plan stays.
enum class SlowLinks : uint8_t { Off, Observe, Adapt };
// Its name in job files and wishes: off, observe, adapt.
const char* name_of(SlowLinks how);
// The one of that name, if there is one.
std::optional<SlowLinks> slow_links_of(std::string_view name);

// What is fixed for the run.
struct Rules {
  std::string run;  // its name among all runs, see Facts::run
  int64_t term = 1;
  int64_t epoch = 1;                 // of the first plan
  int64_t first_step = 0;            // 0, or the version that is resumed
  int64_t steps = 0;                 // the version to end with
  int64_t checkpoint_every = 0;      // steps; 0 = only at the end
  int64_t saved = -1;                // version of the newest checkpoint on disk; -1 = none
  int32_t micro_count = 0;           // training micro-batches of a step
  int32_t evaluation_count = 0;      // micro-batches of a held-out pass
  int32_t pipelines = 0;             // of the job; 0 = as many as a stage has holders at most
  std::vector<Stage> stages;         // of the plan, or of `whole`
  std::shared_ptr<const Plan> plan;  // the first one, to which a healthy cluster returns
  // The same with those who have no place in it, to which a run returns once somebody has come who
  // was not there at its beginning; null: all are there.
  std::shared_ptr<const Plan> whole;
  Model model;      // as profiled: bytes; op times are measured
  Cluster cluster;  // when all are well
  SlowLinks slow_links = SlowLinks::Observe;
  bool routing = false;  // micro-batches may go to other workers while the run goes on
  bool survive = false;  // steps go on without a lost worker, as far as the others can do them
  int32_t restarts = 0;  // how often a worker may die before the first step and come again
  bool chooses_update = false;  // steps may go ahead of the norm, or not: as few are clipped
  std::vector<std::string> resume_shards;
  std::string directory;     // where checkpoint folders are made
  Duration start_limit{};    // without any worker coming forward
  Duration silence_limit{};  // without a word from a worker, or without one it is asked for
  Duration lost_limit{};     // the same while steps run; 0 = as the one before
  Duration explain_limit{};  // between a lost peer and the news of how it ended
  Duration stop_limit{};     // for the step under way when asked to stop; then it is abandoned
  Duration salvage_limit{};  // for one answer while salvaging
  // For any worker to be heard again when none is: the coordinator's own link may be cut. 0 = it
  // cannot be, all are on one host.
  Duration cut_off_limit{};
  int32_t worker_count() const;  // with those that the plan does without
  // For saving, which may take several times as long as any other answer while salvaging.
  Duration save_limit() const { return 10 * salvage_limit; }
};

// How a process comes to the place of a worker that is gone (join.h). Invited: it makes itself
// ready, and is no member. Learning: a member that runs nothing and is given the state.
enum class Joining : uint8_t { No, Invited, Learning };

// What the coordinator knows of one worker.
struct Member {
  bool alive = true;
  bool absent = false;  // was not there at the beginning, and is not missed: see State::grown
  bool heard = false;   // has reported at all
  bool exited = false;  // its process is known to have ended
  Report report;        // the newest
  Duration heard_at{};
  std::optional<Duration> suspect_since;  // someone has lost it, or its stream has ended
  std::string suspicion;                  // the sentence of that
  bool stream_ended = false;              // its conversation is over
  std::map<WorkerId, Duration> lost;      // peers that it has lost in this epoch, and since when
  int64_t repairs = 0;                    // serial of the newest that was told
  Joining joining = Joining::No;
  Newcomer place;     // Learning: what is told of it
  int64_t since = 0;  // it has a part in versions above this one
  // Before the first step: how often it has died, the least incarnation that may come in its place,
  // and whether it has been expelled and the end of its process is still to be heard of.
  int32_t deaths = 0, least_incarnation = 0;
  bool expelled = false;
};

// A change of plan on its way: wanted (somebody computes it), proposed (told, to be acknowledged),
// in force from a step on.
struct Planning {
  std::shared_ptr<const Plan> present;   // told last
  std::shared_ptr<const Plan> previous;  // in force until then
  // Of the two, for files: the epoch, and for later plans of an epoch the serial behind it.
  std::string present_name, previous_name;
  int64_t serial = 1;  // of `present`
  int64_t from = 0;    // the step it is in force from; -1 = not yet acknowledged
  std::shared_ptr<const MonitorState> monitor;
  int64_t request = 0;     // the newest plan that was asked for
  bool answered = true;    // no: somebody computes it
  bool stale = false;      // the cluster has changed since
  int64_t review_at = -1;  // once this version is committed the plan is weighed anyway
  SlowLinks slow_links = SlowLinks::Observe;
  UpdateChoice update;
};

// Where a run is.
enum class Situation : uint8_t { Gathering, Running, Recovering, Salvaging, Ended };

// How the steps go on without somebody.
struct Recovery {
  std::string cause;                 // why, a sentence for each death
  std::vector<WorkerId> dead;        // since all last ran
  Duration since{};                  // the news of the first
  Duration deadline{};               // for all to say at which version they are
  std::shared_ptr<const Plan> plan;  // without the dead
  // What is left of the step in which it begins; null: that is run whole.
  std::shared_ptr<const RestOfStep> rest;
  bool redone = false;   // the step in which it begins had been begun
  bool waiting = false;  // nobody has begun again yet
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
  int64_t storing = -1;       // its shards are there, its manifest is being written
  int64_t save_request = -1;  // asked for out of turn
  int signal = 0;             // that asked for the stop
  std::optional<Duration> stop_since;
  Duration progress_at{};  // Gathering: when somebody last came forward
  std::map<int64_t, std::map<int32_t, SavedShard>> shards;  // by version, by stage
  int64_t target = -1;     // the version from which this epoch goes on; -1 = not agreed on yet
  int64_t first_plan = 1;  // serial of the epoch's first plan
  Recovery recovery;
  Salvage salvage;
  std::optional<Ending> ending;
  Planning planning;
  // Somebody has come who was not there at the beginning. From then on nobody is absent: who is not
  // there is missed like the dead.
  bool grown = false;
  std::vector<Fault> faults;  // wanted of the live run and not yet over
  Instruction told;           // the last one
  Duration listened_at{};     // when something was last heard, if only the time
  // No worker has been heard since then, and that has been told.
  std::optional<Duration> alone_since;
};

// What can be heard. A worker's stream has ended.
struct StreamEnded {
  WorkerId worker;
  int32_t incarnation = 0;
};
// A worker's process has ended: by a signal, or with an exit code.
struct Exited {
  WorkerId worker;
  bool signalled = false;
  int number = 0;          // signal or exit code
  std::string last_words;  // the end of its log, when it ended with an exit code; may be empty
};
// Somebody asks: stop (number = the signal; 0 = a friendly request), save soon, treat slow links
// otherwise (number = a SlowLinks), or rehearse a slow link or worker (link and latency, or worker
// and speed of `fault`, in the place of what was asked for it before; see ends_slowness()). Signal
// (number, to the worker of `fault`; with its kind "start" none, but a new process) is for who
// started the processes: decide hears what comes of it.
struct Request {
  // What is asked for.
  enum class Kind : uint8_t { Stop, Checkpoint, SlowLinks, Fault, Signal };
  Kind kind = Kind::Stop;
  int number = 0;
  tenuto::Fault fault = {};
};
// The manifest of a checkpoint is on disk, or why not.
struct Stored {
  int64_t version = 0;
  std::string failure;  // empty = it is there
};
// The answer to a PlanRequest: a better plan, or none and why.
struct Planned {
  int64_t request = 0;
  std::shared_ptr<const Plan> plan;  // null: the present one stays
  std::string reason;
  // Of an answer to PlanRequest::update: the share of clipped steps up to which `plan` is faster.
  double bearable = 0;
};
// The coordinator's own side cannot go on, for example because the disk is full.
struct Trouble {
  std::string sentence;
};
// Nothing but time.
struct Tick {};

// One thing heard, and when (on the coordinator's clock).
struct Input {
  Duration now{};
  std::variant<Report, StreamEnded, Exited, Request, Stored, Planned, Trouble, Tick> what;
};

// A step that is now final, as the metrics tell it.
struct StepRecord {
  int64_t step = 0, epoch = 0;
  int32_t losses = 0;     // how many micro-batches have told their loss
  bool complete = false;  // all have
  bool validated = true;  // false: a held-out pass behind it has not told all its losses
  double loss = 0;        // mean over micro-batches, folded in their order
  std::optional<double> validation_loss;
  std::shared_ptr<const Plan> plan;  // that it ran under
  double gradient_norm = 0, learning_rate = 0;
  Duration duration{};  // of the slowest worker
  // Paced devices: from the first op on any worker to the last weight gradient, on their clock.
  std::optional<Duration> iteration;
  Duration iteration_end{};  // the moment of that last weight gradient
  Duration lag{};            // 99th percentile of the paced devices, the worst
  bool lag_valid = true;
  // Accelerators: copies between device and host, of the worker with the most; messages of all.
  Duration to_host{}, to_device{};
  int64_t staged_messages = 0, direct_messages = 0;
  std::vector<std::string> events;  // per worker, of a traced step
};

// A connection between two workers broke and stands again.
struct Repaired {
  int64_t step = 0;
  std::string sentence;
};

// All shards of a checkpoint are durable: its manifest may be written.
struct CheckpointRecord {
  int64_t version = 0;
  std::vector<SavedShard> shards;  // by stage
};

// A plan is to be weighed for the cluster as it is now, off the path of the steps.
struct PlanRequest {
  int64_t request = 0;
  std::shared_ptr<const Plan> plan;  // the present one
  Model model;                       // as measured
  Cluster cluster;
  bool routing = false;  // micro-batches may go to other workers
  bool update =
      false;  // asked is only whether the same plan is faster with steps ahead of the norm
};

// What follows from an input.
struct Decision {
  State state;
  std::optional<Instruction> order;  // what all workers are to be told now; none = nothing new
  std::string reason;                // one sentence; empty = nothing was decided
  const char* event = "decision";    // what the reason tells of: also "death", "recovery"
  std::vector<WorkerId> expelled;    // no longer of the run, though their processes may live
  std::vector<WorkerId> cut_off;     // of these, who may come back when a link is well again
  std::vector<StepRecord> steps;     // newly committed
  std::optional<CheckpointRecord> checkpoint;
  std::vector<Verdict> verdicts;  // what detection has found
  std::vector<Repaired> repaired;
  std::optional<PlanRequest> wanted;
  bool new_plan = false;  // `order` is the first to tell of state.planning.present
};

// The state before anything was heard, at `now`.
State begin(const Rules& rules, Duration now);

// The next state, and what is to be told and written because of it. Deterministic.
//
// Requires: state came from begin() or from here
Decision decide(const State& state, const Input& input);

// What of the state must be in the store before its order is told.
Facts facts_of(const State& state);

// "worker 3 (stage 1 of pipeline 1)".
std::string name_of(const Rules& rules, WorkerId worker);

}  // namespace tenuto
