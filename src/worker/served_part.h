// A part of a replica of a run with server shards: its device, and what it computes with.
//
// Idea:  the device stays for the whole run. A replica of several stages has a wire of its own
//        between its parts, which is made anew for each formation (parameter_server/formation.h),
//        and with it the PartCompute and the trainer. When another part is lost in the middle of a
//        work, the work is given up, and this part waits for the next formation. With one stage
//        there are no other parts, and the trainer is there from the beginning.
// Right: tests/engine/served_part_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mailbox.h"
#include "base/result.h"
#include "ir/plan.h"
#include "parameter_server/forming_part.h"
#include "parameter_server/run_host.h"
#include "transport/memory.h"
#include "worker/local_steps.h"
#include "worker/machine.h"
#include "worker/part_compute.h"
#include "worker/part_trainer.h"
#include "worker/server_start.h"
#include "world/job.h"

namespace tenuto {

// The worker of the plan of one pipeline that holds the stage.
//
// Errors: Invalid/Call  no such stage, or nobody holds it
Result<WorkerId> holder_of(const Plan& plan, StageId stage);

// What a part is made of.
struct ServedPartSettings {
  Job job;
  Plan plan;  // of one pipeline
  PartPlace place;
  // Makes the device of this worker of the plan.
  std::function<Result<WorkerCompute>(WorkerId self, Mailbox& mailbox)> make_device;
  // Makes the wire of this worker of the plan, with this epoch in its hello. Not called with one
  // stage.
  std::function<Result<WorkerWire>(WorkerId self, int64_t epoch, Mailbox& mailbox)> make_wire;
  std::function<void()> wake_host;             // the part has news. Any thread
  std::function<void(const Error& why)> fail;  // the process cannot go on
};

// The part. Calls come from one thread, that of run_host().
class ServedPart : public servers::PartTrainer, public servers::PartWire {
 public:
  // Errors: those of holder_of, make_device and PartCompute::make
  static Result<std::unique_ptr<ServedPart>> make(ServedPartSettings settings);
  // Gives up what is under way.
  ~ServedPart() override;
  ServedPart(const ServedPart&) = delete;
  ServedPart& operator=(const ServedPart&) = delete;

  // How many elements its stage has.
  int64_t elements() const;
  // The parameters of its stage with which a run begins. Not while it has a work.
  //
  // Errors: those of stage_parameters_of
  Result<StageParameters> initial_parameters() const;
  // Its replica has other parts.
  bool has_siblings() const { return settings_.plan.stages.size() > 1; }
  // Of the replica's parts it is the one that knows the losses.
  bool is_last() const;

  // See servers::PartTrainer.
  //
  // Errors: Invalid/Call  no wire to the other parts yet
  Status begin(const servers::Work& work, const std::vector<servers::Payload>& parameters,
               Duration run_begun) override;
  std::optional<servers::ComputedIteration> advance(Duration now) override;
  // Never: it wakes its host.
  Duration due() const override { return Duration::max(); }
  void limit_cores(double cores) override;
  std::optional<servers::ValidatedReport> take_validated() override;

  // See servers::PartWire.
  //
  // Errors: those of make_wire; any error after which the device is still in use (Reach::Job)
  Result<std::string> listen(int64_t epoch) override;
  Status end() override;
  Status connect(const std::vector<std::string>& addresses) override;
  // Errors: those of PartCompute::make
  Result<bool> go_on() override;
  std::vector<StageId> take_lost() override;

 private:
  explicit ServedPart(ServedPartSettings settings);
  Status prepare();
  LocalSteps make_local_steps() const;
  Status start_trainer();
  void note_lost(StageId stage);
  void note(const Done& done);
  void take_failure(const Error& why);
  template <class Value>
  Result<Value> looked_at(Result<Value> made);

  const ServedPartSettings settings_;
  WorkerId self_;  // of the plan
  QueueMailbox mailbox_;
  MemoryNetwork alone_;  // with one stage: of the transport, over which nothing is sent
  WorkerCompute device_;
  std::optional<LocalSteps> local_steps_;  // of the whole run: their optimizer outlives formations
  WorkerWire wire_;
  int64_t epoch_ = 0;                         // of the wire's hello
  double cores_ = 0;                          // that this process may use; 0 = no limit
  std::map<Ticket, StageId> connecting_;      // that has not ended
  std::set<StageId> known_lost_;              // of this formation
  std::vector<StageId> lost_;                 // of these, those that are not taken yet
  std::optional<Error> unusable_;             // the device is in use for good
  std::optional<PartCompute> compute_;        // over the wire
  std::optional<BackgroundTrainer> trainer_;  // the last member: its thread uses the others
};

}  // namespace tenuto
