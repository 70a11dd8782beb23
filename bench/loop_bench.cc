// The cost of the worker's loop per op: the device's ops end at once, so that only the loop, the
// walk and the mailbox are measured. One worker alone, then two with the memory wire between them.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "plan/make_plan.h"
#include "runtime/device.h"
#include "runtime/worker.h"
#include "transport/memory.h"

namespace tenuto {
namespace {

// Every op ends in the call that starts it. All values that are read share one small buffer, all
// that are written another one.
class InstantDevice : public Device {
 public:
  explicit InstantDevice(Mailbox& mailbox) : mailbox_(mailbox) {}
  Result<Duration> begin(int64_t) override { return Duration(0); }
  Status start(const Op&, Duration, Ticket ticket) override {
    Done done;
    done.ticket = ticket;
    done.start = done.finish = Duration(1);
    mailbox_.post(std::move(done));
    return ok();
  }
  void set_speed(double) override {}
  Result<std::span<const std::byte>> bytes(const Value&) override {
    return std::span<const std::byte>(out_);
  }
  Result<std::span<std::byte>> allocate(const Value&) override { return std::span<std::byte>(in_); }
  Status reduced(const Value&) override { return ok(); }
  void discard(const Value&) override {}
  StepOutcome outcome() override { return {}; }
  int64_t version() const override { return 0; }
  Finality finality() override { return {}; }
  void start_over() override {}
  Status undo() override { return ok(); }
  Status save(StageId, const std::string&) override { return ok(); }
  Result<StateCopy> copy_state(StageId) override { return StateCopy(StateTensors{}); }
  Status load(const std::vector<std::string>&, int64_t) override { return ok(); }
  int64_t state_bytes(StageId) const override { return 0; }
  int64_t state_unit(StageId) const override { return 1; }
  Status read_state(StageId, int64_t, std::span<std::byte>) override { return ok(); }
  Status write_state(StageId, int64_t, std::span<const std::byte>) override { return ok(); }
  Status adopt(int64_t) override { return ok(); }

 private:
  Mailbox& mailbox_;
  alignas(64) std::vector<std::byte> out_ = std::vector<std::byte>(64);
  std::vector<std::byte> in_ = std::vector<std::byte>(64);
};

struct Row {
  std::string name;
  int64_t ops = 0;     // of one step, all workers
  double step_us = 0;  // median of one step
  double op_ns = 0;    // per op of one worker
};

Row measure(int32_t stages, int32_t micros, Dispatch dispatch, int steps) {
  Shape shape;
  shape.stages = shape.layers = stages;
  shape.micros = micros;
  shape.dispatch = dispatch;
  const Result<Plan> plan = make_plan(shape);
  CHECK(plan.ok(), plan.ok() ? "" : plan.error().message);
  struct Part {
    QueueMailbox mailbox;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<InstantDevice> compute;
    std::vector<int64_t> times;
  };
  MemoryNetwork network;
  std::vector<std::unique_ptr<Part>> parts;
  for (int32_t w = 0; w < stages; ++w) {
    auto part = std::make_unique<Part>();
    part->transport =
        make_memory_transport(network, {"bench", "", kWireVersion, {w}, 0}, part->mailbox);
    part->compute = std::make_unique<InstantDevice>(part->mailbox);
    parts.push_back(std::move(part));
  }
  for (int32_t w = 0; w + 1 < stages; ++w) {
    const auto next = static_cast<size_t>(w) + 1;
    const Status status = parts[next - 1]->transport->connect(
        {w + 1}, parts[next]->transport->address(), fresh_ticket());
    CHECK(status.ok(), "connect");
  }
  std::vector<std::thread> threads;
  for (int32_t w = 0; w < stages; ++w) {
    threads.emplace_back([&, w] {
      Part& part = *parts[static_cast<size_t>(w)];
      Runner runner({part.transport.get(), part.compute.get(), part.compute.get(), &part.mailbox,
                     &monotonic_clock(), nullptr});
      StepInput input;
      input.plan = &plan.value();
      input.self = {w};
      input.limits.silence = std::chrono::seconds(10);
      for (int step = 0; step < steps; ++step) {
        input.step = step;
        const Duration begin = monotonic_clock().now();
        const auto events = runner.run_step(input);
        CHECK(events.ok(), events.ok() ? "" : events.error().message);
        part.times.push_back((monotonic_clock().now() - begin).count());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Row row;
  for (const auto& list : plan.value().schedule.lists) row.ops += static_cast<int64_t>(list.size());
  std::vector<int64_t>& times = parts[0]->times;
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  row.step_us = static_cast<double>(times[static_cast<size_t>(steps) / 2]) / 1e3;
  row.op_ns = row.step_us * 1e3 / static_cast<double>(row.ops / stages);
  row.name = cat(stages, stages == 1 ? " worker, " : " workers, ", micros, " micro-batches, ",
                 dispatch == Dispatch::Listed ? "listed" : "ready");
  return row;
}

}  // namespace
}  // namespace tenuto

int main(int count, char** arguments) {
  const bool json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  if (count > 1 && !json) {
    std::fprintf(stderr, "loop_bench: unknown argument '%s'; usage: loop_bench [--json]\n",
                 arguments[1]);
    return 2;
  }
  using tenuto::Dispatch;
  if (!json) std::printf("%-42s %8s %12s %10s\n", "loop", "ops", "step us", "ns per op");
  std::string rows;
  for (const int32_t stages : {1, 2}) {
    for (const int32_t micros : {8, 64, 512}) {
      for (const Dispatch dispatch : {Dispatch::Listed, Dispatch::Ready}) {
        const tenuto::Row row = tenuto::measure(stages, micros, dispatch, 201);
        if (!json) {
          std::printf("%-42s %8ld %12.1f %10.0f\n", row.name.c_str(), static_cast<long>(row.ops),
                      row.step_us, row.op_ns);
        }
        rows += tenuto::cat(rows.empty() ? "" : ",\n ", "{\"name\": \"", row.name,
                            "\", \"ops\": ", row.ops, ", \"step_us\": ", row.step_us,
                            ", \"op_ns\": ", row.op_ns, "}");
      }
    }
  }
  if (json) std::printf("[%s]\n", rows.c_str());
  return 0;
}
