// A worker's logic as one pure function: from its state and one input to the next state and the
// actions that follow. The process around it (worker_process.h) executes the actions, one after the
// other, and feeds their outcomes back as inputs. It is the counterpart of control/decide.h.
//
// A worker repeats its report; the coordinator answers with instructions, and the newest one
// counts. In every epoch a worker opens a transport of its own, reports what it holds and waits,
// frozen, to be told to run. Then it undoes an optimizer step that is not committed, unless the
// rest of that step is to be run; connects to the peers of its plan, and runs step after step.
// Between two steps it saves, transfers state and changes its plan.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "protocol/client.h"
#include "protocol/report.h"
#include "runtime/compute.h"
#include "runtime/worker.h"
#include "worker/worker_rest.h"
#include "world/job.h"

namespace tenuto {

// ---- The inputs.

// The coordinator's newest instruction.
struct Heard {
  std::shared_ptr<const Told> told;
};
// The stream to the coordinator has ended, and why.
struct ConversationOver {
  Error why;
};
// A peer is lost. `epoch`: of the transport that says so, as one that has ended may have said it
// before. `message`: how, if a step was running.
struct LostPeer {
  WorkerId peer;
  int64_t epoch = 0;
  std::string message = {};
};
// Nothing has happened for a while.
struct Idle {};
// The outcome of Prepare: the job that was read, and where the transport listens.
struct Prepared {
  Status status = ok();
  std::shared_ptr<const Job> job;
  std::string address;
};
// The outcome of MakeDevice.
struct DeviceMade {
  Status status = ok();
  bool resumes = false;  // it can go on with what is left of a step, see Device::resumes()
};
// The outcome of RenewTransport: where the new transport listens, and what this worker has of steps
// that are perhaps unfinished.
struct Renewed {
  Status status = ok();
  std::string address;
  std::vector<StepInventory> held;
};
// The outcome of Connect. `epoch`: of the transport.
struct Connected {
  WorkerId peer;
  int64_t epoch = 0;
  Status status = ok();
};
// The outcome of Probe.
struct Probed {
  WorkerId peer;
  std::string address;
  bool reachable = false;
};
// The outcome of Load.
struct Loaded {
  Status status = ok();
};
// The outcome of Adopt.
struct Adopted {
  Status status = ok();
};
// The outcome of Hold.
struct HeldStages {
  Status status = ok();
};
// The outcome of Undo.
struct Undone {
  Status status = ok();
};
// The outcome of Finalize.
struct Finalized {
  Status status = ok();
};
// The outcome of Save.
struct Saved {
  Status status = ok();
  std::vector<SavedShard> shards;
  bool copied = false;  // the state is copied, and not written yet
};
// A copy of the state is written, or could not be written. It may come at any time after
// WriteCopy.
struct CopyWritten {
  int64_t version = -1;
  Status status = ok();
  std::vector<SavedShard> shards = {};
};
// The transfers of TransferState have come further. Ready: the step may begin.
struct TransferMoved {
  Status status = ok();
  bool ready = false;
  int64_t received = -1;  // joiner: the version at which it had the whole state; -1 = not yet
};
// In the middle of a step: the version with which the step began is final.
struct Validated {
  Finality finality;
};
// The outcome of RunStep; a summary only if the step was done.
struct StepEnded {
  Status status = ok();
  StepSummary summary = {};
  std::vector<Repair> repairs = {};
};
// The outcome of Evaluate.
struct Evaluated {
  Status status = ok();
  std::vector<MicroLoss> losses;
};

// What the device holds.
struct DeviceState {
  int64_t version = -1;  // -1 = there is no device yet
  Finality finality;
  // True when no clip decision can change the version that is held any more.
  bool is_final() const { return finality.version == version; }
};

// One thing that has happened, the time at which it is handled, and what the device holds then.
struct WorkerInput {
  // All of them.
  using What = std::variant<Heard, ConversationOver, LostPeer, Idle, Prepared, DeviceMade, Renewed,
                            Connected, Probed, Loaded, Adopted, HeldStages, Undone, Finalized,
                            Saved, CopyWritten, TransferMoved, Validated, StepEnded, Evaluated>;
  Duration now{};
  DeviceState device;
  What what;
};

// ---- The actions.

// Replaces the report that is repeated to the coordinator.
struct Tell {
  Report report;
};
// Reads the job of the instruction and opens a transport for the epoch.
struct Prepare {
  std::vector<StageId> stages;
};
// Makes the device, with the initial parameters.
struct MakeDevice {};
// Replaces the transport by one for this epoch. Connections and messages under way end with the old
// one, and so do the transfers of state.
struct RenewTransport {
  int64_t epoch = 0;
};
// Begins to connect to a peer. Of each pair the lower number connects.
struct Connect {
  WorkerId peer;
  std::string address;
};
// Asks the host at a peer's address for an answer within the limit.
struct Probe {
  WorkerId peer;
  std::string address;
  Duration limit{};
};
// Loads this version from the shards. Without shards it is the initial version, which the device
// has from the beginning.
struct Load {
  std::vector<std::string> shards;
  int64_t version = 0;
};
// Declares that the parameters in the device are this version.
struct Adopt {
  int64_t version = 0;
};
// Makes the device hold exactly these stages of the plan in force. A new stage has no state yet;
// the state of a stage that is not held any more is deleted.
struct Hold {
  std::vector<StageId> stages;
};
// Undoes the newest optimizer step.
struct Undo {};
// Runs step `step`; what is left of it when WorkerState::rest is set.
struct RunStep {
  int64_t step = 0;
  // Joiner: takes over its donor's count of void runs, that is, runs that had to be repeated after
  // a clip decision, see Runner.
  bool counts_voids = false;
};
// Makes the version that the device holds final, ahead of the next step.
struct Finalize {};
// Runs the held-out pass with the parameters that the device holds.
struct Evaluate {};
// Writes the version that the device holds: a file for each of these stages, into the folder.
struct Save {
  int64_t version = 0;
  std::vector<StageId> stages;
  std::string directory;
  bool copies = false;  // only copies the state: WriteCopy has it written
};
// Has the copy of the state written by a thread while this worker goes on. CopyWritten follows.
struct WriteCopy {};
// Deletes a copy that is not being written.
struct DropCopy {};
// Begins the state transfers that are due before the next step.
struct TransferState {};
// Writes a line to the worker's log.
struct Say {
  std::string sentence;
};
// Ends this process's part in the run, see WorkerEnd.
struct Leave {
  int exit_code = 0;
  std::string sentence;
  bool left_out = false;
};

// One thing to be done.
using WorkerAction =
    std::variant<Tell, Prepare, MakeDevice, RenewTransport, Connect, Probe, Load, Adopt, Hold, Undo,
                 RunStep, Finalize, Evaluate, Save, WriteCopy, DropCopy, TransferState, Say, Leave>;

// An action as one line, for tests and for people.
std::string to_text(const WorkerAction& action);

// What is fixed for a process.
struct WorkerRules {
  std::string job;  // its name
  std::string coordinator;
  WorkerId self;
  int32_t incarnation = 0;
  int process = 0;
  std::string host;
  Duration answer_limit{};  // for the coordinator's first instruction
  Duration mend_limit{};    // for a peer's host to answer while a connection to it is made
};

// What a worker does now. In the first four situations it reacts to inputs as they come. In those
// after Leaving it waits for the outcome of one action.
enum class WorkerSituation : uint8_t {
  Starting,      // it has no place in the run yet
  Ready,         // it waits for news
  Connecting,    // to peers of its plan, or of what is left of a step
  Transferring,  // it waits for a part of the state
  Leaving,       // its part is over
  Preparing,
  MakingDevice,
  Renewing,
  Loading,
  Probing,  // a joiner looks whether it can reach the members
  Adopting,
  Holding,
  Undoing,
  Saving,
  Stepping,
  Finalizing,
  Evaluating,
};

// How a process takes part in the run. First: from the run's beginning. Waits: it joins a run under
// way, and its part in the steps has not begun. Joined: that part has begun.
enum class Membership : uint8_t { First, Waits, Joined };

// All that a worker knows.
struct WorkerState {
  WorkerRules rules;
  WorkerSituation situation = WorkerSituation::Starting;
  Membership place = Membership::First;
  Report report;                     // what it repeats to the coordinator
  std::shared_ptr<const Told> told;  // the newest; null: nothing yet
  Status conversation = ok();        // not ok: it is over
  Status memory = ok();              // not ok: a failed call may still use memory, so leave the run
  std::shared_ptr<const Plan> plan;  // in force
  int64_t plan_serial = 1;           // of `plan`
  std::shared_ptr<const std::string> job_toml;
  std::shared_ptr<const Job> job;  // read from it; null: not prepared yet
  std::vector<StageId> stages;     // that it holds
  bool receives = false;           // it receives state now: of `gains`, or of all if that is empty
  std::vector<StageId> gains;      // stages that move to it from other workers
  DeviceState device;
  bool has_device = false, device_resumes = false;
  bool begun = false;   // it has been told to run
  bool halted = false;  // a number is not finite: no further step in this epoch
  bool fresh = false;   // no step of this epoch has been done yet; false in its first epoch
  // Until when it waits: for the first instruction, for connections, for a part of the state.
  std::optional<Duration> deadline;
  std::set<WorkerId> connected;          // peers that it has connected to
  std::map<WorkerId, Duration> calling;  // peers it connects to, and when their host last answered
  std::set<WorkerId> reached;            // members that a joiner has found reachable
  std::string unreached;                 // the last line about a member that it cannot reach
  std::optional<StepSummary> pending;    // of the newest step, until its version is final
  std::optional<WorkerRest> rest;        // of the step in which the epoch begins, until it is done
  int64_t running = -1;                  // the version that the newest step or pass began with
  // job.checkpoint_asynchronous: the version of the copy that waits for its commit, and the version
  // that is being written; -1 = none.
  int64_t copied = -1, writing = -1;
};

// What follows from an input.
struct WorkerDecision {
  WorkerState state;
  std::vector<WorkerAction> actions;
};

// The state before anything was heard, at `now`.
WorkerState begin_worker(const WorkerRules& rules, Duration now);

// The next state, and the actions to execute, in this order. Deterministic.
//
// Requires: state came from begin_worker() or decide_worker(); each action but Tell, Say, WriteCopy
//           and DropCopy is followed by its outcome, and by no other input before it than Heard,
//           ConversationOver, LostPeer, CopyWritten and Validated
WorkerDecision decide_worker(WorkerState state, const WorkerInput& input);

// The coordinator's instructions for the step or pass at hand; read while it runs.
Standing standing_of(const WorkerState& state);

// The plan that the step at hand runs by: that of what is left of it, or the one in force.
const Plan& plan_at_hand(const WorkerState& state);

// True when what is left of a step of the plan in force can be run here.
bool resumes(const WorkerState& state);

// The exit code for an error: kTryAgain if another process may succeed later, otherwise 1.
int exit_code_of(const Error& error);

// How the worker of this name ends when the coordinator has told it to leave (Phase::Out).
Leave leave_as_told(const Instruction& end, const std::string& name);

}  // namespace tenuto
