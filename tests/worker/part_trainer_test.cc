// The thread that computes the works of a part: what it gives to its host, and how it is stopped.
#include "worker/part_trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mailbox.h"
#include "parameter_server/mass_store.h"
#include "worker/local_steps.h"
#include "worker/pace.h"

namespace tenuto {
namespace {

constexpr Duration kLimit = std::chrono::seconds(60);  // far above what anything takes

servers::Payload payload_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

std::vector<float> values_of(const servers::Payload& payload) {
  std::vector<float> values(payload->size() / sizeof(float));
  std::memcpy(values.data(), payload->data(), payload->size());
  return values;
}

servers::Work work_of(int64_t serial, int64_t micros, int64_t applied = 0) {
  servers::Work work;
  work.applied = {applied};
  work.serial = serial;
  work.offer.replica = {0};
  work.offer.mass = {micros};
  work.micros.push_back({{0}, 10, 10 + micros});
  return work;
}

// A trainer whose computations a test writes.
struct Trained {
  using Compute = std::function<Result<PartGradient>(
      std::span<const servers::MicroRange>, std::span<const float>, const std::atomic<bool>&)>;

  using Validate =
      std::function<Result<HeldOutLoss>(std::span<const float>, const std::atomic<bool>&)>;

  // Validations are due after every other step; a step has a mass of 4.
  explicit Trained(Compute compute, Validate validate = {}, LocalSteps* local_steps = nullptr,
                   std::function<ProcessorUse()> look = {},
                   std::function<Duration()> processor_time = {}) {
    BackgroundTrainerSettings settings;
    settings.local_steps = local_steps;
    settings.look = std::move(look);
    settings.compute = std::move(compute);
    settings.validate = std::move(validate);
    settings.last_validation = [](Mass applied) { return applied.micros / 8 * 2; };
    settings.wake_compute = [this] { woken.post({}); };
    settings.wake_host = [this] { news.post({}); };
    settings.fail = [this](const Error& why) { failures.push_back(why.message); };
    settings.iteration = {4};
    if (processor_time) settings.processor_time = std::move(processor_time);
    trainer = std::make_unique<BackgroundTrainer>(std::move(settings));
  }

  void begin(int64_t serial, int64_t micros, const std::vector<servers::Payload>& parameters,
             int64_t applied = 0) {
    EXPECT_TRUE(trainer->begin(work_of(serial, micros, applied), parameters, {}).ok());
  }
  // Waits until the thread has ended so many computations.
  void wait(int count = 1) {
    for (int i = 0; i < count; ++i) {
      CHECK(news.wait(kLimit).ok(), "the thread of the trainer says nothing");
    }
  }

  QueueMailbox woken, news;
  std::vector<std::string> failures;
  std::unique_ptr<BackgroundTrainer> trainer;
};

// Twice the parameters.
Result<PartGradient> doubled(std::span<const servers::MicroRange> micros,
                             std::span<const float> parameters, const std::atomic<bool>&) {
  PartGradient made;
  for (const float value : parameters) made.sum.push_back(2 * value);
  for (const servers::MicroRange& range : micros) made.mass += Mass{range.end - range.begin};
  made.loss = 3;
  return made;
}

TEST(PartTrainer, GivesAGradientForEachRange) {
  Trained trained(doubled);
  EXPECT_FALSE(trained.trainer->advance({}).has_value());
  trained.begin(1, 2, {payload_of({1, 2, 3}), payload_of({4})});
  trained.wait();
  const auto computed = trained.trainer->advance({});
  ASSERT_TRUE(computed.has_value());
  ASSERT_EQ(computed->gradients.size(), 2u);
  EXPECT_EQ(values_of(computed->gradients[0]), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(values_of(computed->gradients[1]), std::vector<float>{8});
  EXPECT_EQ(computed->share, 0.5);
  EXPECT_EQ(computed->loss, std::optional(3.0));
  EXPECT_FALSE(computed->transfer_is_given);
  EXPECT_EQ(computed->processor, servers::ProcessorTimes{}) << "nobody asks the kernel";
  EXPECT_GE(computed->time.compute, Duration{});
  EXPECT_EQ(computed->time.transfer, Duration{});
  // It is given once.
  EXPECT_FALSE(trained.trainer->advance({}).has_value());
  trained.begin(2, 4, {payload_of({5})});
  trained.wait();
  const auto next = trained.trainer->advance({});
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(values_of(next->gradients[0]), std::vector<float>{10});
  EXPECT_EQ(next->share, 1);
  EXPECT_TRUE(trained.failures.empty());
}

servers::Work local_work_of(int64_t serial, int64_t micros, int32_t local_steps) {
  servers::Work work = work_of(serial, micros);
  work.local_steps = local_steps;
  return work;
}

// The sum over the four micro-batches of a step is twice the parameters, so their mean is half of
// them, and with a rate of 0.5 a step leaves three quarters: two steps subtract 7/16. The change is
// multiplied by the mass, which is 8.
TEST(PartTrainer, LocalStepsGiveAChangeForEachRange) {
  servers::MassStoreSettings settings;
  settings.optimizer = TrialOptimizer::Sgd;
  settings.rate = 0.5;
  settings.full = {4};
  LocalSteps local_steps(settings);
  Trained trained(doubled, {}, &local_steps);
  const std::vector<servers::Payload> parameters = {payload_of({16, 32}), payload_of({64})};
  EXPECT_TRUE(trained.trainer->begin(local_work_of(1, 8, 2), parameters, {}).ok());
  trained.wait();
  const auto computed = trained.trainer->advance({});
  ASSERT_TRUE(computed.has_value());
  ASSERT_EQ(computed->gradients.size(), 2u);
  EXPECT_EQ(values_of(computed->gradients[0]), (std::vector<float>{8 * 7, 8 * 14}));
  EXPECT_EQ(values_of(computed->gradients[1]), std::vector<float>{8 * 28});
  EXPECT_EQ(computed->share, 2);
  EXPECT_EQ(computed->loss, std::optional(3.0));
  EXPECT_TRUE(trained.failures.empty());
}

TEST(PartTrainer, LocalStepsNeedAnOptimizer) {
  Trained trained(doubled);
  const Status begun = trained.trainer->begin(local_work_of(3, 4, 2), {payload_of({1})}, {});
  ASSERT_FALSE(begun.ok());
  EXPECT_EQ(begun.error().message,
            "work 3 has 2 local steps, and this trainer takes none: expected one");
}

// The kernel is asked before and after the computation, and says that 100 ms lie between.
TEST(PartTrainer, AnIterationHasWhatTheKernelSaysOfIt) {
  int looks = 0;
  Trained trained(doubled, {}, nullptr, [&looks] {
    ProcessorUse use;
    use.run_delay_is = use.pressure_is = Figure::Known;
    use.run_delay[1] = looks * std::chrono::milliseconds(25);
    use.pressure = looks * std::chrono::milliseconds(50);
    use.cpu = looks * std::chrono::milliseconds(75);
    use.at = looks * std::chrono::milliseconds(100);
    ++looks;
    return use;
  });
  trained.begin(1, 4, {payload_of({1})});
  trained.wait();
  const auto computed = trained.trainer->advance({});
  ASSERT_TRUE(computed.has_value());
  EXPECT_EQ(looks, 2);
  const auto lasted = static_cast<double>(computed->time.compute.count());
  EXPECT_NEAR(static_cast<double>(computed->processor.run_delay.count()), 0.25 * lasted, 1);
  EXPECT_NEAR(static_cast<double>(computed->processor.cpu.count()), 0.75 * lasted, 1);
  EXPECT_EQ(computed->processor.pressure, 0.5);
}

// A computation of four micro-batches that goes on until it is stopped; others are doubled().
class Endless {
 public:
  Trained::Compute compute() {
    return [this](std::span<const servers::MicroRange> micros, std::span<const float> parameters,
                  const std::atomic<bool>& stop) -> Result<PartGradient> {
      if (micros.front().end - micros.front().begin != 4) return doubled(micros, parameters, stop);
      begun.post({});
      while (!stop) CHECK(trained->woken.wait(kLimit).ok(), "nobody stops the computation");
      stopped = true;
      return Error{Code::Cancelled, Reach::Call, "stopped"};
    };
  }
  void wait_until_begun() { CHECK(begun.wait(kLimit).ok(), "the computation does not begin"); }

  Trained* trained = nullptr;
  QueueMailbox begun;
  bool stopped = false;  // written by the trainer's thread, read when that has ended or said so
};

TEST(PartTrainer, AGradientThatIsNotFiniteCountsAsZero) {
  Trained trained(doubled);
  const float infinite = std::numeric_limits<float>::infinity();
  trained.begin(1, 4, {payload_of({1, infinite}), payload_of({3})});
  trained.wait();
  const auto made = trained.trainer->advance({});
  ASSERT_TRUE(made.has_value());
  ASSERT_EQ(made->gradients.size(), 2U);
  EXPECT_EQ(values_of(made->gradients[0]), (std::vector<float>{0, 0}));
  EXPECT_EQ(values_of(made->gradients[1]), (std::vector<float>{0})) << "of all ranges";
  EXPECT_EQ(made->share, 1);
}

TEST(PartTrainer, AnotherWorkStopsTheOneBefore) {
  Endless endless;
  Trained trained(endless.compute());
  endless.trained = &trained;
  trained.begin(1, 4, {payload_of({1})});
  endless.wait_until_begun();
  trained.begin(2, 1, {payload_of({7})});
  trained.wait(2);
  const auto computed = trained.trainer->advance({});
  ASSERT_TRUE(computed.has_value());
  EXPECT_EQ(values_of(computed->gradients[0]), std::vector<float>{14});
  EXPECT_EQ(computed->share, 0.25);
  EXPECT_TRUE(trained.failures.empty());
}

TEST(PartTrainer, ItsEndStopsTheComputation) {
  Endless endless;
  Trained trained(endless.compute());
  endless.trained = &trained;
  trained.begin(1, 4, {payload_of({1})});
  endless.wait_until_begun();
  trained.trainer.reset();
  EXPECT_TRUE(endless.stopped);
}

TEST(PartTrainer, AFailureIsToldOnce) {
  Trained trained([](std::span<const servers::MicroRange>, std::span<const float>,
                     const std::atomic<bool>&) -> Result<PartGradient> {
    return Error{Code::Exhausted, Reach::Worker, "out of memory"};
  });
  trained.begin(1, 4, {payload_of({1})});
  trained.wait();
  EXPECT_FALSE(trained.trainer->advance({}).has_value());
  EXPECT_EQ(trained.failures, std::vector<std::string>{"out of memory"});
  EXPECT_FALSE(trained.trainer->advance({}).has_value());
  EXPECT_EQ(trained.failures.size(), 1u);
}

TEST(PartTrainer, ValidatesTheFirstParametersThatAreDue) {
  Trained trained(
      doubled,
      [](std::span<const float> parameters, const std::atomic<bool>&) -> Result<HeldOutLoss> {
        return HeldOutLoss{parameters.front(), 3};
      });
  // After so many steps, and the step whose validation is due then.
  const std::vector<std::pair<int64_t, int64_t>> works = {{1, 0}, {2, 2}, {3, 0}, {5, 4}};
  int64_t serial = 0;
  for (const auto& work : works) {
    const int64_t steps_done = work.first, due = work.second;
    const auto value = static_cast<float>(steps_done);
    trained.begin(++serial, 4, {payload_of({value})}, 4 * steps_done);
    trained.wait(due > 0 ? 2 : 1);
    ASSERT_TRUE(trained.trainer->advance({}).has_value());
    const auto validated = trained.trainer->take_validated();
    ASSERT_EQ(validated.has_value(), due > 0) << "after " << steps_done;
    if (!validated) continue;
    EXPECT_EQ(validated->step, due);
    EXPECT_EQ(validated->loss_sum, static_cast<double>(steps_done));
    EXPECT_EQ(validated->micros, 3);
    EXPECT_FALSE(trained.trainer->take_validated().has_value());
  }
}

TEST(PartTrainer, AnotherWorkDoesNotStopAValidation) {
  QueueMailbox begun, go;
  Trained trained(doubled,
                  [&begun, &go](std::span<const float> parameters,
                                const std::atomic<bool>& stop) -> Result<HeldOutLoss> {
                    begun.post({});
                    CHECK(go.wait(kLimit).ok(), "nobody lets the validation go on");
                    EXPECT_FALSE(stop.load());
                    return HeldOutLoss{parameters.front(), 1};
                  });
  trained.begin(1, 4, {payload_of({1})}, 8);
  ASSERT_TRUE(begun.wait(kLimit).ok());
  trained.begin(2, 4, {payload_of({7})}, 8);
  go.post({});
  // The validation, and both works.
  trained.wait(3);
  const auto computed = trained.trainer->advance({});
  ASSERT_TRUE(computed.has_value());
  EXPECT_EQ(values_of(computed->gradients[0]), std::vector<float>{14});
  const auto validated = trained.trainer->take_validated();
  ASSERT_TRUE(validated.has_value());
  EXPECT_EQ(validated->loss_sum, 1);
  EXPECT_FALSE(trained.trainer->take_validated().has_value());
}

TEST(PartTrainer, ItsEndStopsAValidation) {
  QueueMailbox begun;
  QueueMailbox* woken = nullptr;
  bool stopped = false;
  Trained trained(doubled,
                  [&begun, &woken, &stopped](std::span<const float>,
                                             const std::atomic<bool>& stop) -> Result<HeldOutLoss> {
                    begun.post({});
                    while (!stop) CHECK(woken->wait(kLimit).ok(), "nobody stops the validation");
                    stopped = true;
                    return Error{Code::Cancelled, Reach::Call, "stopped"};
                  });
  woken = &trained.woken;
  trained.begin(1, 4, {payload_of({1})}, 8);
  ASSERT_TRUE(begun.wait(kLimit).ok());
  trained.trainer.reset();
  EXPECT_TRUE(stopped);
}

TEST(PartTrainer, AValidationThatFailsIsToldOnce) {
  Trained trained(doubled,
                  [](std::span<const float>, const std::atomic<bool>&) -> Result<HeldOutLoss> {
                    return Error{Code::Exhausted, Reach::Worker, "out of memory"};
                  });
  trained.begin(1, 4, {payload_of({1})}, 8);
  trained.wait();
  EXPECT_FALSE(trained.trainer->advance({}).has_value());
  EXPECT_EQ(trained.failures, std::vector<std::string>{"out of memory"});
  EXPECT_FALSE(trained.trainer->take_validated().has_value());
}

// ---- the limit of cores ----------------------------------------------------------------------

TEST(Pace, APauseMakesUpForWhatWasUsed) {
  using std::chrono::milliseconds;
  // A second of two cores, where one is allowed.
  EXPECT_EQ(pause_for(milliseconds(2000), milliseconds(1000), 1), milliseconds(1000));
  EXPECT_EQ(pause_for(milliseconds(2000), milliseconds(1000), 2), Duration{});
  EXPECT_EQ(pause_for(milliseconds(2000), milliseconds(1000), 4), Duration{});
  EXPECT_EQ(pause_for(milliseconds(500), milliseconds(1000), 0.25), milliseconds(1000));
  // No limit.
  EXPECT_EQ(pause_for(milliseconds(2000), milliseconds(1000), 0), Duration{});
  EXPECT_EQ(pause_for(milliseconds(2000), milliseconds(1000), -1), Duration{});
  EXPECT_EQ(
      pause_for(milliseconds(2000), milliseconds(1000), std::numeric_limits<double>::quiet_NaN()),
      Duration{});
  // Nobody pauses for ever.
  EXPECT_EQ(pause_for(milliseconds(2000), milliseconds(1000), 1e-300), kMostPause);
}

// The process seems to use a second of processor time whenever it is asked: each work would begin
// with a long pause.
TEST(PartTrainer, APauseEndsWhenTheLimitDoes) {
  std::atomic<int> looks = 0;
  Trained trained(doubled, {}, nullptr, {}, [&looks] { return std::chrono::seconds(++looks); });
  trained.begin(1, 2, {payload_of({1})});
  trained.wait();
  EXPECT_TRUE(trained.trainer->advance({}).has_value());
  trained.trainer->limit_cores(1e-3);
  trained.begin(2, 2, {payload_of({2})});
  // The next work takes its place, and pauses as well.
  trained.begin(3, 2, {payload_of({3})});
  trained.trainer->limit_cores(0);
  for (bool has_third = false; !has_third;) {
    trained.wait();
    const auto computed = trained.trainer->advance({});
    has_third = computed && values_of(computed->gradients[0]) == std::vector<float>{6};
    if (has_third) {
      EXPECT_LT(computed->time.compute, kMostPause);
    }
  }
  EXPECT_TRUE(trained.failures.empty());
}

}  // namespace
}  // namespace tenuto
