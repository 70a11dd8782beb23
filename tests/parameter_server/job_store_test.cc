// The ranges of a job's server shards, and the settings of their optimizer.
#include "parameter_server/job_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "base/text.h"

namespace tenuto::servers {
namespace {

Job job_of(const std::string& optimizer) {
  Job job;
  job.steps = 30;
  job.parallel.micros = 3;
  job.parallel.pipelines = 4;
  job.optimizer.kind = optimizer;
  job.optimizer.clip = 0;
  job.sync.architecture = "servers";
  job.sync.servers = 3;
  return job;
}

TEST(JobStore, EachServerHasARange) {
  for (const int64_t count : {int64_t{16}, int64_t{48}, int64_t{160}, int64_t{12345}}) {
    for (int32_t servers = 1; servers < 10; ++servers) {
      SCOPED_TRACE(cat(count, " elements, ", servers, " servers"));
      Job job = job_of("adamw");
      job.sync.servers = servers;
      const std::vector<ElementRange> ranges = ranges_of_job(job, {&count, 1});
      EXPECT_EQ(std::ssize(ranges), std::min<int64_t>(servers, (count + 15) / 16));
      int64_t next = 0, least = count, most = 0;
      for (const ElementRange& range : ranges) {
        EXPECT_EQ(range.stage, StageId{0});
        EXPECT_EQ(range.begin, next);
        EXPECT_EQ(range.begin % 16, 0);
        next = range.end;
        least = std::min(least, range.end - range.begin);
        most = std::max(most, range.end - range.begin);
      }
      EXPECT_EQ(next, count);
      EXPECT_GT(least, 0);
      EXPECT_LT(most - least, 32);
    }
  }
}

TEST(JobStore, AModelWhoseNormIsNeededIsOneRange) {
  Job job = job_of("adamw");
  job.optimizer.clip = 1;
  const std::vector<int64_t> elements = {12345};
  const ElementRange whole{{0}, 0, 12345};
  EXPECT_EQ(ranges_of_job(job, elements), std::vector<ElementRange>{whole});
  const MassStoreSettings settings = store_settings_of(job, whole, 12000);
  EXPECT_TRUE(settings.whole_model);
  EXPECT_TRUE(MassStore::make(settings, whole, std::vector<float>(12345)).ok());
}

TEST(JobStore, ServersAreDividedAmongStages) {
  Job job = job_of("adamw");
  job.parallel.stages = 2;
  job.sync.servers = 5;
  const std::vector<int64_t> elements = {320, 160};
  const std::vector<ElementRange> five = {
      {{0}, 0, 96}, {{0}, 96, 208}, {{0}, 208, 320}, {{1}, 0, 80}, {{1}, 80, 160}};
  const std::vector<ElementRange> two = {{{0}, 0, 320}, {{1}, 0, 160}};
  EXPECT_EQ(ranges_of_job(job, elements), five);
  job.sync.servers = 1;
  EXPECT_EQ(ranges_of_job(job, elements), two);
  job.sync.servers = 5;
  job.optimizer.clip = 1;
  EXPECT_EQ(ranges_of_job(job, elements), two);
  const auto made =
      MassStore::make(store_settings_of(job, two[1], 100), two[1], std::vector<float>(160));
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "servers: clipping needs the norm over the whole model, and elements 0 to 160 of stage "
            "1 are a part of it: set clip to 0");
}

// Without servers the replicas keep the ranges, as many of each stage as there are replicas.
TEST(JobStore, EachReplicaHasARangeOfEachStage) {
  Job job = job_of("adamw");
  job.sync.architecture = "all-reduce";
  job.sync.servers = 1;
  job.parallel.stages = 2;
  job.parallel.pipelines = 3;
  const std::vector<int64_t> elements = {320, 20};
  const std::vector<ElementRange> ranges = {
      {{0}, 0, 96}, {{0}, 96, 208}, {{0}, 208, 320}, {{1}, 0, 16}, {{1}, 16, 20}};
  EXPECT_EQ(ranges_of_job(job, elements), ranges);
  job.optimizer.clip = 1;
  const std::vector<ElementRange> whole = {{{0}, 0, 320}, {{1}, 0, 20}};
  EXPECT_EQ(ranges_of_job(job, elements), whole);
}

TEST(JobStore, TheOptimizerIsThatOfTheJob) {
  const ElementRange range{{0}, 0, 160};
  Job job = job_of("adamw");
  job.optimizer.beta1 = 0.8;
  job.optimizer.beta2 = 0.99;
  job.optimizer.epsilon = 1e-6;
  job.optimizer.weight_decay = 0.2;
  job.optimizer.warm_up_steps = 7;
  const MassStoreSettings adam = store_settings_of(job, range, 100);
  EXPECT_EQ(adam.optimizer, TrialOptimizer::AdamW);
  EXPECT_EQ(adam.rate, job.optimizer.learning_rate);
  EXPECT_EQ(adam.adam.beta1, 0.8);
  EXPECT_EQ(adam.adam.beta2, 0.99);
  EXPECT_EQ(adam.adam.epsilon, 1e-6);
  EXPECT_EQ(adam.adam.weight_decay, 0.2);
  EXPECT_EQ(adam.weight_decay, 0);
  EXPECT_EQ(adam.clip, 0);
  EXPECT_EQ(adam.full, Mass{12});
  EXPECT_EQ(adam.schedule.warm_up_steps, 7);
  EXPECT_TRUE(adam.schedule.cosine);
  EXPECT_EQ(adam.schedule.minimum_rate, job.optimizer.minimum_rate);
  EXPECT_EQ(adam.schedule.steps, 30);
  job.optimizer.kind = "sgd";
  job.optimizer.schedule = "constant";
  const MassStoreSettings momentum = store_settings_of(job, range, 100);
  EXPECT_EQ(momentum.optimizer, TrialOptimizer::Momentum);
  EXPECT_EQ(momentum.momentum, 0.9);
  EXPECT_EQ(momentum.weight_decay, 0.2);
  EXPECT_FALSE(momentum.schedule.cosine);
  job.optimizer.momentum = 0;
  EXPECT_EQ(store_settings_of(job, range, 100).optimizer, TrialOptimizer::Sgd);
}

TEST(JobStore, WeightDecayIsForTheFirstElementsOfTheStage) {
  const Job job = job_of("sgd");
  const auto decayed = [&](int64_t begin, int64_t end, int64_t of_stage) {
    return store_settings_of(job, {{0}, begin, end}, of_stage).decayed;
  };
  EXPECT_EQ(decayed(0, 160, 0), 0);
  EXPECT_EQ(decayed(0, 160, 100), 100);
  EXPECT_EQ(decayed(0, 160, 500), 160);
  EXPECT_EQ(decayed(160, 320, 100), 0);
  EXPECT_EQ(decayed(160, 320, 200), 40);
  EXPECT_EQ(decayed(160, 320, 320), 160);
}

std::vector<float> random_vector(Random& random, int64_t size) {
  std::vector<float> values;
  for (int64_t i = 0; i < size; ++i) values.push_back(static_cast<float>(random.uniform() - 0.5));
  return values;
}

// The stores of some ranges, which take the same updates.
class Stores {
 public:
  Stores(const Job& job, const std::vector<ElementRange>& ranges, int64_t decayed,
         const std::vector<float>& model)
      : ranges_(ranges) {
    for (const ElementRange& range : ranges_) {
      auto made = MassStore::make(store_settings_of(job, range, decayed), range,
                                  {model.begin() + range.begin, model.begin() + range.end});
      EXPECT_TRUE(made.ok()) << made.error().message;
      stores_.push_back(std::move(made).value());
    }
  }

  void take(const std::vector<float>& gradient, int64_t mass) {
    const Offer offer{{0}, {0}, {0}, {mass}};
    DecidedUpdate update;
    update.update.members.push_back(offer);
    update.works.push_back({1, offer, 1, {}});
    for (size_t i = 0; i < stores_.size(); ++i) {
      const auto part = std::as_bytes(
          std::span(gradient).subspan(static_cast<size_t>(ranges_[i].begin),
                                      static_cast<size_t>(ranges_[i].end - ranges_[i].begin)));
      const Payload payload = std::make_shared<std::vector<std::byte>>(part.begin(), part.end());
      stores_[i]->apply(update, {&payload, 1});
    }
  }

  std::vector<float> values() const {
    std::vector<float> all;
    for (const auto& store : stores_) {
      all.insert(all.end(), store->elements().begin(), store->elements().end());
    }
    return all;
  }

 private:
  std::vector<ElementRange> ranges_;
  std::vector<std::unique_ptr<MassStore>> stores_;
};

// However many servers there are, they have the bits of one; also where the elements with weight
// decay end within a range.
TEST(JobStore, TheNumberOfServersChangesNothing) {
  constexpr int64_t kSize = 3000, kDecayed = 1700;
  for (const char* kind : {"adamw", "sgd"}) {
    for (const double momentum : {0.0, 0.9}) {
      Job job = job_of(kind);
      job.optimizer.momentum = momentum;
      Random random(1);
      const std::vector<float> model = random_vector(random, kSize);
      const std::vector<int64_t> elements = {kSize};
      Stores three(job, ranges_of_job(job, elements), kDecayed, model);
      job.sync.servers = 1;
      Stores one(job, ranges_of_job(job, elements), kDecayed, model);
      for (int i = 0; i < 20; ++i) {
        const std::vector<float> gradient = random_vector(random, kSize);
        const int64_t mass = 1 + random.below(12);
        three.take(gradient, mass);
        one.take(gradient, mass);
        ASSERT_EQ(three.values(), one.values()) << kind << ", update " << i;
      }
      EXPECT_NE(one.values(), model);
    }
  }
}

}  // namespace
}  // namespace tenuto::servers
