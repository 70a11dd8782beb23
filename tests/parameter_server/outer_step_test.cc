// The outer step of a store: what it does with the changes of replicas that take local steps, also
// beside gradients, and its velocity in the state.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "mass_store_steps.h"
#include "parameter_server/mass_store.h"

namespace tenuto::servers {
namespace {

constexpr OuterStep kOuter{0.5, 0.25};

// All works of the step have so many local steps.
Step with_local_steps(Step step, int32_t local_steps, const OuterStep& outer = {}) {
  for (Work& work : step.update.works) {
    work.local_steps = local_steps;
    work.outer = outer;
  }
  return step;
}

// The members of one step, then those of the other one, as one update.
Step together(const Step& one, const Step& other) {
  Step both = one;
  for (size_t i = 0; i < other.gradients.size(); ++i) {
    both.update.update.members.push_back(other.update.update.members[i]);
    both.update.works.push_back(other.update.works[i]);
    both.gradients.push_back(other.gradients[i]);
  }
  return both;
}

// Worked out by hand. Two replicas of four micro-batches take two local steps each, so the full
// mass of changes is 16. All numbers are exact in fp32.
TEST(OuterStep, TheOuterStepTakesTheMeanChange) {
  const ElementRange range = range_of(0, 2);
  const auto store = store_of(settings_of(TrialOptimizer::AdamW), range, {4, 8});
  Step first;  // changes of 1 and 3, and of 2 and -2, each times its mass
  first.add({8, 16}, 8);
  first.add({24, -16}, 8);
  with_local_steps(first, 2, kOuter).apply_to(*store, range);
  // The mean is (2, 0) and the velocity as well: the step is 0.5 x (mean + 0.25 x velocity).
  EXPECT_EQ(numbers_in(store->parameters()), (std::vector<float>{2.75F, 8}));
  Step second;
  second.add({16, 16}, 16);
  with_local_steps(second, 2, kOuter).apply_to(*store, range);
  // The mean is (1, 1), the velocity 0.25 x (2, 0) + (1, 1) = (1.5, 1).
  EXPECT_EQ(numbers_in(store->parameters()), (std::vector<float>{2.0625F, 7.375F}));
}

// One of four replicas moves the parameters by a quarter of what all of them would.
TEST(OuterStep, ChangesMoveByTheirShareOfTheFullMass) {
  const ElementRange range = range_of(0, 1);
  const auto store = store_of(settings_of(TrialOptimizer::Sgd), range, {5});
  Step step;
  step.add({4 * 2}, 4);  // a change of 2 in two local steps of two micro-batches
  with_local_steps(step, 2).apply_to(*store, range);
  EXPECT_EQ(store->elements()[0], 4.5F) << "4 of 16 micro-batches";
}

// With rate 1 and momentum 0 the change of full mass is taken as it is.
TEST(OuterStep, TheChangeOfOneReplicaIsTakenAsItIs) {
  const ElementRange range = range_of(0, 3);
  const std::vector<float> before = {1, 1.5F, 1.25F}, after = {1.5F, 1, 1.125F};
  const auto store = store_of(settings_of(TrialOptimizer::Momentum), range, before);
  Step step;
  std::vector<float> change;
  for (size_t i = 0; i < before.size(); ++i) change.push_back(32 * (before[i] - after[i]));
  step.add(change, 32);
  with_local_steps(step, 4).apply_to(*store, range);
  EXPECT_EQ(numbers_in(store->parameters()), after);
}

// The outer step has the bits of that of a trial, whatever takes gradients beside it.
TEST(OuterStep, ChangesOfLocalStepsAreTakenAsInATrial) {
  constexpr size_t kSize = 50;
  const OuterStep outer{0.7, 0.9};
  for (const TrialOptimizer optimizer : kAll) {
    Random random(11);
    std::vector<float> model = random_vector(random, kSize);
    const auto store = store_of(settings_of(optimizer), range_of(0, kSize), model);
    TrialStep trial({TrialOptimizer::Nesterov, 0.7, 0.9, 0}, kSize);
    for (int i = 0; i < 5; ++i) {
      const std::vector<float> one = random_vector(random, kSize);
      const std::vector<float> other = random_vector(random, kSize);
      Step step;
      step.add(one, 6);
      step.add(other, 6);
      std::vector<float> sum;
      for (size_t k = 0; k < kSize; ++k) sum.push_back(one[k] + other[k]);
      with_local_steps(step, 3, outer).apply_to(*store, range_of(0, kSize));
      trial.take(model, sum, {12}, {24});
      ASSERT_EQ(numbers_in(store->parameters()), model) << to_text(optimizer);
    }
  }
}

// After a change of the mode an update may have works of both kinds: first the gradients are taken,
// then the changes, those of fewer local steps first, each part with its own mass.
TEST(OuterStep, AnUpdateOfBothKindsIsTakenInParts) {
  constexpr size_t kSize = 20;
  const ElementRange range = range_of(0, kSize);
  for (const TrialOptimizer optimizer : kAll) {
    Random random(3);
    const std::vector<float> model = random_vector(random, kSize);
    const auto store = store_of(settings_of(optimizer), range, model);
    const auto in_turn = store_of(settings_of(optimizer), range, model);
    for (int i = 0; i < 3; ++i) {
      Step gradients, two, three, other;
      gradients.add(random_vector(random, kSize), 2);
      gradients.add(random_vector(random, kSize), 1);
      two.add(random_vector(random, kSize), 4);
      three.add(random_vector(random, kSize), 6);
      three.add(random_vector(random, kSize), 3);
      other.add(random_vector(random, kSize), 6);
      two = with_local_steps(two, 2, kOuter);
      three = with_local_steps(three, 3, kOuter);
      other = with_local_steps(other, 3, {0.75, 0.5});
      for (const Step& part : {gradients, two, three, other}) part.apply_to(*in_turn, range);
      together(together(other, three), together(two, gradients)).apply_to(*store, range);
      ASSERT_EQ(*store->save(), *in_turn->save()) << to_text(optimizer);
    }
  }
}

// The rate goes by all mass; the moments of the one optimizer only by what it has taken itself.
TEST(OuterStep, TheScheduleCountsChangesAsWell) {
  MassStoreSettings settings = settings_of(TrialOptimizer::Sgd);
  settings.rate = 1;
  settings.schedule.warm_up_steps = 4;
  const ElementRange range = range_of(0, 1);
  const auto store = store_of(settings, range, {10});
  Step step;
  step.add({8}, 8);  // a mean gradient of 1 at full mass
  step.apply_to(*store, range);
  EXPECT_EQ(store->elements()[0], 9.75F) << "a quarter of the rate";
  Step change;
  change.add({0}, 16);  // two steps in which the parameters stay
  with_local_steps(change, 2).apply_to(*store, range);
  EXPECT_EQ(store->elements()[0], 9.75F);
  step.apply_to(*store, range);
  EXPECT_EQ(store->elements()[0], 8.75F) << "the rate of the fourth step";
}

// The velocity of the outer step is a part of the state: for another keeper, and cut and joined.
TEST(OuterStep, AStateWithAVelocityGoesOnWithTheSameBits) {
  constexpr int64_t kSize = 300;
  const ElementRange all = range_of(0, kSize);
  for (const TrialOptimizer optimizer : kAll) {
    Random random(19);
    const MassStoreSettings settings = settings_of(optimizer);
    const std::vector<float> model = random_vector(random, kSize);
    const auto shard = store_of(settings, all, model);
    const auto left = store_of(settings, range_of(0, 110), model);
    const auto right = store_of(settings, range_of(110, kSize), model);
    const auto take = [&](const Step& step) {
      step.apply_to(*shard, all);
      step.apply_to(*left, range_of(0, 110));
      step.apply_to(*right, range_of(110, kSize));
    };
    take(random_step(random, kSize));
    const Payload before = shard->save();
    take(with_local_steps(random_step(random, kSize), 2, kOuter));
    take(random_step(random, kSize));
    const Payload state = shard->save();
    EXPECT_EQ(state->size(), before->size() + kSize * sizeof(float)) << to_text(optimizer);
    const auto joined = join_states(std::vector<Payload>{right->save(), left->save()}, all);
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    ASSERT_EQ(*joined.value(), *state) << to_text(optimizer);
    const auto standby = store_of(settings, all, random_vector(random, kSize));
    const Status loaded = standby->load(state);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const Step next = with_local_steps(random_step(random, kSize), 4, {0.75, 0.5});
    next.apply_to(*shard, all);
    next.apply_to(*standby, all);
    ASSERT_EQ(*standby->save(), *shard->save()) << to_text(optimizer);
    // A state without a velocity is one as well.
    ASSERT_TRUE(standby->load(before).ok());
    EXPECT_EQ(*standby->save(), *before);
    const auto old = join_states(std::vector<Payload>{before}, range_of(110, kSize));
    ASSERT_TRUE(old.ok()) << old.error().message;
    const auto mixed = join_states(std::vector<Payload>{left->save(), old.value()}, all);
    EXPECT_FALSE(mixed.ok()) << "states of two versions";
  }
}

TEST(OuterStep, DamagedStatesWithAVelocityAreRefused) {
  Random random(23);
  const ElementRange range = range_of(0, 5);
  const MassStoreSettings settings = settings_of(TrialOptimizer::Momentum);
  const auto store = store_of(settings, range, random_vector(random, 5));
  with_local_steps(random_step(random, 5), 2, kOuter).apply_to(*store, range);
  const std::vector<std::byte> state = *store->save();
  const auto standby = store_of(settings, range, random_vector(random, 5));
  const std::vector<std::byte> untouched = *standby->save();
  for (size_t i = 0; i < state.size(); ++i) {
    std::vector<std::byte> changed = state;
    changed[i] ^= static_cast<std::byte>(1 + random.below(255));
    const Payload damaged = std::make_shared<const std::vector<std::byte>>(std::move(changed));
    EXPECT_FALSE(standby->load(damaged).ok()) << i;
    EXPECT_FALSE(join_states(std::vector<Payload>{damaged}, range).ok()) << i;
    EXPECT_EQ(*standby->save(), untouched) << i;
  }
}

}  // namespace
}  // namespace tenuto::servers
