// A model is measured layer by layer: its form, and its bytes, which are the same every time. What
// the bytes predict for a step is what the engine takes.
#include "worker/layer_times.h"

#include <numeric>

#include "engine/engine.h"
#include "engine/toy_job.h"
#include "plan/stage_plan.h"
#include "runtime/worker.h"
#include "transport/memory.h"
#include "world/fit.h"
// After headers that may define a CHECK of their own.
#include "base/check.h"

namespace tenuto {
namespace {

constexpr int64_t kFloat = 4;

template <class T>
T expect(Result<T> result) {
  CHECK(result.ok(), result.error().message);
  return std::move(result).value();
}

RealDevice engine() {
  return {[](const Job& job, const Plan& plan, const std::vector<StageId>& stages,
             Mailbox& mailbox) { return make_engine(job, plan, stages, mailbox); },
          bind_device, [](const DeviceSettings& device) { return &memory_count(device); }};
}

class LayerTimes : public ToyTest {
 protected:
  LayerTimes() {
    write_lines("a.txt", 2000,
                [](std::ofstream& out, int i) { out << i << " and " << i * i << "\n"; });
  }
  static ModelProfile measured(const Job& job) {
    constexpr int32_t kMicros = 2;
    const int32_t layers = cut_layers(job.model);
    const LayerWork work{alone(job, kMicros), expect(make_lone_plan(layers, 1, kMicros)),
                         expect(make_lone_plan(1, layers, kMicros)), job.model.tied,
                         std::chrono::seconds(0)};
    return expect(measure_layers(work, engine()));
  }
};

TEST_F(LayerTimes, RowsAreHalved) {
  EXPECT_EQ(measured_rows(1), (std::vector<int32_t>{1}));
  EXPECT_EQ(measured_rows(4), (std::vector<int32_t>{1, 2, 4}));
  EXPECT_EQ(measured_rows(10), (std::vector<int32_t>{1, 2, 3, 5, 10}));
}

TEST_F(LayerTimes, HasTheFormOfTheModel) {
  Job job = toy_job(2, 2);
  job.parallel.micro_rows = 3;
  const ModelProfile profile = measured(job);
  EXPECT_EQ(profile.rows, (std::vector<int32_t>{1, 2, 3}));
  ASSERT_EQ(profile.layers.size(), 4u);
  EXPECT_EQ(profile.layers[0].name, "embedding");
  EXPECT_EQ(profile.layers[1].name, "block 0");
  EXPECT_EQ(profile.layers[3].name, "head");
  EXPECT_EQ(profile.tied.count, 0);
  EXPECT_GT(profile.op.count(), 0);
  for (const LayerProfile& layer : profile.layers) {
    EXPECT_EQ(layer.forward.size(), 3u);
    EXPECT_EQ(layer.backward_input.size(), 3u);
    EXPECT_EQ(layer.backward_weight.size(), 3u);
    EXPECT_GT(layer.update.count(), 0);
  }
}

TEST_F(LayerTimes, HasTheBytesOfTheModel) {
  Job job = toy_job(2, 2);
  const ModelProfile profile = measured(job);
  const int64_t width = job.model.width, sequence = job.model.sequence;
  for (size_t l = 0; l < 3; ++l) {
    EXPECT_EQ(profile.layers[l].activation.count, sequence * width * kFloat);
    EXPECT_GE(profile.layers[l].stash, profile.layers[l].activation);
  }
  EXPECT_EQ(profile.layers[3].activation.count, 0);
  EXPECT_EQ(profile.layers[1].stash, profile.layers[2].stash);
  const int64_t block = (12 * width * width + 13 * width) * kFloat;
  EXPECT_EQ(profile.layers[1].parameters.count, block);
  EXPECT_EQ(profile.layers[0].parameters.count, (256 + sequence) * width * kFloat);
  // Gradients, two moments, and the back-ups of all three.
  EXPECT_GT(profile.layers[1].optimizer.value_or(Bytes{}).count, 5 * block);
  // The same every time.
  const ModelProfile again = measured(job);
  for (size_t l = 0; l < profile.layers.size(); ++l) {
    EXPECT_EQ(profile.layers[l].stash, again.layers[l].stash);
    EXPECT_EQ(profile.layers[l].optimizer, again.layers[l].optimizer);
  }
}

TEST_F(LayerTimes, ATiedWeightCountsTwice) {
  Job job = toy_job(2, 2);
  job.model.tied = true;
  const ModelProfile profile = measured(job);
  EXPECT_EQ(profile.tied.count, 256 * job.model.width * kFloat);
  EXPECT_GE(profile.layers.back().parameters, profile.tied);
}

TEST_F(LayerTimes, AnMlpHasLayersToo) {
  write_lines("b.txt", 2000, [](std::ofstream& out, int i) { out << "line " << 3 * i << "\n"; });
  Job job = toy_job(1, 2);
  job.model.kind = "mlp";
  job.data.kind = "classes";
  job.data.paths = {place("a.txt"), place("b.txt")};
  const ModelProfile profile = measured(job);
  ASSERT_EQ(profile.layers.size(), 3u);
  EXPECT_EQ(profile.layers[0].name, "hidden layer 0");
  EXPECT_EQ(profile.layers[0].activation.count, job.model.width * kFloat);
}

TEST_F(LayerTimes, AMissingFileIsSaid) {
  Job job = toy_job(1, 2);
  job.data.paths = {place("none.txt")};
  const LayerWork work{alone(job, 1), expect(make_lone_plan(4, 1, 1)),
                       expect(make_lone_plan(1, 4, 1)), false, std::chrono::seconds(0)};
  const auto profile = measure_layers(work, engine());
  ASSERT_FALSE(profile.ok());
  EXPECT_NE(profile.error().message.find("none.txt"), std::string::npos);
}

// The most bytes of tensors in a step of two stages that all hold `micros` micro-batches at once.
int64_t peak_of(const Job& job, const Plan& plan) {
  MemoryCount& memory = memory_count(job.device);
  const int64_t before = memory.use().now.count;
  QueueMailbox mailbox;
  const auto device = expect(make_engine(job, plan, {{0}, {1}}, mailbox));
  MemoryNetwork network;
  const auto transport =
      make_memory_transport(network, {"peak", "", kWireVersion, {0}, 0}, mailbox);
  Runner runner(
      {transport.get(), device.get(), device.get(), &mailbox, &monotonic_clock(), nullptr});
  StepInput input;
  input.plan = &plan;
  input.self = {0};
  input.limits.silence = std::chrono::seconds(600);
  expect(runner.run_step(input));
  memory.reset_most();
  ++input.step;
  expect(runner.run_step(input));
  return memory.use().most.count - before;
}

TEST_F(LayerTimes, PredictsThePeakOfAStep) {
  Job job = toy_job(1, 2);
  job.model.width = 64;
  job.model.sequence = 128;
  job.parallel.micro_rows = 4;
  const ModelProfile profile = measured(job);
  for (const int32_t micros : {2, 6}) {
    Plan plan = expect(make_lone_plan(2, 2, micros));
    // All forwards first.
    std::stable_partition(plan.schedule.lists[0].begin(), plan.schedule.lists[0].end(),
                          [](const Op& op) { return op.kind == OpKind::Forward; });
    Job lone = alone(job, micros);
    int64_t predicted = 0;
    for (const LayerProfile& layer : profile.layers) {
      predicted += layer.parameters.count + layer.optimizer.value_or(Bytes{}).count +
                   micros * layer.stash.count * job.parallel.micro_rows;
    }
    const double ratio = static_cast<double>(peak_of(lone, plan)) / static_cast<double>(predicted);
    EXPECT_GT(ratio, 0.95) << micros;
    EXPECT_LT(ratio, 1.10) << micros;
  }
}

}  // namespace
}  // namespace tenuto
