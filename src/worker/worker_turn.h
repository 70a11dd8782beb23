// One turn of decide_worker: absorbs an input, then chooses what the worker does next. Private to
// decide_worker.cc, decide_epoch.cc and decide_step.cc.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/decide_worker.h"

namespace tenuto {

// What decide_worker() runs.
class WorkerTurn {
 public:
  WorkerTurn(WorkerState state, Duration now) : s_(std::move(state)), now_(now) {}
  // Absorbs the input and goes on.
  void take(const WorkerInput& input);
  // What follows from it.
  WorkerDecision decision() && { return {std::move(s_), std::move(actions_)}; }

 private:
  // Each absorbs an input; true when the worker can choose now what it does next.
  bool on(const Heard& heard);
  bool on(const ConversationOver& over);
  bool on(const LostPeer& lost);
  bool on(const Idle& idle);
  bool on(const Prepared& done);
  bool on(const DeviceMade& done);
  bool on(const Renewed& done);
  bool on(const Connected& done);
  bool on(const Probed& done);
  bool on(const Loaded& done);
  bool on(const Adopted& done);
  bool on(const HeldStages& done);
  bool on(const Undone& done);
  bool on(const Finalized& done);
  bool on(const Saved& done);
  bool on(const CopyWritten& done);
  bool on(const TransferMoved& moved);
  bool on(const Validated& validated);
  bool on(const StepEnded& ended);
  bool on(const Evaluated& done);

  // Each takes one step towards the instruction; false when there is nothing more to do before the
  // next input. decide_epoch.cc: how a worker comes to an epoch and leaves the run.
  bool next();
  bool find_place();
  bool enter();
  void open_epoch();
  bool look_for_members();
  bool get_ready();
  bool take_place();
  bool leave(const Error& error, bool later = false, bool left_out = false);
  bool leave_as_told();
  bool leave_left_out();
  // decide_step.cc: what it does in an epoch.
  bool freeze();
  bool run_steps();
  bool begin_running();
  bool save();
  bool may_copy(int64_t version) const;
  void write_committed();
  void drop_copy();
  void add_shards(const std::vector<SavedShard>& shards);
  bool acknowledge_plan();
  bool take_plan();
  bool take_stages();
  bool connect_to(const Plan& plan, const std::set<WorkerId>& more);
  bool evaluates_now() const;
  bool evaluate();
  bool begin_step(bool counts_voids);
  bool finalize();
  bool after_step();
  bool conclude();

  void unreachable(WorkerId peer, const Error& error);
  void begin_anew();
  void drop_beyond(int64_t version);
  void note_repairs(const std::vector<Repair>& repairs);
  bool ended_well(const Status& status);
  bool halts();
  bool must_be_final() const;
  bool begins_again() const;
  bool may_begin() const;
  std::vector<StageId> saved_by_me() const;

  bool is_listening() const;
  bool in_step() const;
  bool joins() const { return s_.place != Membership::First; }
  bool is_awaited() const;
  const Joiner* invitation() const;
  const Instruction& heard() const { return s_.told->instruction; }
  const Directive& directive() const { return heard().directive; }
  std::string name() const;

  // Begins an action and waits for its outcome.
  bool act(WorkerSituation situation, WorkerAction action);
  void say(std::string sentence);
  void tell();
  void fail(const Error& error);

  WorkerState s_;
  const Duration now_;
  std::optional<Duration> deadline_before_;  // of the wait that the input interrupted
  std::vector<WorkerAction> actions_;
};

}  // namespace tenuto
