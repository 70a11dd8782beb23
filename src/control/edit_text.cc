// The edits as lines of text.
#include "base/text.h"
#include "control/edit.h"

namespace tenuto {
namespace {

const char* name_of(Phase phase) {
  if (phase == Phase::Running) return "running";
  return phase == Phase::Frozen ? "frozen" : "out";
}

std::string describe(const Report& report) {
  return cat("epoch ", report.epoch, ", version ", report.version, ", plan ", report.plan, ", ",
             name_of(report.phase), report.connected ? ", connected" : "",
             report.failure.empty() ? "" : ", failed: ", report.failure);
}

std::string name_of(const std::shared_ptr<const Plan>& plan) {
  return plan ? plan->order : std::string("none");
}

std::string text(const ClockAdvanced& edit) {
  return edit.stall.count() == 0 ? "time passes" : "the coordinator has stalled";
}
std::string text(const WorkerHeard& edit) { return cat("worker ", edit.worker, " is heard"); }
std::string text(const ReportReceived& edit) {
  return cat("worker ", edit.report.worker, " reports: ", describe(edit.report));
}
std::string text(const ShardSaved& edit) {
  return cat("stage ", edit.shard.stage, " of version ", edit.shard.version, " is in ",
             edit.shard.file);
}
std::string text(const RepairsAnnounced& edit) {
  return cat("worker ", edit.worker, " has repaired connections, the newest is ", edit.serial);
}
std::string text(const LinkLost& edit) {
  return cat("worker ", edit.worker, " has lost worker ", edit.peer);
}
std::string text(const WorkerSuspected& edit) {
  return cat("worker ", edit.worker, " is suspected: it ", edit.why);
}
std::string text(const StreamLost& edit) {
  return cat("the stream of worker ", edit.worker, " has ended");
}
std::string text(const ProcessEnded& edit) {
  return cat("the process of worker ", edit.worker, " has ended");
}
std::string text(const CutOff&) { return "no worker is heard"; }
std::string text(const HeardAgain&) { return "the workers are heard again"; }
std::string text(const CheckpointAsked& edit) {
  return cat("a checkpoint is asked for: version ", edit.version);
}
std::string text(const TreatmentChanged& edit) {
  return cat(name_of(edit.key), ": ", name_of(edit.key, edit.how), " is asked for");
}
std::string text(const TraceAsked& edit) {
  return cat("traces are asked for: from step ", edit.from, " to before ", edit.until);
}
std::string text(const FaultAdded& edit) {
  return ends_slowness(edit.fault)
             ? cat("a fault ends with step ", edit.from)
             : cat("a fault from step ", edit.from, " on: ", tenuto::describe(edit.fault));
}
std::string text(const StopAsked& edit) {
  return cat("a stop is asked for by signal ", edit.signal, ": at version ", edit.version);
}
std::string text(const RunBegun&) { return "the run begins"; }
std::string text(const WorkerAwaited& edit) {
  return cat("worker ", edit.worker, " is lost before the first step and awaited again");
}
std::string text(const MemberLost& edit) {
  return cat("worker ", edit.worker, " is declared dead");
}
std::string text(const JoinersSentBack&) { return "joiners without the whole state are sent back"; }
std::string text(const RecoveryBegun& edit) {
  return cat("recovery begins without worker ", edit.dead, ": ", edit.cause);
}
std::string text(const RecoveryPlanned& edit) {
  return cat("a better plan for the recovery: ", name_of(edit.plan));
}
std::string text(const RestFound& edit) {
  return cat("only the rest of step ", edit.rest->step, " is left to do");
}
std::string text(const EpochBegun& edit) {
  return cat("all run again", edit.redone ? ", and the step is done again" : "");
}
std::string text(const StepsResumed&) { return "the first worker runs again"; }
std::string text(const JoinerInvited& edit) {
  return cat("a process for worker ", edit.report.worker, " is invited, incarnation ",
             edit.report.incarnation);
}
std::string text(const JoinerReported& edit) {
  return cat("joiner ", edit.report.worker, " reports: ", describe(edit.report));
}
std::string text(const JoinerDropped& edit) {
  return cat("the process for worker ", edit.worker, " is dropped: ", edit.why);
}
std::string text(const JoinersPlaced& edit) {
  std::string workers;
  for (const Joiner& place : edit.places) workers += cat(" ", place.worker);
  return cat("joiners receive the state:", workers);
}
std::string text(const JoinerNeeded& edit) {
  return cat("joiner ", edit.worker, " is needed for versions above ", edit.since);
}
std::string text(const MemberJoined& edit) { return cat("worker ", edit.worker, " has joined"); }
std::string text(const LayersGiven& edit) {
  std::string moves;
  for (const LayerMove& move : edit.transfer.moves) {
    moves += cat(moves.empty() ? " stage " : ", stage ", move.stage, " from worker ", move.from,
                 " to worker ", move.to);
  }
  return cat("layers begin to move:", moves);
}
std::string text(const LayersMoved&) { return "the layers have moved"; }
std::string text(const StepCommitted& edit) {
  return cat("version ", edit.version, " is committed");
}
std::string text(const StepMeasured& edit) {
  return cat("step ", edit.step, " is measured", edit.clipped ? ", it was clipped" : "",
             edit.changed ? ", the cluster has changed" : "");
}
std::string text(const CheckpointReady& edit) {
  return cat("all shards of version ", edit.version, " are saved");
}
std::string text(const CheckpointStored& edit) {
  return edit.failure.empty()
             ? cat("the checkpoint of version ", edit.version, " is complete")
             : cat("the checkpoint of version ", edit.version, " has failed: ", edit.failure);
}
std::string text(const PlanAsked& edit) {
  return cat("the planner is asked for a plan in the place of ", name_of(edit.plan),
             edit.routing ? ", with routing" : "", edit.update ? ", with another update" : "");
}
std::string text(const PlanAnswered& edit) {
  return cat("the planner has answered", edit.stale ? ", too late" : "");
}
std::string text(const PlanKept&) { return "no other plan is needed"; }
std::string text(const UpdateWeighed& edit) {
  return cat("steps ahead of the norm are faster up to ", fixed(100 * edit.bearable, 1),
             " % of clipped steps");
}
std::string text(const PlanProposed& edit) {
  return cat(edit.interim ? "an interim plan is proposed: " : "a plan is proposed: ",
             name_of(edit.plan));
}
std::string text(const PlanInForce& edit) {
  return cat("the plan is in force from step ", edit.from);
}
std::string text(const StepAbandoned& edit) {
  return cat("the step is abandoned: ", edit.why.cause);
}
std::string text(const SalvageAgreed& edit) {
  return cat("version ", edit.version, " is to be saved at last");
}
std::string text(const RunEnded& edit) {
  return cat("the run ends with exit code ", edit.ending.exit_code,
             edit.ending.sentence.empty() ? "" : ": ", edit.ending.sentence);
}
std::string text(const InstructionTold& edit) {
  const Instruction& all = *edit.instruction;
  return cat("all are told: epoch ", all.directive.epoch, ", ", name_of(all.directive.phase),
             ", version ", all.directive.committed, ", plan ", all.plan_serial, " from ",
             all.plan_from, all.rest ? ", the rest of a step" : "");
}

}  // namespace

std::string to_text(const Edit& edit) {
  return std::visit([](const auto& of) { return text(of); }, edit);
}

}  // namespace tenuto
