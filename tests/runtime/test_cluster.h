// A whole cluster in one process: one thread per worker, the memory wire, and paced devices, whose
// ops take no time unless the job says otherwise, or other devices.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "plan/make_plan.h"
#include "rehearsal/paced.h"
#include "rehearsal/virtual_clock.h"
#include "runtime/worker.h"
#include "transport/faulty.h"
#include "transport/memory.h"
#include "world/job.h"

namespace tenuto {

// Forwards every call; a test overrides the calls that it counts, changes or refuses.
class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(Device& under) : under_(under) {}
  Result<Duration> begin(int64_t step) override { return under_.begin(step); }
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
    return under_.start(op, inputs_at, ticket);
  }
  bool resumes() const override { return under_.resumes(); }
  void keep(const Value& value) override { under_.keep(value); }
  void drop(const Value& value) override { under_.drop(value); }
  Result<Duration> resume(int64_t step, const RestPart& rest) override {
    return under_.resume(step, rest);
  }
  void set_speed(double speed) override { under_.set_speed(speed); }
  Result<std::span<const std::byte>> bytes(const Value& value) override {
    return under_.bytes(value);
  }
  Result<std::span<std::byte>> allocate(const Value& value) override {
    return under_.allocate(value);
  }
  Copies* copies() override { return under_.copies(); }
  GradientGrowth* growth() override { return under_.growth(); }
  GivenParameters* given_parameters() override { return under_.given_parameters(); }
  Element sum_elements() const override { return under_.sum_elements(); }
  Status reduced(const Value& total) override { return under_.reduced(total); }
  void discard(const Value& value) override { under_.discard(value); }
  StepOutcome outcome() override { return under_.outcome(); }
  int64_t version() const override { return under_.version(); }
  Finality finality() override { return under_.finality(); }
  void start_over() override { under_.start_over(); }
  Status undo() override { return under_.undo(); }
  Status save(StageId stage, const std::string& path) override { return under_.save(stage, path); }
  Result<StateCopy> copy_state(StageId stage) override { return under_.copy_state(stage); }
  Status load(const std::vector<std::string>& paths, int64_t version) override {
    return under_.load(paths, version);
  }
  int64_t state_bytes(StageId stage) const override { return under_.state_bytes(stage); }
  int64_t state_unit(StageId stage) const override { return under_.state_unit(stage); }
  Status read_state(StageId stage, int64_t first, std::span<std::byte> to) override {
    return under_.read_state(stage, first, to);
  }
  Status write_state(StageId stage, int64_t first, std::span<const std::byte> from) override {
    return under_.write_state(stage, first, from);
  }
  Status adopt(int64_t version) override { return under_.adopt(version); }

 protected:
  Device& under_;
};

// Forwards every call; a test overrides the calls that it counts, changes or refuses.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> under) : under_(std::move(under)) {}
  Address address() const override { return under_->address(); }
  Status connect(WorkerId peer, const Address& address, Ticket ticket) override {
    return under_->connect(peer, address, ticket);
  }
  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    return under_->send(to, tag, bytes, stamp, ticket);
  }
  Status recv(WorkerId from, Tag tag, std::span<std::byte> bytes, Ticket ticket) override {
    return under_->recv(from, tag, bytes, ticket);
  }
  Status drop(WorkerId peer) override { return under_->drop(peer); }
  Status close(Duration limit) override { return under_->close(limit); }

 protected:
  std::unique_ptr<Transport> under_;
};

// A mailbox that can deliver every report twice, together with a report of an unknown ticket.
class TestMailbox : public QueueMailbox {
 public:
  void post(Done done) override;
  std::atomic<bool> doubling{false};
};

// The result of one worker's thread.
struct ThreadRun {
  Status status = ok();
  std::vector<std::vector<Event>> events;  // per finished step
  std::vector<StepOutcome> outcomes;       // per finished step
  std::vector<std::pair<WorkerId, std::string>> lost;
};

// A job whose ops take no time, with messages of 256 bytes and 400 bytes of weights per stage.
Job instant_job(int32_t stages, int32_t pipelines, int32_t micros);

// The plan of a job's shape; the test fails where there is none.
Plan plan_of(const Job& job);

// All workers of a plan; those that hold no stage are absent and their runs empty.
class TestCluster {
 public:
  // Wraps a worker's wire or device, so that a test can count, change or refuse calls. A null
  // result or an empty function: not wrapped.
  using WrapTransport =
      std::function<std::unique_ptr<Transport>(WorkerId, std::unique_ptr<Transport>)>;
  using WrapCompute = std::function<std::unique_ptr<Device>(WorkerId, Device&)>;

  using MakeDevice = std::function<std::unique_ptr<Device>(const std::vector<StageId>&, Mailbox&)>;

  TestCluster(const Job& job, const Plan& plan, const Clock& clock = monotonic_clock(),
              const PacedOptions& options = {});
  // With devices that are not paced.
  TestCluster(const Job& job, const Plan& plan, const MakeDevice& make);
  ~TestCluster();
  TestCluster(const TestCluster&) = delete;
  TestCluster& operator=(const TestCluster&) = delete;

  WrapTransport wrap_transport;
  // When set, every worker's wire has these faults; a thread of its own delivers the messages.
  std::optional<FaultSettings> faults;
  WrapCompute wrap_compute;
  Duration silence_limit = std::chrono::seconds(20);
  Duration retire_limit = kRetireLimit;
  // True: the worker makes its version final before it begins this step. Empty: never.
  std::function<bool(int32_t worker, int64_t step)> makes_final;
  // The plan of each step, instead of the cluster's own; workers make their version final before
  // the plan changes.
  std::function<const Plan&(int64_t step)> plan_at;
  bool makes_final_in_the_end = true;  // all workers, after the last step of a run
  // When one worker fails, all abandon the step, as under control; when `mute` fails, nobody is
  // told.
  WorkerId mute;

  // True: a step is committed when all workers have ended it; false: all steps are committed
  // beforehand.
  bool commits = false;
  // How many bytes of sent messages a worker may keep; none: workers keep no inventory either.
  std::optional<int64_t> keep_bytes;
  // The remaining ops of a step and each worker's part of them; the next run begins with these.
  struct Left {
    Plan plan;
    std::vector<RestPart> parts;
  };
  std::optional<Left> left;

  // The values of the step that the worker has.
  Inventory inventory(int32_t worker, int64_t step) const;
  // True when this is the newest step that the worker has begun.
  bool runs_step(int32_t worker, int64_t step) const;
  // How many steps are committed.
  int64_t committed() const { return committed_; }
  // Removes a worker and takes a plan without it; call connect() before the next run. Requires: in
  // that plan the others hold the same stages as before.
  void lose(WorkerId worker, const Plan& plan);
  // Reconnects all workers under the next epoch and empties their mailboxes.
  void connect();
  // Runs steps [first, first + count) on all workers, each on its own thread, until all have
  // returned. The gradient norms in the outcomes are those of final versions.
  std::vector<ThreadRun> run(int64_t first, int64_t count, bool evaluation = false);
  // In place of control: sets the standing that workers read from now on, and wakes all of them.
  void set_standing(Standing standing);

  // From now on every mailbox delivers each report twice.
  void double_reports();

  Device& compute(int32_t worker) { return *workers_[static_cast<size_t>(worker)]->device; }
  // Requires: paced devices
  PacedDevice& device(int32_t worker) { return dynamic_cast<PacedDevice&>(compute(worker)); }
  MemoryNetwork& network() { return *network_; }
  // The worker's faulty wire; call it from that worker's own thread. Requires: faults.
  FaultyTransport& faulty(int32_t worker) { return *workers_[static_cast<size_t>(worker)]->faulty; }
  int32_t size() const { return static_cast<int32_t>(workers_.size()); }
  const std::vector<StageId>& stages_of(int32_t worker) const {
    return workers_[static_cast<size_t>(worker)]->stages;
  }

 private:
  struct Worker {
    TestMailbox mailbox;
    std::vector<StageId> stages;
    std::unique_ptr<Device> device;
    std::unique_ptr<Device> compute;  // the wrapped device, or none
    std::unique_ptr<Transport> transport;
    FaultyTransport* faulty = nullptr;  // the transport, when it has faults
    std::unique_ptr<LinkClock> links;
    std::unique_ptr<Pacer> pacer;
    std::optional<Holding> holding;
  };
  class Watch;
  void make_workers(const MakeDevice& make);
  void note_end(int64_t step);

  std::unique_ptr<Transport> make_wire(Worker& worker, const Hello& hello);
  ThreadRun run_worker(int32_t index, int64_t first, int64_t count, bool evaluation);

  const Job job_;
  Plan plan_;
  const Clock& clock_;
  std::unique_ptr<MemoryNetwork> network_;
  std::vector<std::unique_ptr<Worker>> workers_;
  int64_t epoch_ = 0;
  std::atomic<int64_t> committed_{1'000'000};
  std::atomic<bool> abandon_{false};
  std::mutex mutex_;                  // guards ended_
  std::map<int64_t, int32_t> ended_;  // workers that have ended a step, by step
};

// One plain loop over all stages and micro-batches; every layout must reproduce its numbers.
class PlainLoop {
 public:
  // Requires: the job has no tied weight.
  explicit PlainLoop(const Job& job, const PacedOptions& options = {});
  // One training step.
  StepOutcome step();
  // The losses of `count` micro-batches from `first` on, with the present weights.
  std::vector<MicroLoss> evaluate(int32_t first, int32_t count) const;
  // How many stages would take the newest step before the global norm is known: each judges by the
  // norm of the stages up to itself.
  int32_t taken_ahead() const { return taken_ahead_; }
  // Weights of a stage.
  const std::vector<float>& weights(int32_t stage) const {
    return weights_[static_cast<size_t>(stage)];
  }

 private:
  std::vector<std::vector<float>> forward(MicroId micro) const;

  const Job job_;
  const PacedOptions options_;
  int32_t taken_ahead_ = 0;
  int64_t live_;
  int64_t step_ = 0;
  std::vector<std::vector<float>> weights_;
};

// Compares a finished run with the plain loop: weights of every holder, losses and norms of every
// step.
void expect_equal_runs(TestCluster& cluster, const std::vector<ThreadRun>& runs,
                       const std::vector<StepOutcome>& plain, const PlainLoop& end);

}  // namespace tenuto
