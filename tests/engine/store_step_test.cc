// The servers of a job step as the engine does: they take the gradients of an engine's steps as
// updates of full mass, and their parameters stay those of the engine but for rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "engine/driver.h"
#include "engine/flat_state.h"
#include "engine/toy_job.h"
#include "parameter_server/job_store.h"
#include "runtime/given_parameters.h"

namespace tenuto {
namespace {

// The stores of all servers of a job with one stage.
class Keepers {
 public:
  Keepers(const Job& job, GivenParameters& given) {
    const std::vector<int64_t> elements = {given.parameter_count({0})};
    std::vector<float> initial(static_cast<size_t>(elements[0]));
    const Status filled = given.initial_parameters({0}, initial);
    CHECK(filled.ok(), filled.error().message);
    ranges_ = servers::ranges_of_job(job, elements);
    for (const servers::ElementRange& range : ranges_) {
      auto made = servers::MassStore::make(
          servers::store_settings_of(job, range, given.decayed_count({0})), range,
          {initial.begin() + range.begin, initial.begin() + range.end});
      CHECK(made.ok(), made.error().message);
      stores_.push_back(std::move(made).value());
    }
  }

  // Takes an update with one gradient, the sum over `mass` micro-batches.
  void take(const std::vector<float>& sum, int64_t mass) {
    const Offer offer{{0}, {0}, {0}, {mass}};
    servers::DecidedUpdate update;
    update.update.members.push_back(offer);
    update.works.push_back({1, offer, 1, {}});
    for (size_t i = 0; i < stores_.size(); ++i) {
      const auto part = std::as_bytes(
          std::span(sum).subspan(static_cast<size_t>(ranges_[i].begin),
                                 static_cast<size_t>(ranges_[i].end - ranges_[i].begin)));
      const servers::Payload gradient =
          std::make_shared<std::vector<std::byte>>(part.begin(), part.end());
      stores_[i]->apply(update, {&gradient, 1});
    }
  }

  std::vector<float> values() const {
    std::vector<float> all;
    for (const auto& store : stores_) {
      all.insert(all.end(), store->elements().begin(), store->elements().end());
    }
    return all;
  }

  size_t count() const { return stores_.size(); }

 private:
  std::vector<servers::ElementRange> ranges_;
  std::vector<std::unique_ptr<servers::MassStore>> stores_;
};

class StoreStepTest : public ToyTest {
 protected:
  StoreStepTest() {
    write_lines("a.txt", 400, [](std::ostream& out, int i) {
      out << i << " plus " << i * 7 % 31 << " is more.\n";
    });
  }

  // Three micro-batches, so their mean is rounded; three servers.
  Job job(const std::string& optimizer) const {
    Job job = toy_job(1, 3);
    job.steps = 10;
    job.model.width = 20;
    job.optimizer.kind = optimizer;
    job.optimizer.learning_rate = optimizer == "adamw" ? 0.01 : 0.02;
    job.optimizer.weight_decay = 0.1;
    job.optimizer.clip = 0;
    job.optimizer.warm_up_steps = 0;
    job.optimizer.schedule = "constant";
    job.sync.architecture = "servers";
    job.sync.servers = 3;
    return job;
  }
};

// What the largest absolute value of each element has been so far. Rounding errors are relative to
// it: a value may come close to zero after steps that were long.
void widen(std::vector<float>& reach, const std::vector<float>& values) {
  ASSERT_EQ(reach.size(), values.size());
  for (size_t i = 0; i < reach.size(); ++i) reach[i] = std::max(reach[i], std::abs(values[i]));
}

// Runs the engine's first steps, gives its gradients to the servers, and compares the parameters
// after each step: they may differ by a millionth for each step. Returns the gradients' norms.
std::vector<double> compare(const Job& job, int64_t steps, size_t servers_expected) {
  Driver driver(job);
  Device& device = driver.engine(0);
  Keepers keepers(job, *device.given_parameters());
  EXPECT_EQ(keepers.count(), servers_expected);
  const std::vector<float> initial = values_of(device, {0});
  EXPECT_TRUE(same_bits(keepers.values(), initial));
  std::vector<float> reach(initial.size(), 0.0F);
  widen(reach, initial);
  std::vector<double> norms;
  for (int64_t step = 0; step < steps; ++step) {
    norms.push_back(driver.run(step).outcomes.front().gradient_norm);
    keepers.take(sum_of(device, {0}), job.micro_count());
    const std::vector<float> wanted = values_of(device, {0}), found = keepers.values();
    widen(reach, wanted);
    EXPECT_EQ(found.size(), wanted.size());
    const double part = 1e-6 * static_cast<double>(step + 1);
    size_t apart = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double error = std::abs(double{found[i]} - double{wanted[i]});
      if (!(error <= part * double{reach[i]})) ++apart;
    }
    EXPECT_EQ(apart, 0U) << "elements of " << wanted.size() << " after step " << step;
  }
  return norms;
}

TEST_F(StoreStepTest, OneStepIsThatOfTheEngine) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    for (const double decay : {0.0, 0.1}) {
      for (const double momentum : {0.0, 0.9}) {
        SCOPED_TRACE(cat(optimizer, ", decay ", decay, ", momentum ", momentum));
        Job own = job(optimizer);
        own.optimizer.weight_decay = decay;
        own.optimizer.momentum = momentum;
        compare(own, 1, 3);
      }
    }
  }
}

TEST_F(StoreStepTest, StepsWithAScheduleAreThoseOfTheEngine) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    for (const char* schedule : {"cosine", "constant"}) {
      SCOPED_TRACE(cat(optimizer, ", ", schedule));
      Job own = job(optimizer);
      own.optimizer.warm_up_steps = 3;
      own.optimizer.schedule = schedule;
      compare(own, 10, 3);
    }
  }
}

TEST_F(StoreStepTest, ClippedStepsAreThoseOfTheEngine) {
  for (const char* optimizer : {"adamw", "sgd"}) {
    SCOPED_TRACE(optimizer);
    Job own = job(optimizer);
    own.optimizer.clip = 0.25;
    own.optimizer.warm_up_steps = 2;
    const std::vector<double> norms = compare(own, 6, 1);
    EXPECT_GT(*std::max_element(norms.begin(), norms.end()), own.optimizer.clip);
  }
}

}  // namespace
}  // namespace tenuto
