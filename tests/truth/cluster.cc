#include "truth/cluster.h"

#include <filesystem>
#include <map>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "base/text.h"
#include "engine/engine.h"
#include "plan/make_plan.h"
#include "runtime/worker.h"
#include "transport/faulty.h"
#include "transport/memory.h"
#include "worker/state_transfer.h"
#include "world/fault.h"
#include "world/fit.h"

namespace tenuto {

namespace {

template <class T>
T expect(Result<T> result) {
  CHECK(result.ok(), result.error().message);
  return std::move(result).value();
}

void expect(const Status& status) { CHECK(status.ok(), status.error().message); }

// The bytes of each part of a state that moves: a few parts for each layer.
constexpr int64_t kPartBytes = 1 << 15;

// One worker's thread and what it found.
struct Seat {
  WorkerId self;
  QueueMailbox mailbox;
  StateTransfers transfers{{kPartBytes, kPartBytes, kPartBytes}};  // must outlive the transport
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Device> compute;
  std::map<int64_t, std::vector<MicroLoss>> losses;
  std::map<int32_t, std::string> shards;  // by stage
};

// The wire of a worker, with the slow links of the job's faults.
std::unique_ptr<Transport> make_wire(const Job& job, MemoryNetwork& network, const Hello& hello,
                                     Mailbox& mailbox) {
  FaultSettings settings;
  for (const auto& [ends, state] : links_at(job.faults, 0, job.parallel.stages, cluster_of(job))) {
    settings.links[ends] = {state.link.latency, state.link.bytes_per_second, state.jitter};
  }
  if (settings.links.empty()) return make_memory_transport(network, hello, mailbox);
  return expect(make_faulty_transport(settings, hello.self, mailbox, monotonic_clock(),
                                      FaultDrive::Thread,
                                      [&](Mailbox& inner) -> Result<std::unique_ptr<Transport>> {
                                        return make_memory_transport(network, hello, inner);
                                      }));
}

void connect_to_higher(Seat& seat, int32_t worker_count) {
  for (int32_t peer = seat.self.value + 1; peer < worker_count; ++peer) {
    const Ticket ticket = fresh_ticket();
    expect(seat.transport->connect({peer}, {cat("worker-", peer)}, ticket));
    const Done done = expect(seat.mailbox.wait(std::chrono::seconds(30)));
    CHECK(done.ticket == ticket, "the answer to connect");
    expect(done.status);
  }
}

// Notes which transfers end while a step runs.
class TransferObserver : public StepObserver {
 public:
  explicit TransferObserver(Seat& seat) : seat_(seat) {}
  void other(const Done& done) override { seat_.transfers.note(done, monotonic_clock().now()); }

 private:
  Seat& seat_;
};

StepInput input_of(const Seat& seat, const Plan& plan, int64_t step) {
  StepInput input;
  input.plan = &plan;
  input.self = seat.self;
  input.epoch = 1;
  input.step = step;
  input.limits.silence = std::chrono::seconds(60);
  return input;
}

// Sends and receives the parts that are due before the step. `serial`: the number of the plan.
void transfer(Seat& seat, const PlannedSteps& phase, int64_t serial, int64_t step) {
  std::vector<Joiner> receivers;
  for (const LayerMove& move : phase.moves) {
    receivers.push_back({move.to, 0, {move.stage}, {move.from}, serial});
  }
  const auto moment = [&] {
    TransferMoment now{.self = seat.self, .epoch = 1, .version = step, .plan_serial = serial};
    now.now = monotonic_clock().now();
    now.transport = seat.transport.get();
    now.state = seat.compute.get();
    return now;
  };
  expect(seat.transfers.begin(receivers, moment()));
  while (!seat.transfers.ready()) {
    const Done done = expect(seat.mailbox.wait(std::chrono::seconds(30)));
    seat.transfers.note(done, monotonic_clock().now());
    expect(seat.transfers.advance(moment()));
  }
}

// Trains the steps of one phase up to `last`.
void train(Seat& seat, Runner& runner, const PlannedSteps& phase, int64_t serial, int64_t last) {
  TransferObserver observer(seat);
  for (int64_t step = phase.first; step < last; ++step) {
    if (!phase.moves.empty()) transfer(seat, phase, serial, step);
    StepInput input = input_of(seat, phase.plan, step);
    input.observer = &observer;
    expect(runner.run_step(input));
    seat.losses[step] = seat.compute->outcome().losses;
  }
  expect(runner.make_final(input_of(seat, phase.plan, last)));
  for (const LayerMove& move : phase.moves) {
    const int64_t received = seat.transfers.received();
    CHECK(move.to != seat.self || (received > phase.first && received <= last),
          cat("worker ", seat.self, " has the whole state of layer ", move.stage, " at version ",
              received, ", expected one from ", phase.first + 1, " to ", last));
  }
}

void train(Seat& seat, const std::vector<PlannedSteps>& phases, int64_t last) {
  Runner runner({seat.transport.get(), seat.compute.get(), seat.compute.get(), &seat.mailbox,
                 &monotonic_clock()});
  for (size_t i = 0; i < phases.size(); ++i) {
    const Plan& plan = phases[i].plan;
    if (i > 0) expect(seat.compute->hold(plan, stages_of(plan.stages, seat.self)));
    train(seat, runner, phases[i], static_cast<int64_t>(i),
          i + 1 < phases.size() ? phases[i + 1].first : last);
  }
}

double mean_loss(std::vector<std::unique_ptr<Seat>>& seats, int64_t step) {
  std::map<int32_t, double> losses;
  for (const auto& seat : seats) {
    for (const MicroLoss& loss : seat->losses[step]) losses[loss.micro.value] = loss.loss;
  }
  double sum = 0;
  for (const auto& [micro, loss] : losses) sum += loss;
  return sum / static_cast<double>(losses.size());
}

}  // namespace

Plan plan_of(const Job& job) {
  Shape shape;
  shape.stages = job.parallel.stages;
  shape.chunks = job.parallel.chunks;
  shape.pipelines = job.parallel.pipelines;
  shape.micros = job.parallel.micros;
  shape.layers = cut_layers(job.model);
  shape.order = job.parallel.order;
  shape.dispatch = job.parallel.dispatch == "listed" ? Dispatch::Listed : Dispatch::Ready;
  shape.split_backward = job.parallel.split_backward;
  shape.tied = job.model.tied;
  shape.staggered = job.parallel.optimizer == "staggered";
  shape.all_reduce = job.parallel.all_reduce;
  return expect(make_plan(shape));
}

ClusterResult run_cluster(const Job& job, int64_t first, int64_t last,
                          const std::vector<std::string>& resume, const std::string& directory) {
  return run_cluster(job, plan_of(job), first, last, resume, directory);
}

namespace {

ClusterResult run_all(const Job& job, const std::vector<PlannedSteps>& phases, int64_t last,
                      const std::vector<std::string>& resume, const std::string& directory) {
  const int64_t first = phases.front().first;
  MemoryNetwork network;
  std::vector<std::unique_ptr<Seat>> seats;
  for (int32_t worker = 0; worker < job.worker_count(); ++worker) {
    auto seat = std::make_unique<Seat>();
    seat->self = {worker};
    const Hello hello{"truth", "token", kWireVersion, seat->self, 1};
    seat->transport = make_wire(job, network, hello, seat->mailbox);
    seats.push_back(std::move(seat));
  }
  std::filesystem::create_directories(directory);
  std::vector<std::thread> threads;
  for (auto& seat : seats) {
    threads.emplace_back([&, self = seat.get()] {
      const Plan& begin = phases.front().plan;
      const std::vector<StageId> stages = stages_of(begin.stages, self->self);
      connect_to_higher(*self, job.worker_count());
      if (stages.empty()) return;
      self->compute = expect(make_engine(job, begin, stages, self->mailbox));
      self->compute->set_speed(speed_at(job.faults, 0, self->self, job.parallel.stages));
      if (!resume.empty()) expect(self->compute->load(resume, first));
      train(*self, phases, last);
      const Plan& end = phases.back().plan;
      for (const StageId stage : stages_of(end.stages, self->self)) {
        if (end.stages[static_cast<size_t>(stage.value)].holders.front() != self->self) continue;
        self->shards[stage.value] = cat(directory, "/stage-", stage, ".safetensors");
        expect(self->compute->save(stage, self->shards[stage.value]));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ClusterResult result;
  for (int64_t step = first; step < last; ++step) result.losses.push_back(mean_loss(seats, step));
  std::map<int32_t, std::string> shards;
  for (const auto& seat : seats) shards.insert(seat->shards.begin(), seat->shards.end());
  for (const auto& [stage, path] : shards) result.shards.push_back(path);
  return result;
}

}  // namespace

ClusterResult run_cluster(const Job& job, const Plan& plan, int64_t first, int64_t last,
                          const std::vector<std::string>& resume, const std::string& directory) {
  return run_all(job, {{plan, first}}, last, resume, directory);
}

ClusterResult run_phases(const Job& job, const std::vector<PlannedSteps>& phases, int64_t last,
                         const std::string& directory) {
  return run_all(job, phases, last, {}, directory);
}

}  // namespace tenuto
