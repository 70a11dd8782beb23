// What changes the coordinator's state: a list of edits, each of which says what has happened.
//
// The coordinator's logic reads a state and returns edits (decision_part.h). Only apply_edit()
// changes a state: so the state after an input is the state before with the edits applied in turn,
// and their texts tell what happened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/unit.h"
#include "control/state.h"
#include "control/store.h"
#include "protocol/report.h"
#include "world/fault.h"

namespace tenuto {

// ---- What is heard of the workers.

// An input came at `now`. Before it the coordinator itself stood still for `stall`: that time does
// not count as a worker's silence.
struct ClockAdvanced {
  Duration now{}, stall{};
};
// A worker, or a process that waits for its place, has repeated its report.
struct WorkerHeard {
  WorkerId worker;
  Duration now{};
};
// A worker has sent a new report. Progress: it is the worker's first report, or its transport has a
// new address, or it is connected.
struct ReportReceived {
  Report report;
  Duration now{};
  bool progress = false;
};
// A worker has written its shard of a checkpoint.
struct ShardSaved {
  SavedShard shard;
};
// The repairs that a worker has reported are announced up to this serial.
struct RepairsAnnounced {
  WorkerId worker;
  int64_t serial = 0;
};
// A worker has lost its connection to another one.
struct LinkLost {
  WorkerId worker, peer;
  Duration now{};
};
// A worker may be dead: unless it is heard soon, it is declared dead.
struct WorkerSuspected {
  WorkerId worker;
  std::string why;  // a clause
  Duration now{};
};
// A worker's stream to the coordinator has ended.
struct StreamLost {
  WorkerId worker;
  Duration now{};
};
// A worker's process has ended.
struct ProcessEnded {
  WorkerId worker;
};
// The coordinator hears none of its workers, since `since`.
struct CutOff {
  Duration since{};
};
// It hears its workers again; each has until `until` before its silence counts.
struct HeardAgain {
  Duration until{};
};

// ---- What users ask for.

// The version is to be saved.
struct CheckpointAsked {
  int64_t version = 0;
};
// From now on what `key` names is treated as `how` says.
struct TreatmentChanged {
  TreatmentKey key = TreatmentKey::Mode;
  Treatment how = Treatment::Observe;
};
// The steps in [from, until) are traced, too.
struct TraceAsked {
  int64_t from = 0, until = 0;
};
// A fault is injected from step `from` on. It replaces earlier ones of this kind for the same link
// or worker, or only ends them, see ends_slowness().
struct FaultAdded {
  Fault fault;
  int64_t from = 0;
};
// The run is to stop at the version.
struct StopAsked {
  int signal = 0;
  int64_t version = 0;
  Duration now{};
};

// ---- Members and epochs.

// All workers are connected: the first step begins.
struct RunBegun {};
// A worker was lost before the first step: its next process is awaited, in the next epoch.
struct WorkerAwaited {
  WorkerId worker;
  Duration now{};
};
// A worker is declared dead.
struct MemberLost {
  WorkerId worker;
};
// Members without the whole state lose their membership and are invited anew. Layers that were
// moving stay with their donors.
struct JoinersSentBack {};
// Layers begin to move: under the plan that was just proposed, their receivers get the state.
struct LayersGiven {
  LayerTransfer transfer;  // its places do not have the serial of that plan yet
};
// The receivers have the whole state; from now on they hold the layers, and the donors do not.
struct LayersMoved {};
// A new epoch begins, in which all workers but the dead one freeze; then they continue without it,
// under this plan.
struct RecoveryBegun {
  WorkerId dead;
  std::string cause;
  std::shared_ptr<const Plan> plan;
  Duration now{};
};
// The planner has found a better plan before the workers continue.
struct RecoveryPlanned {
  std::shared_ptr<const Plan> plan;
};
// The workers are to run only what is left of the step.
struct RestFound {
  std::shared_ptr<const RestOfStep> rest;
};
// All have frozen; now they run again, from the committed version on. Redone: the step after that
// version had been begun before.
struct EpochBegun {
  bool redone = false;
};
// After the recovery, a first worker runs again.
struct StepsResumed {};
// A process asks for the place of a lost worker: it is invited.
struct JoinerInvited {
  Report report;
  Duration now{};
};
// A process that was invited has sent a new report.
struct JoinerReported {
  Report report;
  Duration now{};
};
// The process that was invited to the worker's place is gone.
struct JoinerDropped {
  WorkerId worker;
  std::string why;  // a clause
};
// Joiners become members, under the present plan, and receive the state.
struct JoinersPlaced {
  std::vector<Joiner> places;  // without the serial of the plan
  Duration now{};
};
// Versions above this one need the joiner for their commit.
struct JoinerNeeded {
  WorkerId worker;
  int64_t since = 0;
};
// A joiner has the whole state.
struct MemberJoined {
  WorkerId worker;
};

// ---- Steps and checkpoints.

// The version is final.
struct StepCommitted {
  int64_t version = 0;
};
// What the measurements of a committed step say.
struct StepMeasured {
  int64_t step = 0;
  bool clipped = false;
  bool changed = false;                         // ask the planner for another plan
  bool other = false;                           // a link or a worker has become slower or faster
  std::shared_ptr<const MonitorState> monitor;  // null: links are not watched
};
// All shards of the version are there: its manifest is written.
struct CheckpointReady {
  int64_t version = 0;
};
// The manifest is written, or writing it has failed.
struct CheckpointStored {
  int64_t version = 0;
  std::string failure;  // why; empty = it is written
};

// ---- Plans.

// The planner is asked for a plan to replace `plan`, see PlanRequest.
struct PlanAsked {
  std::shared_ptr<const Plan> plan;
  bool routing = false, update = false;
};
// The planner has answered. Stale: a joiner receives the state now, so this answer is not used and
// the planner is asked again later.
struct PlanAnswered {
  bool stale = false;
  int64_t review_at = -1;  // ask again when this version is committed; -1 = keep the old one
};
// The cluster has changed, but needs no other plan.
struct PlanKept {};
// Steps ahead of the norm are faster up to this share of clipped steps.
struct UpdateWeighed {
  double bearable = 0;
};
// A plan is sent to all. Interim: another one is to follow it.
struct PlanProposed {
  std::shared_ptr<const Plan> plan;
  bool interim = false;
};
// All know the plan: it is in force from the step on.
struct PlanInForce {
  int64_t from = 0;
};

// ---- The end.

// The step is abandoned for good: all freeze, in the next epoch, until they are told what to save.
struct StepAbandoned {
  LastResort why;
  Duration now{};
};
// The version is to be saved by the deadline, and then the run ends.
struct SalvageAgreed {
  int64_t version = 0;
  Duration deadline{};
};
// The run is over.
struct RunEnded {
  Ending ending;
};

// The workers are told something new.
struct InstructionTold {
  std::shared_ptr<const Instruction> instruction;
};

// One change of the state.
using Edit =
    std::variant<ClockAdvanced, WorkerHeard, ReportReceived, ShardSaved, RepairsAnnounced, LinkLost,
                 WorkerSuspected, StreamLost, ProcessEnded, CutOff, HeardAgain, CheckpointAsked,
                 TreatmentChanged, TraceAsked, FaultAdded, StopAsked, RunBegun, WorkerAwaited,
                 MemberLost, JoinersSentBack, RecoveryBegun, RecoveryPlanned, RestFound, EpochBegun,
                 StepsResumed, JoinerInvited, JoinerReported, JoinerDropped, JoinersPlaced,
                 JoinerNeeded, MemberJoined, LayersGiven, LayersMoved, StepCommitted, StepMeasured,
                 CheckpointReady, CheckpointStored, PlanAsked, PlanAnswered, PlanKept,
                 UpdateWeighed, PlanProposed, PlanInForce, StepAbandoned, SalvageAgreed, RunEnded,
                 InstructionTold>;

// Changes the state as the edit says.
//
// Requires: the edit was made for this state
void apply_edit(const Edit& edit, State& state);

// The edit as one line of text, without times.
std::string to_text(const Edit& edit);

// Edits in the order in which they were made. What a compiler has to write for each kind of edit is
// in edit.cc, so that not every file that holds edits is slow to compile.
class EditList {
 public:
  EditList();
  EditList(const EditList& other);
  EditList(EditList&& other) noexcept;  // leaves `other` empty
  EditList& operator=(const EditList& other);
  EditList& operator=(EditList&& other) noexcept;
  ~EditList();

  // Adds an edit behind the last.
  void add(Edit&& edit);
  // Adds an edit before the first.
  void add_first(Edit&& edit);
  // Adds all of these behind the last.
  void append(EditList edits);

  // Whether there are none.
  bool empty() const { return edits_.empty(); }
  // The last one.
  //
  // Requires: there is one
  const Edit& back() const { return edits_.back(); }
  // All of them, in order.
  std::vector<Edit>::const_iterator begin() const { return edits_.begin(); }
  // Behind the last.
  std::vector<Edit>::const_iterator end() const { return edits_.end(); }
  // All of them, in order.
  std::vector<Edit>::iterator begin() { return edits_.begin(); }
  // Behind the last.
  std::vector<Edit>::iterator end() { return edits_.end(); }

 private:
  std::vector<Edit> edits_;
};

// A state that only edits change, and the edits that have changed it so far.
class EditedState {
 public:
  explicit EditedState(State before) : state_(std::move(before)) {}

  // As it is now.
  const State& state() const { return state_; }
  // Changes the state.
  void make(Edit&& edit);
  // In the order in which they were made.
  const EditList& edits() const { return edits_; }

  // The state; leaves nothing here.
  State take_state() { return std::move(state_); }
  // The edits; leaves none here.
  EditList take_edits() { return std::move(edits_); }

 private:
  State state_;
  EditList edits_;
};

}  // namespace tenuto
