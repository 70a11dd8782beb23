// An engine computes gradients of parameters that it is given. They are those of a synchronous step
// that reads the same parameters, whatever the engine has computed before.
#include "runtime/given_parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "engine/driver.h"
#include "engine/flat_state.h"
#include "engine/toy_job.h"
#include "plan/stage_plan.h"
#include "world/parameters.h"

namespace tenuto {
namespace {

class GivenParametersTest : public ToyTest {
 protected:
  GivenParametersTest() {
    write_lines("a.txt", 400, [](std::ostream& out, int i) {
      out << i << " plus " << i * 7 % 31 << " is more.\n";
    });
  }

  // One pipeline, so worker s holds stage s. Vectors of this width do not fill 64 bytes.
  Job job(int32_t stages, bool split) const {
    Job job = toy_job(stages, 2);
    job.steps = 10;
    job.model.width = 20;
    job.model.dropout = 0.1;
    job.parallel.split_backward = split;
    return job;
  }
};

GivenParameters& given_of(Driver& driver, int32_t stage) {
  GivenParameters* const given = driver.engine(stage).given_parameters();
  CHECK(given != nullptr, "an engine computes gradients of given parameters");
  return *given;
}

Flat all_values(Driver& driver) {
  Flat values;
  for (int32_t s = 0; s < driver.worker_count(); ++s) {
    values.push_back(values_of(driver.engine(s), {s}));
  }
  return values;
}

Flat all_sums(Driver& driver) {
  Flat sums;
  for (int32_t s = 0; s < driver.worker_count(); ++s) {
    sums.push_back(sum_of(driver.engine(s), {s}));
  }
  return sums;
}

Flat all_initial(Driver& driver) {
  Flat initial;
  for (int32_t s = 0; s < driver.worker_count(); ++s) {
    GivenParameters& given = given_of(driver, s);
    initial.emplace_back(static_cast<size_t>(given.parameter_count({s})), 7.0F);
    EXPECT_TRUE(given.initial_parameters({s}, initial.back()).ok());
  }
  return initial;
}

Flat all_gradients(Driver& driver) {
  Flat gradients;
  for (int32_t s = 0; s < driver.worker_count(); ++s) {
    GivenParameters& given = given_of(driver, s);
    gradients.emplace_back(static_cast<size_t>(given.parameter_count({s})), 7.0F);
    EXPECT_TRUE(given.read_gradients({s}, gradients.back()).ok());
  }
  return gradients;
}

void set_all(Driver& driver, const Flat& parameters) {
  for (int32_t s = 0; s < driver.worker_count(); ++s) {
    const Status set = given_of(driver, s).set_parameters({s}, parameters[static_cast<size_t>(s)]);
    ASSERT_TRUE(set.ok()) << set.error().message;
  }
}

// Small random parameters, also in the elements that no parameter uses.
Flat noise(Driver& driver, uint64_t seed) {
  Random random(seed);
  Flat all = all_values(driver);
  for (std::vector<float>& values : all) {
    for (float& value : values) value = static_cast<float>(0.2 * random.uniform() - 0.1);
  }
  return all;
}

void expect_same_bits(const Flat& left, const Flat& right) {
  ASSERT_EQ(left.size(), right.size());
  for (size_t s = 0; s < left.size(); ++s) {
    EXPECT_TRUE(same_bits(left[s], right[s])) << "stage " << s;
  }
}

TEST_F(GivenParametersTest, TheCountIncludesUnusedElements) {
  const Job own = job(2, true);
  Driver driver(own);
  for (int32_t s = 0; s < driver.worker_count(); ++s) {
    const Stage& stage = driver.plan().stages[static_cast<size_t>(s)];
    const auto cards = parameters_of(own.model, {}, stage.layer_first, stage.layer_end);
    int64_t used = 0;
    for (const ParameterCard& card : cards) used += card.count();
    EXPECT_EQ(given_of(driver, s).parameter_count({s}), layout_of(cards).count);
    EXPECT_GT(given_of(driver, s).parameter_count({s}), used);
  }
}

TEST_F(GivenParametersTest, WeightDecayIsForTheElementsOfMatrices) {
  const Job own = job(2, true);
  Driver driver(own);
  for (int32_t s = 0; s < driver.worker_count(); ++s) {
    const Stage& stage = driver.plan().stages[static_cast<size_t>(s)];
    const auto cards = parameters_of(own.model, {}, stage.layer_first, stage.layer_end);
    const ParameterLayout layout = layout_of(cards);
    const int64_t decayed = given_of(driver, s).decayed_count({s});
    EXPECT_EQ(decayed, layout.decayed_end);
    for (size_t i = 0; i < cards.size(); ++i) {
      EXPECT_EQ(layout.first[i] < decayed, cards[i].decays()) << cards[i].name;
    }
  }
}

TEST_F(GivenParametersTest, InitialParametersDoNotDependOnTheSteps) {
  Driver driver(job(2, true));
  const Flat initial = all_values(driver);
  expect_same_bits(all_initial(driver), initial);
  driver.run(0);
  const Flat trained = all_values(driver);
  EXPECT_NE(trained, initial);
  expect_same_bits(all_initial(driver), initial);
  expect_same_bits(all_values(driver), trained);
}

TEST_F(GivenParametersTest, GradientsAreThoseOfASynchronousStep) {
  for (const int32_t stages : {1, 2}) {
    for (const bool split : {false, true}) {
      for (const char* precision : {"fp32", "bf16"}) {
        SCOPED_TRACE(cat(stages, " stages, ", split ? "split, " : "not split, ", precision));
        Job own = job(stages, split);
        own.device.precision = precision;
        Driver trained(own);
        trained.run(0);
        const Flat parameters = all_values(trained);
        trained.run(1);
        Driver given(own);
        set_all(given, parameters);
        given.run(1);
        expect_same_bits(all_gradients(given), all_sums(trained));
      }
    }
  }
}

TEST_F(GivenParametersTest, OnlyTheParametersThatWereSetLastCount) {
  const Job own = job(2, true);
  Driver once(own), twice(own);
  const Flat first = noise(once, 1), second = noise(once, 2);
  set_all(once, first);
  once.run(3);
  set_all(twice, second);
  twice.run(3);
  EXPECT_NE(all_gradients(twice), all_gradients(once));
  set_all(twice, second);
  set_all(twice, first);
  expect_same_bits(all_values(twice), first);
  twice.run(3);
  expect_same_bits(all_gradients(twice), all_gradients(once));
}

TEST_F(GivenParametersTest, AStepThatHasJustBegunHasZeroGradients) {
  Driver driver(job(1, true));
  driver.run(0);
  const auto is_zero = [](float element) { return element == 0; };
  const Flat before = all_gradients(driver);
  EXPECT_FALSE(std::all_of(before[0].begin(), before[0].end(), is_zero));
  ASSERT_TRUE(driver.engine(0).begin(1).ok());
  const Flat begun = all_gradients(driver);
  EXPECT_TRUE(std::all_of(begun[0].begin(), begun[0].end(), is_zero));
}

TEST_F(GivenParametersTest, AStepFromBeforeTheyWereSetCannotBeTakenBack) {
  Driver driver(job(2, true));
  driver.run(0);
  set_all(driver, all_values(driver));
  for (int32_t s = 0; s < driver.worker_count(); ++s) {
    EXPECT_EQ(driver.engine(s).version(), 1);
    EXPECT_FALSE(driver.engine(s).undo().ok());
  }
}

TEST_F(GivenParametersTest, AnotherNumberOfElementsIsRefused) {
  Driver driver(job(1, true));
  GivenParameters& given = given_of(driver, 0);
  const Flat before = all_values(driver);
  const int64_t count = given.parameter_count({0});
  for (const int64_t wrong : {int64_t{0}, count - 1, count + 1}) {
    std::vector<float> elements(static_cast<size_t>(wrong), 7.0F);
    const std::string said =
        cat("stage 0 has parameters of ", count, " elements, unused ones included, and was given ",
            wrong, ": give as many as parameter_count() says");
    for (const Status& status :
         {given.initial_parameters({0}, elements), given.set_parameters({0}, elements),
          given.read_gradients({0}, elements)}) {
      ASSERT_FALSE(status.ok());
      EXPECT_EQ(status.error().code, Code::Invalid);
      EXPECT_EQ(status.error().reach, Reach::Call);
      EXPECT_EQ(status.error().message, said);
    }
    EXPECT_EQ(elements, std::vector<float>(elements.size(), 7.0F));
  }
  expect_same_bits(all_values(driver), before);
}

TEST_F(GivenParametersTest, ADeviceOfTwoStagesHasThoseOfEach) {
  const Result<Plan> plan = make_lone_plan(2, 2, 2);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  QueueMailbox mailbox;
  auto made = make_engine(job(1, true), plan.value(), {{0}, {1}}, mailbox);
  ASSERT_TRUE(made.ok()) << made.error().message;
  Device& device = *made.value();
  GivenParameters* const given = device.given_parameters();
  ASSERT_NE(given, nullptr);
  const std::vector<float> first = values_of(device, {0});
  EXPECT_EQ(given->parameter_count({0}), std::ssize(first));
  EXPECT_GT(given->decayed_count({0}), 0);
  EXPECT_LT(given->decayed_count({1}), given->parameter_count({1}));
  std::vector<float> second(static_cast<size_t>(given->parameter_count({1})));
  for (size_t i = 0; i < second.size(); ++i) second[i] = static_cast<float>(i % 5);
  ASSERT_TRUE(given->set_parameters({1}, second).ok());
  EXPECT_TRUE(same_bits(values_of(device, {0}), first));
  EXPECT_TRUE(same_bits(values_of(device, {1}), second));
  std::vector<float> initial(first.size());
  ASSERT_TRUE(given->initial_parameters({0}, initial).ok());
  EXPECT_TRUE(same_bits(initial, first));
}

}  // namespace
}  // namespace tenuto
