// A worker as one object: worker_run.cc has its life and its epochs, worker_join.cc how it comes to
// a run under way, worker_steps.cc its steps. Private to them.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mailbox.h"
#include "base/text.h"
#include "protocol/client.h"
#include "runtime/worker.h"
#include "worker/machine.h"
#include "worker/state_transfer.h"
#include "worker/worker_rest.h"
#include "worker/worker_run.h"
#include "world/fault.h"

namespace tenuto {

// What run_worker() runs.
class WorkerRun {
 public:
  WorkerRun(const WorkerSettings& settings, RealDevice device)
      : settings_(settings), device_(std::move(device)) {}
  // See run_worker().
  WorkerEnd run();

 private:
  static constexpr Duration kIdle = std::chrono::seconds(1);
  // At most so much of what was sent in a step is kept, to be sent again after a loss.
  static constexpr int64_t kKeptBytes = int64_t{1} << 28;

  Status take_part();
  Error left_out();
  Status connect_control();
  Status set_up();
  Status find_place();
  Status make_parts();
  Status get_ready();
  bool begins_again(const Directive& directive) const;
  bool may_begin_with(const Told& told) const;
  Status make_wire(int64_t epoch);
  Status renew_wire(int64_t epoch);
  void join_parts();
  Status enter(const Told& told);
  void begin_anew();
  bool take_place(const Told& told);
  void look_for_others(const Told& told);
  bool transfer_state(const Told& told);
  Status give_up_trust();
  Status take_back(int64_t version);
  Status connect_first() { return connect_peers(*plan_); }
  Status connect_peers(const Plan& plan, const std::set<WorkerId>& more = {});
  Status look_after(WorkerId peer, const Instruction& now, Duration& answered) const;
  Error unreachable(WorkerId peer, const Error& error);
  Status load();
  Status go_on();
  void freeze(const Told& told);
  void run_steps(const Told& told);
  void begin_running(const Told& told);
  void run_rest(const Told& told);
  bool save_if_asked(const Told& told);
  bool acknowledge_plan(const Told& told);
  bool take_plan(const Told& told);
  void step(const Told& told);
  StepInput input_of(int64_t version);
  bool resumes() const { return can_resume(job_, *plan_, *compute_.compute, compute_.links.get()); }
  // The plan that the step at hand runs by: that of what is left of it, or the one in force.
  const Plan& plan_at_hand() const { return rest_ ? rest_->told->plan : *plan_; }
  std::set<WorkerId> peers_at_hand() const;
  bool ended_well(const Status& status);
  bool is_final() const;
  bool must_be_final(const Told& told) const;
  bool settle();
  bool halts();
  void conclude();
  void apply_faults(int64_t step, const std::vector<Fault>& wanted);
  void break_connections(int64_t step);
  void cut_off(int64_t step);
  std::function<void(int64_t)> injected_end(int64_t step);
  void note_standstill(const Error& error);
  void note_repairs(const std::vector<Repair>& repairs, int64_t step);
  void choose_paths();
  bool evaluate(int64_t version, StepSummary& summary);
  void finish_summary(std::vector<Event> events, int64_t step, StepSummary& summary);
  void skew_stamps(std::vector<Event>& events, int64_t step) const;
  void fail(const Error& error);
  void wait(Duration limit);
  void note(const Done& heard);
  TransferMoment transfer_moment();
  void tell();
  std::shared_ptr<const Told> told() const { return client_->told(); }
  Status conversation() const { return client_->state(); }
  std::string name() const { return cat("worker ", settings_.self); }
  bool is_saver(const Told& told) const { return !saved_by_me(told).empty(); }
  // The stages that this worker is to save.
  std::vector<StageId> saved_by_me(const Told& told) const;

  const WorkerSettings settings_;
  const RealDevice device_;
  QueueMailbox mailbox_;
  Report report_;
  std::unique_ptr<Client> client_;
  std::shared_ptr<const Plan> plan_;             // in force
  int64_t plan_serial_ = 1;                      // of plan_
  std::shared_ptr<const std::string> job_toml_;  // of job_
  Job job_;
  std::vector<StageId> stages_;
  StateTransfers
      transfers_;  // must outlive the transport, as the mailbox must outlive all of these
  WorkerCompute compute_;
  std::unique_ptr<Transport> transport_;
  FaultyTransport* faulty_ = nullptr;  // the transport, when it rehearses links
  StagedTransport* staged_ = nullptr;  // the transport, when the device has memory of its own
  std::set<WorkerId> connected_;       // peers that this worker has called, see connect_peers
  PathRule path_rule_;
  std::map<WorkerId, PathState> paths_;
  int64_t slots_of_plan_ = 0;  // the plan that the slots are for
  StagedCounters copied_;      // as of the end of the step before
  std::optional<Runner> runner_;
  std::vector<Fault> faults_;  // of the job and requested of the live run, in the newest step
  int64_t cut_off_at_ = -1;    // the newest step whose partitions have been rehearsed
  bool entering_ = false;      // no step of this epoch has been done: peers may still connect
  std::optional<StepSummary> pending_;  // of the newest step, until its version is final
  bool in_step_ = false;                // a step is under way
  Holding holding_{kKeptBytes};
  std::optional<WorkerRest> rest_;  // of the step in which the epoch begins, until it is done
  // The last step in which an injected fault ends or stops this process, and how many of its ops
  // have ended.
  std::pair<int64_t, int64_t> injected_{-1, 0};
  bool begun_ = false;      // it has been told to run
  std::string unreached_;   // what was said last of a member that a joiner cannot reach
  bool joiner_ = false;     // it joins, or has joined, a run under way
  bool has_place_ = false;  // and its part in the steps has begun
  bool halted_ = false;     // the step gave numbers that are not finite: no step in this epoch
  bool left_out_ = false;   // the run goes on without this process
  Status fit_ = ok();       // why this process must end: its memory may still be in use
};

}  // namespace tenuto
