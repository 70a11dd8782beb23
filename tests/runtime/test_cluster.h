// A whole cluster in one process: a thread per worker, the memory wire, paced devices whose ops
// take no time unless the job says otherwise, or any other device.
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
#include "runtime/paced.h"
#include "runtime/worker.h"
#include "transport/faulty.h"
#include "transport/memory.h"
#include "world/job.h"

namespace tenuto {

// Hands every call on: tests override what they hinder.
class ForwardingCompute : public Compute {
 public:
  explicit ForwardingCompute(Compute& under) : under_(under) {}
  Status begin(int64_t step) override { return under_.begin(step); }
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
    return under_.start(op, inputs_at, ticket);
  }
  bool resumes() const override { return under_.resumes(); }
  void keep(const Value& value) override { under_.keep(value); }
  void drop(const Value& value) override { under_.drop(value); }
  Status resume(int64_t step, const Remainder& rest) override { return under_.resume(step, rest); }
  void set_speed(double speed) override { under_.set_speed(speed); }
  Duration nominal() const override { return under_.nominal(); }
  Result<std::span<const std::byte>> bytes(const Value& value) override {
    return under_.bytes(value);
  }
  Result<std::span<std::byte>> room(const Value& value) override { return under_.room(value); }
  Copies* copies() override { return under_.copies(); }
  Element sum_elements() const override { return under_.sum_elements(); }
  Status reduced(const Value& total) override { return under_.reduced(total); }
  void discard(const Value& value) override { under_.discard(value); }
  StepOutcome outcome() override { return under_.outcome(); }
  int64_t version() const override { return under_.version(); }
  Finality finality() override { return under_.finality(); }
  void start_over() override { under_.start_over(); }
  Status undo() override { return under_.undo(); }
  Status save(StageId stage, const std::string& path) override { return under_.save(stage, path); }
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
  Compute& under_;
};

// Hands every call on: tests override what they hinder.
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

// A mailbox that can deliver every report twice, and with it one that nobody asked for.
class TestMailbox : public QueueMailbox {
 public:
  void post(Done done) override;
  std::atomic<bool> doubling{false};
};

// What one worker's thread came to.
struct ThreadRun {
  Status status = ok();
  std::vector<std::vector<Event>> events;  // per finished step
  std::vector<StepOutcome> outcomes;       // per finished step
  std::vector<std::pair<WorkerId, std::string>> lost;
};

// A job whose ops take no time, with a message of 256 and weights of 400 bytes.
Job instant_job(int32_t stages, int32_t pipelines, int32_t micros);

// The plan of a job's shape; the test fails where there is none.
Plan plan_of(const Job& job);

// All workers of a plan; those that hold no stage are absent and their runs empty.
class TestCluster {
 public:
  // Wraps what a worker runs on: a test may count or hinder calls. Null or empty = as it is.
  using WrapTransport =
      std::function<std::unique_ptr<Transport>(WorkerId, std::unique_ptr<Transport>)>;
  using WrapCompute = std::function<std::unique_ptr<Compute>(WorkerId, Compute&)>;

  using MakeDevice = std::function<std::unique_ptr<Compute>(const std::vector<StageId>&, Mailbox&)>;

  TestCluster(const Job& job, const Plan& plan, const Clock& clock = monotonic_clock(),
              const PacedOptions& options = {});
  // With devices that are not paced.
  TestCluster(const Job& job, const Plan& plan, const MakeDevice& make);
  ~TestCluster();
  TestCluster(const TestCluster&) = delete;
  TestCluster& operator=(const TestCluster&) = delete;

  WrapTransport wrap_transport;
  // When set, every worker's wire has these faults, handed over by a thread of its own.
  std::optional<FaultSettings> faults;
  WrapCompute wrap_compute;
  Duration silence_limit = std::chrono::seconds(20);
  Duration retire_limit = kRetireLimit;
  // Before which steps a worker makes its version final ahead of them; empty: none.
  std::function<bool(int32_t worker, int64_t step)> settles;
  // The plan of a step, in the place of the cluster's own; before another one all workers settle.
  std::function<const Plan&(int64_t step)> plan_at;
  bool settles_in_the_end = true;  // all workers, after the last step of a run
  // As control does: one failure, and all abandon the step. Of this worker it hears nothing.
  WorkerId mute;

  // Commits each step when all have ended it; else all are committed beforehand.
  bool commits = false;
  // What a worker may keep of what it has sent; none: it keeps no account of what it has.
  std::optional<int64_t> keep_bytes;
  // What is left of a step, and each worker's part of it: the next run begins with it.
  struct Left {
    Plan plan;
    std::vector<Remainder> parts;
  };
  std::optional<Left> left;

  // What the worker has of the step.
  Inventory inventory(int32_t worker, int64_t step) const;
  // True when the step is the one that it ran last.
  bool runs_step(int32_t worker, int64_t step) const;
  // Of what is committed: as many steps.
  int64_t committed() const { return committed_; }
  // Goes on without a worker, under a plan without it, when all have been connected anew. Requires:
  // the others hold what they held.
  void lose(WorkerId worker, const Plan& plan);
  // Connects all workers anew, under the next epoch, and forgets what the mailboxes hold.
  void connect();
  // Runs steps [first, first + count) on all workers, each on its own thread, until all have
  // returned. Outcomes are those of final versions.
  std::vector<ThreadRun> run(int64_t first, int64_t count, bool evaluation = false);
  // Control's side: what standing says from now on, with news to all.
  void set_standing(Standing standing);

  // From now on reports come twice.
  void double_reports();

  Compute& compute(int32_t worker) { return *workers_[static_cast<size_t>(worker)]->device; }
  // Requires: paced devices
  PacedCompute& device(int32_t worker) { return dynamic_cast<PacedCompute&>(compute(worker)); }
  MemoryNetwork& network() { return *network_; }
  // The wire with its faults; to be called from the worker's own thread. Requires: faults.
  FaultyTransport& faulty(int32_t worker) { return *workers_[static_cast<size_t>(worker)]->faulty; }
  int32_t size() const { return static_cast<int32_t>(workers_.size()); }
  const std::vector<StageId>& stages_of(int32_t worker) const {
    return workers_[static_cast<size_t>(worker)]->stages;
  }

 private:
  struct Worker {
    TestMailbox mailbox;
    std::vector<StageId> stages;
    std::unique_ptr<Compute> device;
    std::unique_ptr<Compute> compute;  // the wrapped device, or none
    std::unique_ptr<Transport> transport;
    FaultyTransport* faulty = nullptr;  // the transport, when it has faults
    std::unique_ptr<LinkClock> links;
    std::optional<Holding> holding;
  };
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

// One plain loop over all stages and micro-batches: what every layout must come to.
class PlainLoop {
 public:
  // Of a job without a tied weight.
  explicit PlainLoop(const Job& job, const PacedOptions& options = {});
  // One training step.
  StepOutcome step();
  // The losses of `count` micro-batches from `first` on, on the weights as they are.
  std::vector<MicroLoss> evaluate(int32_t first, int32_t count) const;
  // How many stages, from the first, would take the newest step by the norm up to them.
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

// Compares a finished run with a plain one: weights of every holder, losses and norms of every
// step.
void expect_equal_runs(TestCluster& cluster, const std::vector<ThreadRun>& runs,
                       const std::vector<StepOutcome>& plain, const PlainLoop& end);

}  // namespace tenuto
