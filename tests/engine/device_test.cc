// The two paths of messages (staged and direct) with the real engine: both carry the same bits. On
// the CPU the staged path treats some memory as a device's own; on an accelerator both paths run
// for real, over UCX.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "engine/engine.h"
#include "engine/toy_job.h"
#include "plan/make_plan.h"
#include "runtime/staged.h"
#include "runtime/worker.h"
#include "transport/memory.h"
#include "transport/ucx/ucx.h"
#include "world/fit.h"

namespace tenuto {
namespace {

constexpr int64_t kSteps = 3;

template <class T>
T expect(Result<T> result) {
  CHECK(result.ok(), result.error().message);
  return std::move(result).value();
}

// How the workers of a run send messages to each other.
struct Way {
  enum class Wire : uint8_t { Plain, Memory, Ucx } wire = Wire::Plain;
  Path path = Path::Staged;
  bool alternate = false;  // each worker changes its path at every step
};

struct Seat {
  WorkerId self;
  QueueMailbox mailbox;
  std::unique_ptr<Device> compute;  // outlives the wire, which copies with it
  std::unique_ptr<Transport> wire;
  StagedTransport* staged = nullptr;
  std::map<int64_t, std::vector<MicroLoss>> losses;
};

// The results of a run.
struct Outcome {
  std::vector<double> losses;            // of every micro-batch of every step
  std::vector<double> norms;             // by step
  std::vector<StagedCounters> counters;  // by worker, of staged wires
  std::map<WorkerId, std::map<Ring, int32_t>> slots;
};

class DeviceTest : public ToyTest {
 protected:
  DeviceTest() {
    write_lines("a.txt", 2000,
                [](std::ostream& out, int i) { out << i << " times 3 is " << 3 * i << ".\n"; });
  }

  Job job(int32_t stages, int32_t micros) const {
    Job job = toy_job(stages, micros);
    job.steps = kSteps;
    job.parallel.split_backward = true;
    return job;
  }

  Outcome run(const Job& job, const Way& way, EngineOptions options = {}) {
    Shape shape;
    shape.stages = job.parallel.stages;
    shape.micros = job.parallel.micros;
    shape.layers = cut_layers(job.model);
    shape.split_backward = job.parallel.split_backward;
    shape.dispatch = Dispatch::Ready;
    const Plan plan = expect(make_plan(shape));
    MemoryNetwork network;
    std::vector<std::unique_ptr<Seat>> seats;
    for (int32_t worker = 0; worker < job.worker_count(); ++worker) {
      seats.push_back(std::make_unique<Seat>());
      seats.back()->self = {worker};
      make_parts(*seats.back(), job, plan, way, options, network);
    }
    std::vector<std::thread> threads;
    for (auto& seat : seats) {
      threads.emplace_back([&, self = seat.get()] { train(*self, seats, plan, way); });
    }
    for (std::thread& thread : threads) thread.join();
    return gather(seats, plan);
  }

 private:
  static void make_parts(Seat& seat, const Job& job, const Plan& plan, const Way& way,
                         EngineOptions options, MemoryNetwork& network) {
    const Hello hello{"paths", "token", kWireVersion, seat.self, 1};
    const auto below = [&](Mailbox& mailbox) -> Result<std::unique_ptr<Transport>> {
      if (way.wire != Way::Wire::Ucx) return make_memory_transport(network, hello, mailbox);
      UcxSettings settings;
      settings.device_memory = ucx_device_memory();
      settings.on_thread = [device = job.device] { bind_device(device); };
      auto made = make_ucx_transport(settings, hello, mailbox);
      if (!made.ok()) return made.error();
      return std::unique_ptr<Transport>(std::move(made).value());
    };
    seat.compute = expect(make_engine(job, plan, {{seat.self.value}}, seat.mailbox, options));
    if (way.wire == Way::Wire::Plain) {
      seat.wire = expect(below(seat.mailbox));
      return;
    }
    auto staged = expect(make_staged_transport(seat.mailbox, monotonic_clock(), below));
    staged->use(seat.compute->copies());
    staged->set_slots(ring_slots(plan, seat.self));
    seat.staged = staged.get();
    seat.wire = std::move(staged);
  }

  static void train(Seat& seat, const std::vector<std::unique_ptr<Seat>>& seats, const Plan& plan,
                    const Way& way) {
    for (const auto& peer : seats) {
      if (peer->self.value <= seat.self.value) continue;
      const Ticket ticket = fresh_ticket();
      CHECK(seat.wire->connect(peer->self, peer->wire->address(), ticket).ok(), "it connects");
      const Done done = expect(seat.mailbox.wait(std::chrono::seconds(30)));
      CHECK(done.ticket == ticket && done.status.ok(), "the answer to connect");
    }
    Runner runner({seat.wire.get(), seat.compute.get(), seat.compute.get(), &seat.mailbox,
                   &monotonic_clock()});
    for (int64_t step = 0; step < kSteps; ++step) {
      const bool other = way.alternate && (step + seat.self.value) % 2 == 1;
      for (const auto& peer : seats) {
        if (seat.staged != nullptr) {
          seat.staged->set_path(peer->self, other ? Path::Direct : way.path);
        }
      }
      StepInput input;
      input.plan = &plan;
      input.self = seat.self;
      input.epoch = 1;
      input.step = step;
      input.limits.silence = std::chrono::seconds(60);
      expect(runner.run_step(input));
      seat.losses[step] = seat.compute->outcome().losses;
    }
  }

  static Outcome gather(const std::vector<std::unique_ptr<Seat>>& seats, const Plan& plan) {
    Outcome outcome;
    for (const auto& seat : seats) {
      for (const auto& [step, losses] : seat->losses) {
        for (const MicroLoss& loss : losses) outcome.losses.push_back(loss.loss);
      }
      outcome.norms.push_back(seat->compute->outcome().gradient_norm);
      if (seat->staged == nullptr) continue;
      outcome.counters.push_back(seat->staged->counters());
      outcome.slots[seat->self] = ring_slots(plan, seat->self);
    }
    return outcome;
  }
};

TEST_F(DeviceTest, TheStagedPathChangesNoBit) {
  constexpr int32_t kStages = 3, kMicros = 8;
  const Outcome plain = run(job(kStages, kMicros), {});
  ASSERT_EQ(plain.losses.size(), static_cast<size_t>(kSteps * kMicros));
  const Outcome staged =
      run(job(kStages, kMicros), {.wire = Way::Wire::Memory}, {.separate_memory = true});
  EXPECT_EQ(plain.losses, staged.losses);
  EXPECT_EQ(plain.norms, staged.norms);
  ASSERT_EQ(staged.counters.size(), static_cast<size_t>(kStages));
  for (int32_t worker = 0; worker < kStages; ++worker) {
    SCOPED_TRACE(worker);
    const StagedCounters& counters = staged.counters[static_cast<size_t>(worker)];
    const int64_t links = worker == 0 || worker == kStages - 1 ? 1 : 2;
    EXPECT_EQ(counters.sent, links * kMicros * kSteps);
    EXPECT_EQ(counters.received, links * kMicros * kSteps);
    EXPECT_EQ(counters.direct, 0);
    EXPECT_EQ(counters.in_use, 0);
    int32_t most = 0;
    for (const auto& [ring, slots] : staged.slots.at({worker})) most = std::max(most, slots);
    EXPECT_LE(counters.most_slots, most);
    EXPECT_LT(most, kMicros);
  }
}

TEST_F(DeviceTest, EachEndChangesItsPathByItself) {
  const Outcome plain = run(job(3, 4), {});
  const Outcome mixed =
      run(job(3, 4), {.wire = Way::Wire::Memory, .alternate = true}, {.separate_memory = true});
  EXPECT_EQ(plain.losses, mixed.losses);
  EXPECT_EQ(plain.norms, mixed.norms);
  for (const StagedCounters& counters : mixed.counters) {
    EXPECT_GT(counters.sent + counters.received, 0);
    EXPECT_GT(counters.direct, 0);
  }
}

TEST_F(DeviceTest, TheStagedPathGoesOverUcxToo) {
  const Outcome plain = run(job(2, 4), {});
  const Outcome staged = run(job(2, 4), {.wire = Way::Wire::Ucx}, {.separate_memory = true});
  EXPECT_EQ(plain.losses, staged.losses);
  EXPECT_EQ(plain.norms, staged.norms);
}

TEST_F(DeviceTest, AnAbsentDeviceIsReported) {
  if (accelerator_count() > 0) GTEST_SKIP() << "skipped: there is a device";
  Job wanted = job(1, 1);
  wanted.device.kind = "cuda";
  Shape shape;
  shape.stages = 1;
  shape.micros = 1;
  shape.layers = cut_layers(wanted.model);
  QueueMailbox mailbox;
  const auto made = make_engine(wanted, expect(make_plan(shape)), {{0}}, mailbox);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "device.kind = \"cuda\" is not here: this build of torch can use cpu; choose one of "
            "these");
  bind_device(wanted.device);  // does nothing without the device
}

// Two workers on one device, by both paths, against one worker that holds the whole model there.
TEST_F(DeviceTest, BothPathsOnAnAccelerator) {
  if (accelerator_count() == 0) GTEST_SKIP() << "skipped: no device";
  Job alone = job(1, 8), both = job(2, 8);
  alone.device.kind = both.device.kind = "cuda";
  const Outcome plain = run(alone, {.wire = Way::Wire::Memory});
  const auto expect_near = [&](const Outcome& found) {
    ASSERT_EQ(found.losses.size(), plain.losses.size());
    for (size_t i = 0; i < plain.losses.size(); ++i) {
      EXPECT_NEAR(found.losses[i], plain.losses[i], 1e-5 * std::abs(plain.losses[i])) << i;
    }
    for (const StagedCounters& counters : found.counters) {
      std::printf("to host %.3f ms, to device %.3f ms, %lld staged, %lld direct\n",
                  to_milliseconds(counters.to_host), to_milliseconds(counters.to_device),
                  static_cast<long long>(counters.sent + counters.received),
                  static_cast<long long>(counters.direct));
    }
  };
  const Outcome staged = run(both, {.wire = Way::Wire::Ucx});
  expect_near(staged);
  for (const StagedCounters& counters : staged.counters) EXPECT_EQ(counters.direct, 0);
  if (!ucx_device_memory()) GTEST_SKIP() << "skipped: the direct path, UCX does not know CUDA";
  const Outcome direct = run(both, {.wire = Way::Wire::Ucx, .path = Path::Direct});
  expect_near(direct);
  for (const StagedCounters& counters : direct.counters) EXPECT_EQ(counters.sent, 0);
}

}  // namespace
}  // namespace tenuto
