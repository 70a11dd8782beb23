// A worker's process: executes the actions of decide_worker() and feeds the outcomes back. It alone
// has the stream to the coordinator, the transport, the device and the clock. worker_process.cc has
// the loop and all actions but those of a step, which worker_steps.cc has. Private to them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/mailbox.h"
#include "base/processor_use.h"
#include "protocol/client.h"
#include "runtime/worker.h"
#include "worker/background_writer.h"
#include "worker/conversation.h"
#include "worker/decide_worker.h"
#include "worker/machine.h"
#include "worker/processor_watch.h"
#include "worker/state_transfer.h"
#include "worker/worker_run.h"
#include "world/fault.h"

namespace tenuto {

// What run_worker() runs.
class WorkerProcess {
 public:
  // `conversation` has begun, and outlives this object.
  WorkerProcess(const WorkerSettings& settings, RealDevice device, Conversation& conversation);
  // See run_worker().
  WorkerEnd run();

 private:
  // The most bytes of a step's sent messages that are kept, to be sent again after a worker is
  // lost.
  static constexpr int64_t kKeptBytes = int64_t{1} << 28;

  // Handles what happens while a step runs.
  class Watch : public StepObserver {
   public:
    explicit Watch(WorkerProcess& process) : process_(process) {}
    Standing standing(int64_t step) override;
    void lost(WorkerId peer, const Error& error) override;
    void ended(int64_t count) override;
    void ends_soon() override;
    void validated() override;
    void other(const Done& done) override;

   private:
    WorkerProcess& process_;
  };

  void hear();
  void wait();
  void note(const Done& done);
  void decide(WorkerInput::What what);
  void answer_probes();

  void execute(Tell& tell);
  void execute(const Prepare& prepare);
  void execute(const MakeDevice&);
  void execute(const RenewTransport& renew);
  void execute(const Connect& connect);
  void execute(const Probe& probe);
  void execute(const Load& load);
  void execute(const Adopt& adopt);
  void execute(const Hold& hold);
  void execute(const Undo&);
  void execute(const Save& save);
  void execute(const WriteCopy&);
  void execute(const DropCopy&);
  void execute(const TransferState&);
  void execute(const Say& say);
  void execute(const Leave& leave);
  void execute(const RunStep& run);
  void execute(const Finalize&);
  void execute(const Evaluate&);

  Result<std::shared_ptr<const Job>> read_job(const std::vector<StageId>& stages) const;
  Status make_wire(const Job& job, int64_t epoch);
  void join_parts();
  Result<SavedShard> save_stage(const Save& save, StageId stage) const;
  Status copy_state(const Save& save);
  void finish_writing();
  void hear_of_writer();
  void move_transfers(const Status& before);
  TransferMoment transfer_moment();

  std::set<WorkerId> peers_at_hand() const;
  StepInput input_of(int64_t version);
  Result<StepSummary> run_step(const RunStep& run, std::vector<Repair>& repairs);
  StepNews news_of(const StepSummary& summary) const;
  void count_sizes();
  void apply_faults(int64_t step, const std::vector<Fault>& wanted);
  void break_connections(int64_t step);
  void cut_off(int64_t step);
  std::function<void(int64_t)> injected_end(int64_t step);
  void prepare_links(int64_t step);
  void choose_paths();
  void finish_summary(std::vector<Event> events, int64_t step, StepSummary& summary);
  void note_network(const WireNews& news, StepSample& sample) const;
  void skew_stamps(std::vector<Event>& events, int64_t step) const;
  const Job& job() const { return *state_.job; }
  WorkerId self() const { return settings_.self; }
  std::string name() const;

  const WorkerSettings settings_;
  const RealDevice device_;
  const std::shared_ptr<const Tls> tls_;  // null = none
  // How many workers of the run are on this host. Until it is known, they are taken to be too many.
  const std::shared_ptr<std::atomic<int32_t>> workers_here_ =
      std::make_shared<std::atomic<int32_t>>(std::numeric_limits<int32_t>::max());
  QueueMailbox& mailbox_;
  WorkerState state_;
  std::deque<WorkerInput::What> outcomes_;  // to be fed back
  std::vector<Probe> probes_;               // of the decision that is being executed
  std::optional<WorkerEnd> end_;
  Client& client_;
  StateTransfers
      transfers_;  // must outlive the transport, as the mailbox must outlive all of these
  WorkerCompute compute_;
  std::unique_ptr<Transport> transport_;
  int64_t wire_epoch_ = 0;             // of the transport
  FaultyTransport* faulty_ = nullptr;  // see WorkerWire
  StagedTransport* staged_ = nullptr;  // the transport, when the device has memory of its own
  std::map<Ticket, WorkerId> calls_;   // connections that are being made
  std::optional<Runner> runner_;
  bool in_step_ = false;                      // a step or a pass is under way
  bool trains_ = false;                       // the same, and it is a training step
  std::function<void(int64_t)> end_in_step_;  // see injected_end; in the step under way
  Watch watch_{*this};
  PathRule path_rule_;
  std::map<WorkerId, PathState> paths_;
  int64_t slots_of_plan_ = 0;        // serial of the plan for which the staging rings have slots
  StagedCounters copied_;            // as of the end of the step before
  std::vector<Fault> faults_;        // of the job and requested of the live run, in the newest step
  int64_t cut_off_at_ = -1;          // the newest step whose partitions have been injected
  std::optional<CopiedState> copy_;  // waits for WriteCopy
  BackgroundWriter writer_{[this] { mailbox_.post({}); }};
  ProcessorWatch processor_{[] { return processor_use(); }};
  Holding holding_{kKeptBytes};
  // The last step in which an injected fault ends or stops this process, and how many of its ops
  // have ended.
  std::pair<int64_t, int64_t> injected_{-1, 0};
};

}  // namespace tenuto
