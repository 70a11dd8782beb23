#include "test_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <thread>

#include "base/exact_sum.h"
#include "rehearsal/message_sizes.h"
#include "rehearsal/paced_math.h"
#include "runtime/path.h"
#include "runtime/staged.h"

namespace tenuto {

void TestMailbox::post(Done done) {
  if (doubling && done.ticket != kNoTicket) {
    Done stranger = done;
    stranger.ticket = Ticket{static_cast<uint64_t>(done.ticket) + (uint64_t{1} << 40)};
    stranger.status = invalid("a report that nobody asked for");
    QueueMailbox::post(std::move(stranger));
    QueueMailbox::post(done);
  }
  QueueMailbox::post(std::move(done));
}

Job instant_job(int32_t stages, int32_t pipelines, int32_t micros) {
  Job job;
  job.parallel.stages = stages;
  job.parallel.pipelines = pipelines;
  job.parallel.micros = micros;
  job.parallel.dispatch = "listed";
  job.device.kind = "paced";
  job.device.forward_ms = {0};
  job.device.backward_input_ms = {0};
  job.device.backward_weight_ms = {0};
  job.device.message_bytes = 256;
  job.device.parameter_bytes = 400;
  job.device.clock = "real";
  return job;
}

Plan plan_of(const Job& job) {
  Shape shape;
  shape.stages = job.parallel.stages;
  shape.pipelines = job.parallel.pipelines;
  shape.micros = job.parallel.micros;
  shape.chunks = job.parallel.chunks;
  shape.order = job.parallel.order;
  shape.dispatch = job.parallel.dispatch == "ready" ? Dispatch::Ready : Dispatch::Listed;
  shape.split_backward = job.parallel.split_backward;
  shape.staggered = job.parallel.optimizer == "staggered";
  shape.all_reduce = job.parallel.all_reduce;
  shape.evaluation_micros = job.validate_micros;
  const Result<Plan> plan = make_plan(shape);
  EXPECT_TRUE(plan.ok()) << (plan.ok() ? "" : plan.error().message);
  return plan.ok() ? plan.value() : Plan{};
}

TestCluster::TestCluster(const Job& job, const Plan& plan, const Clock& clock,
                         const PacedOptions& options)
    : job_(job), plan_(plan), clock_(clock) {
  make_workers([&](const std::vector<StageId>& stages, Mailbox& mailbox) {
    return make_paced(job_, plan_, stages, clock_, mailbox, options);
  });
}

TestCluster::TestCluster(const Job& job, const Plan& plan, const MakeDevice& make)
    : job_(job), plan_(plan), clock_(monotonic_clock()) {
  make_workers(make);
}

void TestCluster::make_workers(const MakeDevice& make) {
  for (size_t w = 0; w < plan_.schedule.lists.size(); ++w) {
    auto worker = std::make_unique<Worker>();
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      const auto& holders = plan_.stages[s].holders;
      const WorkerId self{static_cast<int32_t>(w)};
      if (std::find(holders.begin(), holders.end(), self) == holders.end()) continue;
      worker->stages.push_back({static_cast<int32_t>(s)});
    }
    if (!worker->stages.empty()) worker->device = make(worker->stages, worker->mailbox);
    if (job_.device.kind == "paced" && job_.device.clock == "virtual") {
      worker->links =
          std::make_unique<LinkClock>(make_link_clock(job_, plan_, {static_cast<int32_t>(w)}));
      worker->links->set_sizes(message_sizes(job_, plan_));
      worker->pacer = std::make_unique<VirtualClock>(*worker->links);
    }
    workers_.push_back(std::move(worker));
  }
}

TestCluster::~TestCluster() {
  for (const auto& worker : workers_) worker->transport.reset();
}

std::unique_ptr<Transport> TestCluster::make_wire(Worker& worker, const Hello& hello) {
  if (Copies* copies = worker.device ? worker.device->copies() : nullptr; copies != nullptr) {
    auto staged = make_staged_transport(worker.mailbox, clock_, [&](Mailbox& mailbox) {
      return Result(make_memory_transport(*network_, hello, mailbox, clock_));
    });
    CHECK(staged.ok(), "a wire of this process can always be made");
    staged.value()->use(copies);
    staged.value()->set_slots(ring_slots(plan_, hello.self));
    return std::move(staged).value();
  }
  if (!faults) return make_memory_transport(*network_, hello, worker.mailbox, clock_);
  using Made = Result<std::unique_ptr<Transport>>;
  auto made =
      make_faulty_transport(*faults, hello.self, worker.mailbox, clock_, FaultDrive::Thread,
                            [&](Mailbox& mailbox) -> Made {
                              return make_memory_transport(*network_, hello, mailbox, clock_);
                            });
  CHECK(made.ok(), "a wire of this process can always be made");
  worker.faulty = made.value().get();
  return std::move(made).value();
}

void TestCluster::lose(WorkerId worker, const Plan& plan) {
  plan_ = plan;
  workers_[static_cast<size_t>(worker.value)]->stages.clear();
}

void TestCluster::connect() {
  for (const auto& worker : workers_) worker->transport.reset();
  network_ = std::make_unique<MemoryNetwork>();
  ++epoch_;
  abandon_ = false;
  ended_.clear();
  if (commits && committed_ > 1'000) committed_ = 0;
  for (int32_t w = 0; w < size(); ++w) {
    Worker& worker = *workers_[static_cast<size_t>(w)];
    while (worker.mailbox.wait(Duration(0)).ok()) {
    }
    const Hello hello{"test", "token", kWireVersion, {w}, epoch_};
    worker.transport = make_wire(worker, hello);
    if (wrap_transport) worker.transport = wrap_transport({w}, std::move(worker.transport));
    if (wrap_compute && worker.device) worker.compute = wrap_compute({w}, *worker.device);
  }
  for (int32_t from = 0; from < size(); ++from) {
    for (int32_t to = from + 1; to < size(); ++to) {
      const Address address = workers_[static_cast<size_t>(to)]->transport->address();
      Transport& transport = *workers_[static_cast<size_t>(from)]->transport;
      const Status status = transport.connect({to}, address, fresh_ticket());
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
  }
}

void TestCluster::set_standing(Standing standing) {
  committed_ = standing.committed;
  abandon_ = standing.abandon;
  for (const auto& worker : workers_) worker->mailbox.post({});
}

void TestCluster::double_reports() {
  for (const auto& worker : workers_) worker->mailbox.doubling = true;
}

// What a worker's thread notes of its steps, from step `first` on.
class TestCluster::Watch : public StepObserver {
 public:
  Watch(const TestCluster& cluster, Optimizer& optimizer, ThreadRun& run, int64_t first)
      : cluster_(cluster), optimizer_(optimizer), run_(run), first_(first) {}
  Standing standing(int64_t) override { return {cluster_.committed_, cluster_.abandon_}; }
  void lost(WorkerId peer, const Error& error) override {
    run_.lost.emplace_back(peer, error.message);
  }
  void validated() override {
    const Finality now = optimizer_.finality();
    const int64_t step = now.version - 1 - first_;
    if (step < 0 || step >= static_cast<int64_t>(run_.outcomes.size())) return;
    run_.outcomes[static_cast<size_t>(step)].gradient_norm = now.gradient_norm;
    run_.outcomes[static_cast<size_t>(step)].finite = now.finite;
  }

 private:
  const TestCluster& cluster_;
  Optimizer& optimizer_;
  ThreadRun& run_;
  const int64_t first_;
};

ThreadRun TestCluster::run_worker(int32_t index, int64_t first, int64_t count, bool evaluation) {
  Worker& worker = *workers_[static_cast<size_t>(index)];
  if (worker.stages.empty()) return {};
  Device* device = worker.compute ? worker.compute.get() : worker.device.get();
  Runner runner({worker.transport.get(), device, device, &worker.mailbox, &clock_,
                 worker.pacer.get(), device->growth()});
  ThreadRun run;
  StepInput input;
  input.plan = &plan_;
  input.evaluation = evaluation;
  input.self = {index};
  input.epoch = epoch_;
  input.limits = {silence_limit, retire_limit};
  Watch watch(*this, *device, run, first);
  input.observer = &watch;
  if (keep_bytes && !worker.holding) worker.holding.emplace(*keep_bytes);
  if (worker.holding && !evaluation) input.recovery.holding = &*worker.holding;
  for (int64_t step = first; step < first + count; ++step) {
    input.step = step;
    const bool rest = left && step == first;
    const Plan* const next = rest ? &left->plan : plan_at ? &plan_at(step) : &plan_;
    if (step > first && next != input.plan) run.status = runner.make_final(input);
    if (!run.status.ok()) return run;
    input.plan = next;
    input.recovery.rest = rest ? &left->parts[static_cast<size_t>(index)] : nullptr;
    const Cluster devices = cluster_of(job_);
    const auto at = static_cast<size_t>(index);
    device->set_speed((at < devices.workers.size() ? devices.workers[at].speed : 1) *
                      speed_at(job_.faults, step, {index}, job_.parallel.stages));
    if (worker.links) {
      worker.links->set_links(links_at(job_.faults, step, job_.parallel.stages, cluster_of(job_)),
                              {index}, static_cast<uint64_t>(job_.seed));
    }
    if (makes_final && makes_final(index, step)) run.status = runner.make_final(input);
    Result<std::vector<Event>> events = runner.run_step(input);
    if (!events.ok()) {
      run.status = events.error();
      if (mute.value != index) set_standing({committed_, true});
      return run;
    }
    run.events.push_back(std::move(events).value());
    run.outcomes.push_back(device->outcome());
    if (commits) note_end(step);
  }
  input.step = first + count;
  if (!evaluation && makes_final_in_the_end) run.status = runner.make_final(input);
  return run;
}

// Commits a step that all workers have ended, as control does.
void TestCluster::note_end(int64_t step) {
  {
    const std::lock_guard lock(mutex_);
    const auto members = std::count_if(workers_.begin(), workers_.end(),
                                       [](const auto& worker) { return !worker->stages.empty(); });
    if (++ended_[step] < members) return;
  }
  set_standing({step + 1, abandon_});
}

Inventory TestCluster::inventory(int32_t worker, int64_t step) const {
  const auto& holding = workers_[static_cast<size_t>(worker)]->holding;
  return holding ? holding->inventory(step, !plan_.split_backward) : Inventory{};
}

bool TestCluster::runs_step(int32_t worker, int64_t step) const {
  const auto& holding = workers_[static_cast<size_t>(worker)]->holding;
  return holding && holding->step() == step;
}

std::vector<ThreadRun> TestCluster::run(int64_t first, int64_t count, bool evaluation) {
  std::vector<ThreadRun> runs(workers_.size());
  std::vector<std::thread> threads;
  for (int32_t w = 0; w < size(); ++w) {
    threads.emplace_back(
        [&, w] { runs[static_cast<size_t>(w)] = run_worker(w, first, count, evaluation); });
  }
  for (std::thread& thread : threads) thread.join();
  left.reset();
  return runs;
}

PlainLoop::PlainLoop(const Job& job, const PacedOptions& options) : job_(job), options_(options) {
  live_ = std::min<int64_t>(job.device.message_bytes / 4 - 4, kPacedLive);
  const OrderCard* card = find_card(job.parallel.order);
  const int32_t chunks = job.parallel.chunks > 0 ? job.parallel.chunks : card->chunks;
  for (int32_t s = 0; s < job.parallel.stages * chunks; ++s) {
    weights_.push_back(paced_weights(job.seed, {s}, job.device.parameter_bytes / 4));
  }
}

// Returns the input of every stage, then the output of the last.
std::vector<std::vector<float>> PlainLoop::forward(MicroId micro) const {
  std::vector<std::vector<float>> values{paced_input({step_}, micro, live_)};
  for (const std::vector<float>& weights : weights_) {
    std::vector<float> y(static_cast<size_t>(live_));
    paced_forward(weights, values.back(), y);
    values.push_back(std::move(y));
  }
  return values;
}

StepOutcome PlainLoop::step() {
  StepOutcome outcome;
  outcome.learning_rate = 1;
  std::vector<std::vector<float>> sums;
  for (const std::vector<float>& weights : weights_) sums.emplace_back(weights.size());
  for (int32_t m = 0; m < job_.micro_count(); ++m) {
    const std::vector<std::vector<float>> values = forward({m});
    outcome.losses.push_back({{m}, paced_loss(values.back())});
    std::vector<float> dy = values.back();
    for (size_t s = weights_.size(); s-- > 0;) {
      paced_backward_weight(values[s], dy, sums[s]);
      std::vector<float> dx(dy.size());
      paced_backward_input(dy, dx);
      dy = dx;
    }
  }
  ExactSum squares;
  taken_ahead_ = 0;
  double clip = 1;
  for (size_t s = 0; s < sums.size(); ++s) {
    for (float& element : sums[s]) element /= static_cast<float>(job_.micro_count());
    squares.add(paced_square(0, sums[s]));
    if (options_.bad && options_.bad(step_, {static_cast<int32_t>(s)})) outcome.finite = false;
    outcome.gradient_norm = std::sqrt(squares.value());
    if (options_.clip > 0) clip = std::min(1.0, options_.clip / (outcome.gradient_norm + 1e-6));
    if (outcome.finite && clip == 1) ++taken_ahead_;
  }
  for (size_t s = 0; s < weights_.size() && outcome.finite; ++s) {
    paced_update(weights_[s], sums[s], clip);
  }
  ++step_;
  return outcome;
}

std::vector<MicroLoss> PlainLoop::evaluate(int32_t first, int32_t count) const {
  std::vector<MicroLoss> losses;
  for (int32_t m = first; m < first + count; ++m) {
    losses.push_back({{m}, paced_loss(forward({m}).back())});
  }
  return losses;
}

void expect_equal_runs(TestCluster& cluster, const std::vector<ThreadRun>& runs,
                       const std::vector<StepOutcome>& plain, const PlainLoop& end) {
  std::vector<std::map<int32_t, double>> losses(plain.size());
  for (int32_t w = 0; w < cluster.size(); ++w) {
    const ThreadRun& run = runs[static_cast<size_t>(w)];
    ASSERT_TRUE(run.status.ok()) << run.status.error().message;
    if (cluster.stages_of(w).empty()) continue;
    ASSERT_EQ(run.outcomes.size(), plain.size());
    std::vector<float> weights;
    for (const StageId stage : cluster.stages_of(w)) {
      const std::vector<float>& own = end.weights(stage.value);
      weights.insert(weights.end(), own.begin(), own.end());
    }
    EXPECT_EQ(cluster.device(w).weights(), weights) << "worker " << w;
    for (size_t step = 0; step < plain.size(); ++step) {
      EXPECT_EQ(run.outcomes[step].gradient_norm, plain[step].gradient_norm) << "step " << step;
      EXPECT_EQ(run.outcomes[step].finite, plain[step].finite) << "step " << step;
      for (const MicroLoss& loss : run.outcomes[step].losses) {
        EXPECT_TRUE(losses[step].emplace(loss.micro.value, loss.loss).second);
      }
    }
  }
  for (size_t step = 0; step < plain.size(); ++step) {
    ASSERT_EQ(losses[step].size(), plain[step].losses.size());
    for (const MicroLoss& loss : plain[step].losses) {
      EXPECT_EQ(losses[step][loss.micro.value], loss.loss) << "micro " << loss.micro.value;
    }
  }
}

}  // namespace tenuto
