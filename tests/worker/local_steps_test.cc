// Local steps of a part: the steps of a MassStore, as one change.
#include "worker/local_steps.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace tenuto {
namespace {

using servers::DecidedUpdate;
using servers::MassStore;
using servers::MassStoreSettings;
using servers::MicroRange;
using servers::Payload;
using servers::Work;

constexpr int64_t kElements = 40;
constexpr servers::ElementRange kAll{{0}, 0, kElements};

Payload payload_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

std::vector<float> values_of(const MassStore& store) {
  return {store.elements().begin(), store.elements().end()};
}

// A work on the next micro-batches of replica 0.
Work work_of(int64_t first, int64_t micros, int32_t local_steps, int64_t applied = 0) {
  Work work;
  work.serial = 7;
  work.offer.mass = {micros};
  work.local_steps = local_steps;
  work.micros.push_back({{0}, first, first + micros});
  work.applied = {applied};
  return work;
}

// Takes this as an update of one work.
void apply(MassStore& store, const Work& work, const std::vector<float>& values) {
  DecidedUpdate update;
  update.update.members.push_back(work.offer);
  update.works.push_back(work);
  const Payload payload = payload_of(values);
  store.apply(update, {&payload, 1});
}

// Gradients that depend on the parameters and on the micro-batches; the loss is the mean number of
// these.
Result<PartGradient> gradient_for(std::span<const MicroRange> micros,
                                  std::span<const float> parameters) {
  PartGradient made;
  made.sum.resize(parameters.size());
  double losses = 0;
  for (const MicroRange& range : micros) {
    for (int64_t micro = range.begin; micro < range.end; ++micro) {
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto wanted = static_cast<float>((static_cast<size_t>(micro) + i) % 5);
        made.sum[i] += 0.25F * parameters[i] - 0.125F * wanted;
      }
      losses += static_cast<double>(micro);
      made.mass += Mass{1};
    }
  }
  made.loss = losses / static_cast<double>(made.mass.micros);
  return made;
}

// The mean gradient of each element is 1, and nobody knows the loss.
Result<PartGradient> gradient_of_one(std::span<const MicroRange> micros,
                                     std::span<const float> parameters) {
  PartGradient made;
  for (const MicroRange& range : micros) made.mass += Mass{range.end - range.begin};
  made.sum.assign(parameters.size(), static_cast<float>(made.mass.micros));
  return made;
}

MassStoreSettings settings_of(TrialOptimizer optimizer, Mass full) {
  MassStoreSettings settings;
  settings.optimizer = optimizer;
  settings.rate = 0.01;
  settings.full = full;
  return settings;
}

PartGradient change_of(LocalSteps& steps, const Work& work, const std::vector<float>& parameters,
                       const LocalSteps::Compute& compute) {
  auto made = steps.run(work, parameters, compute);
  CHECK(made.ok(), made.error().message);
  return std::move(made).value();
}

// With one replica and the outer step that takes the change as it is, local steps are the steps of
// a store that takes the same gradients one by one, bit for bit. Old and new parameters differ by
// less than a factor of two, and the mass is a power of two: so the change is exact in fp32.
TEST(LocalSteps, TheyAreStepsOfAStore) {
  constexpr int64_t kMicros = 2;
  constexpr int32_t kSteps = 4;
  for (const TrialOptimizer optimizer : {TrialOptimizer::Sgd, TrialOptimizer::Momentum,
                                         TrialOptimizer::Nesterov, TrialOptimizer::AdamW}) {
    for (const double clip : {0.0, 1.0}) {
      SCOPED_TRACE(to_text(optimizer) + ", clip " + std::to_string(clip));
      MassStoreSettings settings = settings_of(optimizer, {kMicros});
      settings.clip = clip;
      settings.whole_model = clip > 0;
      settings.weight_decay = 0.125;
      settings.adam.weight_decay = 0.125;
      settings.decayed = 25;
      settings.schedule = {.warm_up_steps = 3, .cosine = true, .minimum_rate = 0.1, .steps = 12};
      Random random(5);
      std::vector<float> model;
      for (int64_t i = 0; i < kElements; ++i) {
        model.push_back(static_cast<float>(1 + random.uniform()));
      }
      MassStore plain(settings, kAll, model), outer(settings, kAll, model);
      LocalSteps steps(settings);
      for (int64_t first = 0; first < 3 * kSteps * kMicros; first += kSteps * kMicros) {
        const Work work = work_of(first, kSteps * kMicros, kSteps, first);
        const PartGradient change = change_of(steps, work, values_of(outer), gradient_for);
        EXPECT_EQ(change.mass, work.offer.mass);
        apply(outer, work, change.sum);
        for (int64_t micro = first; micro < first + kSteps * kMicros; micro += kMicros) {
          const Work one = work_of(micro, kMicros, 1);
          apply(plain, one, gradient_for(one.micros, plain.elements()).value().sum);
        }
        ASSERT_EQ(values_of(outer), values_of(plain)) << "micro-batch " << first;
      }
      EXPECT_NE(values_of(plain), model);
    }
  }
}

// Worked out by hand: two replicas of two micro-batches each have done one step. The warm-up has
// four steps, so the rates are 2/4 and 3/4, which both are for a gradient of full mass.
TEST(LocalSteps, EachStepHasTheWholeRateOfItsPlaceInTheSchedule) {
  MassStoreSettings settings = settings_of(TrialOptimizer::Sgd, {4});
  settings.rate = 1;
  settings.schedule.warm_up_steps = 4;
  LocalSteps steps(settings);
  const PartGradient change = change_of(steps, work_of(4, 4, 2, 4), {10, 20}, gradient_of_one);
  EXPECT_EQ(change.sum, (std::vector<float>{4 * 1.25F, 4 * 1.25F}));
  EXPECT_EQ(change.mass, Mass{4});
  EXPECT_FALSE(change.loss.has_value());
}

TEST(LocalSteps, TheirLossIsTheMeanOfAllMicroBatches) {
  LocalSteps steps(settings_of(TrialOptimizer::AdamW, {4}));
  const PartGradient change = change_of(steps, work_of(10, 6, 3), {1, 2}, gradient_for);
  EXPECT_EQ(change.loss, std::optional(12.5));
}

// A replica whose iterations get another mass has taken as many steps as before.
TEST(LocalSteps, MomentsCountStepsWhateverTheirMass) {
  const MassStoreSettings settings = settings_of(TrialOptimizer::AdamW, {4});
  LocalSteps grown(settings), same(settings);
  const std::vector<float> parameters = {1, 2};
  EXPECT_EQ(change_of(grown, work_of(0, 4, 2), parameters, gradient_of_one).sum,
            change_of(same, work_of(0, 4, 2), parameters, gradient_of_one).sum);
  const std::vector<float> large =
      change_of(grown, work_of(4, 8, 2), parameters, gradient_of_one).sum;
  const std::vector<float> small =
      change_of(same, work_of(4, 4, 2), parameters, gradient_of_one).sum;
  ASSERT_EQ(large.size(), small.size());
  for (size_t i = 0; i < large.size(); ++i) EXPECT_EQ(large[i] / 8, small[i] / 4) << i;
}

// Those of lost replicas come first, and may be of several replicas within one step.
TEST(LocalSteps, MicroBatchesAreDividedInTheirOrder) {
  Work work = work_of(8, 3, 2);
  work.micros.insert(work.micros.begin(), {{1}, 5, 6});
  const auto divided = micros_of_steps(work);
  ASSERT_TRUE(divided.ok()) << divided.error().message;
  const std::vector<std::vector<MicroRange>> expected = {{{{1}, 5, 6}, {{0}, 8, 9}},
                                                         {{{0}, 9, 11}}};
  EXPECT_EQ(divided.value(), expected);
  // Each step of a longer range.
  const auto single = micros_of_steps(work_of(3, 3, 3));
  ASSERT_TRUE(single.ok()) << single.error().message;
  const std::vector<std::vector<MicroRange>> one_each = {
      {{{0}, 3, 4}}, {{{0}, 4, 5}}, {{{0}, 5, 6}}};
  EXPECT_EQ(single.value(), one_each);
}

TEST(LocalSteps, MicroBatchesThatCannotBeDividedAreRefused) {
  LocalSteps steps(settings_of(TrialOptimizer::Sgd, {4}));
  const std::vector<float> parameters = {1};
  const auto refused = steps.run(work_of(0, 5, 2), parameters, gradient_of_one);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "work 7 has 5 micro-batches for 2 local steps: expected as many for each of them, and "
            "one at least");
  EXPECT_FALSE(micros_of_steps(work_of(0, 0, 2)).ok());
  EXPECT_FALSE(micros_of_steps(work_of(0, 4, 0)).ok());
}

TEST(LocalSteps, AGradientThatCannotBeComputedEndsThem) {
  LocalSteps steps(settings_of(TrialOptimizer::Sgd, {4}));
  int calls = 0;
  const std::vector<float> parameters = {1};
  const auto made = steps.run(work_of(0, 4, 4), parameters,
                              [&calls](std::span<const MicroRange> micros,
                                       std::span<const float> at) -> Result<PartGradient> {
                                if (++calls == 2)
                                  return Error{Code::Cancelled, Reach::Call, "stopped"};
                                return gradient_of_one(micros, at);
                              });
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "stopped");
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace tenuto
