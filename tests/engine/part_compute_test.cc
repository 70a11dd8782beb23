// The parts of a replica compute the gradient of given parameters together. It is the gradient that
// the replica's pipeline contributes to a synchronous step with the same parameters.
#include "worker/part_compute.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "engine/engine_cluster.h"
#include "engine/flat_state.h"
#include "engine/toy_job.h"
#include "plan/routed.h"
#include "plan/stage_plan.h"
#include "transport/memory.h"

namespace tenuto {
namespace {

template <class T>
T expect(Result<T> result) {
  CHECK(result.ok(), result.error().message);
  return std::move(result).value();
}

Plan plan_of_pipeline(const Job& job) {
  Job alone = job;
  alone.parallel.pipelines = 1;
  return with_evaluation(plan_of_model(alone), job.validate_micros);
}

// One part with an engine and a wire of its own.
struct Seat {
  Seat(MemoryNetwork& network, const Job& job, const Plan& plan, const PartPlace& place)
      : transport(make_memory_transport(
            network, {"parts", "token", kWireVersion, {place.stage.value}, 0}, mailbox)),
        device(expect(make_engine(job, plan, {place.stage}, mailbox))),
        part(expect(PartCompute::make(
            job, plan, place, {transport.get(), device.get(), &mailbox, &monotonic_clock(), 0}))) {}

  QueueMailbox mailbox;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Device> device;
  PartCompute part;
};

// All parts of one replica. Worker s of the plan holds stage s.
class Replica {
 public:
  Replica(const Job& job, int32_t replica) : job_(job), plan_(plan_of_pipeline(job)) {
    for (int32_t s = 0; s < job.parallel.stages; ++s) {
      seats_.push_back(std::make_unique<Seat>(network_, job_, plan_, PartPlace{{s}, {replica}}));
    }
    for (size_t from = 0; from < seats_.size(); ++from) {
      for (size_t to = from + 1; to < seats_.size(); ++to) {
        const Status status = seats_[from]->transport->connect(
            {static_cast<int32_t>(to)}, seats_[to]->transport->address(), fresh_ticket());
        CHECK(status.ok(), status.error().message);
      }
    }
  }

  Flat initial() {
    Flat all;
    for (size_t s = 0; s < seats_.size(); ++s) {
      const StageId stage{static_cast<int32_t>(s)};
      GivenParameters& given = *seats_[s]->device->given_parameters();
      all.emplace_back(static_cast<size_t>(given.parameter_count(stage)));
      EXPECT_TRUE(given.initial_parameters(stage, all.back()).ok());
    }
    return all;
  }

  // Runs an iteration of all parts, each in a thread of its own.
  std::vector<PartGradient> run(int64_t iteration, const Flat& parameters) {
    std::vector<PartGradient> made(seats_.size());
    std::vector<std::thread> threads;
    for (size_t s = 0; s < seats_.size(); ++s) {
      threads.emplace_back([this, s, iteration, &parameters, &made] {
        made[s] = expect(part(s).run({iteration}, parameters[s]));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return made;
  }

  // The held-out loss of all parts together.
  HeldOutLoss validate(const Flat& parameters) {
    std::vector<HeldOutLoss> made(seats_.size());
    std::vector<std::thread> threads;
    for (size_t s = 0; s < seats_.size(); ++s) {
      threads.emplace_back(
          [this, s, &parameters, &made] { made[s] = expect(part(s).validate(parameters[s])); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t s = 0; s + 1 < made.size(); ++s) EXPECT_EQ(made[s].micros, 0);
    return made.back();
  }

  PartCompute& part(size_t stage) { return seats_[stage]->part; }
  // Ends the wire of a part, as the death of its process does.
  void lose(int32_t stage) { network_.lose({stage}); }

 private:
  const Job job_;
  const Plan plan_;
  MemoryNetwork network_;
  std::vector<std::unique_ptr<Seat>> seats_;
};

// Step 1 of a synchronous run.
struct SynchronousStep {
  Flat parameters;                   // that it reads
  std::vector<Flat> sums;            // by replica and stage: the gradients of its pipeline
  std::map<int32_t, double> losses;  // by micro-batch of the step
};

std::vector<ThreadRun> run_one(TestCluster& cluster, int64_t step) {
  std::vector<ThreadRun> runs = cluster.run(step, 1);
  for (const ThreadRun& run : runs) CHECK(run.status.ok(), run.status.error().message);
  return runs;
}

SynchronousStep run_synchronous(const Job& job) {
  const Plan plan = plan_of_model(job);
  TestCluster cluster(job, plan, engines(job, plan));
  cluster.connect();
  const auto device = [&](int32_t stage, int32_t replica) -> Device& {
    const Stage& of = plan.stages[static_cast<size_t>(stage)];
    return cluster.compute(of.holders[static_cast<size_t>(replica)].value);
  };
  SynchronousStep step;
  run_one(cluster, 0);
  for (int32_t s = 0; s < job.parallel.stages; ++s) {
    step.parameters.push_back(values_of(device(s, 0), {s}));
  }
  for (const ThreadRun& run : run_one(cluster, 1)) {
    for (const MicroLoss& one : run.outcomes.front().losses) {
      step.losses[one.micro.value] = one.loss;
    }
  }
  for (int32_t r = 0; r < job.parallel.pipelines; ++r) {
    Flat sums;
    for (int32_t s = 0; s < job.parallel.stages; ++s) sums.push_back(sum_of(device(s, r), {s}));
    step.sums.push_back(std::move(sums));
  }
  return step;
}

class PartComputeTest : public ToyTest {
 protected:
  PartComputeTest() {
    write_lines("a.txt", 400, [](std::ostream& out, int i) {
      out << i << " plus " << i * 7 % 31 << " is more.\n";
    });
  }

  // Two replicas with two micro-batches each.
  Job job(int32_t stages, bool split) const {
    Job job = toy_job(stages, 2);
    job.steps = 10;
    job.model.width = 20;
    job.model.sequence = 8;
    job.model.dropout = 0.1;
    job.parallel.pipelines = 2;
    job.parallel.micro_rows = 1;
    job.parallel.split_backward = split;
    return job;
  }
};

// The parts of replica `r` compute in iteration 1 what its pipeline computed in the step.
void expect_same(const Job& job, int32_t r, const SynchronousStep& step) {
  const int32_t replicas = job.parallel.pipelines, micros = job.parallel.micros;
  const std::vector<PartGradient> made = Replica(job, r).run(1, step.parameters);
  double losses = 0;
  for (int32_t m = 0; m < micros; ++m) losses += step.losses.at(m * replicas + r);
  for (size_t s = 0; s < made.size(); ++s) {
    const std::vector<float>& wanted = step.sums[static_cast<size_t>(r)][s];
    EXPECT_TRUE(same_bits(made[s].sum, wanted)) << "stage " << s;
    EXPECT_EQ(made[s].mass, Mass{micros});
    const bool last = s + 1 == made.size();
    ASSERT_EQ(made[s].loss.has_value(), last);
    if (last) {
      EXPECT_EQ(*made[s].loss, losses / micros);
    }
    const std::vector<float> mean = made[s].mean();
    ASSERT_EQ(mean.size(), wanted.size());
    for (size_t i = 0; i < mean.size(); ++i) {
      ASSERT_EQ(mean[i], wanted[i] / static_cast<float>(micros));
    }
  }
}

TEST_F(PartComputeTest, GradientsAreThoseOfASynchronousStep) {
  for (const int32_t stages : {1, 2}) {
    for (const bool split : {false, true}) {
      for (const char* numerics : {"fast", "reproducible"}) {
        Job own = job(stages, split);
        own.resilience.numerics = numerics;
        const SynchronousStep step = run_synchronous(own);
        ASSERT_EQ(step.losses.size(), static_cast<size_t>(own.micro_count()));
        for (int32_t r = 0; r < own.parallel.pipelines; ++r) {
          SCOPED_TRACE(cat(stages, " stages, ", split ? "split, " : "not split, ", numerics,
                           ", replica ", r));
          expect_same(own, r, step);
        }
      }
    }
  }
}

TEST_F(PartComputeTest, DataFollowTheIterationAndTheReplica) {
  const Job own = job(2, true);
  Replica first(own, 0), second(own, 1);
  const Flat parameters = first.initial();
  const std::vector<PartGradient> once = first.run(4, parameters);
  const std::vector<PartGradient> later = first.run(9, parameters);
  const std::vector<PartGradient> again = first.run(4, parameters);
  const std::vector<PartGradient> other = second.run(4, parameters);
  for (size_t s = 0; s < once.size(); ++s) {
    EXPECT_TRUE(same_bits(again[s].sum, once[s].sum));
    EXPECT_FALSE(same_bits(later[s].sum, once[s].sum));
    EXPECT_FALSE(same_bits(other[s].sum, once[s].sum));
  }
  EXPECT_EQ(again[1].loss, once[1].loss);
  EXPECT_NE(later[1].loss, once[1].loss);
  EXPECT_NE(other[1].loss, once[1].loss);
}

// Two replicas have the micro-batches of the held-out pass that one alone has.
TEST_F(PartComputeTest, ReplicasShareTheHeldOutPass) {
  for (const int32_t stages : {1, 2}) {
    SCOPED_TRACE(cat(stages, " stages"));
    Job own = job(stages, true);
    own.validate_micros = 5;
    Job alone = own;
    alone.parallel.pipelines = 1;
    Replica first(own, 0), second(own, 1), whole(alone, 0);
    const Flat parameters = first.initial();
    const std::vector<PartGradient> before = first.run(4, parameters);
    const HeldOutLoss one = first.validate(parameters), two = second.validate(parameters);
    const HeldOutLoss all = whole.validate(parameters);
    EXPECT_EQ(one.micros, 3);
    EXPECT_EQ(two.micros, 2);
    EXPECT_EQ(all.micros, 5);
    EXPECT_GT(all.sum, 0);
    EXPECT_NE(2 * one.sum, 3 * two.sum);
    EXPECT_NEAR(one.sum + two.sum, all.sum, 1e-9 * all.sum);
    ASSERT_TRUE(one.accuracy_sum && two.accuracy_sum && all.accuracy_sum);
    EXPECT_NEAR(*one.accuracy_sum + *two.accuracy_sum, *all.accuracy_sum, 1e-9);
    // It is the same every time, and gradients do not change.
    EXPECT_EQ(first.validate(parameters).sum, one.sum);
    const std::vector<PartGradient> after = first.run(4, parameters);
    for (size_t s = 0; s < after.size(); ++s) {
      EXPECT_TRUE(same_bits(after[s].sum, before[s].sum)) << "stage " << s;
    }
    EXPECT_EQ(after.back().loss, before.back().loss);
  }
}

TEST_F(PartComputeTest, AReplicaMayHaveNothingToValidate) {
  Job own = job(1, true);
  own.validate_micros = 1;
  Replica second(own, 1);
  EXPECT_EQ(second.validate(second.initial()).micros, 0);
  own.validate_micros = 0;
  Replica first(own, 0);
  EXPECT_EQ(first.validate(first.initial()).micros, 0);
}

TEST_F(PartComputeTest, AStoppedValidationGivesNoLoss) {
  Replica replica(job(1, true), 0);
  const std::atomic<bool> stop = true;
  const Result<HeldOutLoss> made = replica.part(0).validate(replica.initial()[0], &stop);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::Cancelled);
}

TEST_F(PartComputeTest, WithoutAnotherPartThereIsAnError) {
  Replica replica(job(2, true), 0);
  const Flat parameters = replica.initial();
  replica.run(0, parameters);
  replica.lose(1);
  const Result<PartGradient> made = replica.part(0).run({1}, parameters[0]);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::Disconnected);
}

TEST_F(PartComputeTest, AnotherNumberOfElementsIsRefused) {
  Replica replica(job(1, true), 0);
  Flat parameters = replica.initial();
  parameters[0].pop_back();
  const Result<PartGradient> made = replica.part(0).run({0}, parameters[0]);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::Invalid);
  EXPECT_NE(made.error().message.find(cat("was given ", parameters[0].size())), std::string::npos);
}

// The gradient of a list of micro-batches for the initial parameters.
PartGradient sum_of_list(Replica& replica, const std::vector<servers::MicroRange>& micros) {
  return expect(replica.part(0).run(micros, replica.initial()[0]));
}

// Adds the other sum, element by element.
void add(std::vector<float>& sum, const std::vector<float>& more) {
  ASSERT_EQ(sum.size(), more.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

TEST_F(PartComputeTest, AListOfTwoIterationsIsTheSumOfBoth) {
  for (const bool split : {false, true}) {
    Replica replica(job(1, split), 1);
    const PartGradient third = replica.run(3, replica.initial())[0];
    const PartGradient fourth = replica.run(4, replica.initial())[0];
    const PartGradient both = sum_of_list(replica, {{{1}, 6, 10}});
    std::vector<float> wanted = third.sum;
    add(wanted, fourth.sum);
    EXPECT_TRUE(same_bits(both.sum, wanted));
    EXPECT_EQ(both.mass, Mass{4});
    EXPECT_DOUBLE_EQ(*both.loss, (*third.loss + *fourth.loss) / 2);
    // The other way round: two numbers have the same sum in either order.
    const PartGradient turned = sum_of_list(replica, {{{1}, 8, 10}, {{1}, 6, 8}});
    EXPECT_TRUE(same_bits(turned.sum, wanted));
  }
}

TEST_F(PartComputeTest, PartsOfIterationsAddUpInTheOrderOfTheList) {
  Replica replica(job(1, true), 0);
  // The second micro-batch of iteration 2 and the first one of iteration 3.
  const PartGradient second = sum_of_list(replica, {{{0}, 5, 6}});
  const PartGradient first = sum_of_list(replica, {{{0}, 6, 7}});
  const PartGradient both = sum_of_list(replica, {{{0}, 5, 7}});
  std::vector<float> wanted = second.sum;
  add(wanted, first.sum);
  EXPECT_TRUE(same_bits(both.sum, wanted));
  EXPECT_EQ(both.mass, Mass{2});
  EXPECT_EQ(second.mass, Mass{1});
  // Micro-batches of one iteration are one pass, wherever the list names them.
  const PartGradient whole = replica.run(2, replica.initial())[0];
  const PartGradient apart = sum_of_list(replica, {{{0}, 5, 6}, {{0}, 4, 5}});
  EXPECT_TRUE(same_bits(apart.sum, whole.sum));
  EXPECT_EQ(apart.loss, whole.loss);
}

TEST_F(PartComputeTest, MicroBatchesOfAnotherReplicaAreThose) {
  const Job own = job(1, true);
  Replica first(own, 0), second(own, 1);
  const PartGradient theirs = second.run(4, second.initial())[0];
  const PartGradient same = sum_of_list(first, {{{1}, 8, 10}});
  EXPECT_TRUE(same_bits(same.sum, theirs.sum));
  EXPECT_EQ(same.loss, theirs.loss);
  // Together with its own ones of the same iteration.
  std::vector<float> wanted = theirs.sum;
  add(wanted, first.run(4, first.initial())[0].sum);
  EXPECT_TRUE(same_bits(sum_of_list(first, {{{1}, 8, 10}, {{0}, 8, 10}}).sum, wanted));
}

TEST_F(PartComputeTest, ListsThatTheJobDoesNotHaveAreRefused) {
  Replica replica(job(1, true), 0);
  const Flat parameters = replica.initial();
  const std::vector<std::vector<servers::MicroRange>> lists = {
      {}, {{{2}, 0, 1}}, {{{0}, -1, 1}}, {{{0}, 3, 3}}, {{{0}, 0, 2}, {{0}, 1, 3}}};
  for (const std::vector<servers::MicroRange>& list : lists) {
    const Result<PartGradient> made = replica.part(0).run(list, parameters[0]);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, Code::Invalid);
  }
}

TEST_F(PartComputeTest, AStoppedListGivesNoGradient) {
  Replica replica(job(1, true), 0);
  const Flat parameters = replica.initial();
  const std::vector<servers::MicroRange> list = {{{0}, 8, 10}};
  std::atomic<bool> stop = true;
  const Result<PartGradient> made = replica.part(0).run(list, parameters[0], &stop);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::Cancelled);
  stop = false;
  const PartGradient whole = expect(replica.part(0).run(list, parameters[0], &stop));
  EXPECT_TRUE(same_bits(whole.sum, replica.run(4, parameters)[0].sum));
}

// There is no such part of a job with two pipelines on a paced device, and the error says
// `because`.
void expect_refusal(const Plan& plan, const PartPlace& place, const std::string& because) {
  const Job alone = instant_job(2, 1, 2);
  TestCluster cluster(alone, plan_of(alone));
  PartMachine machine;
  machine.device = &cluster.compute(0);
  const Result<PartCompute> made = PartCompute::make(instant_job(2, 2, 2), plan, place, machine);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Code::Invalid);
  EXPECT_NE(made.error().message.find(because), std::string::npos) << made.error().message;
}

TEST_F(PartComputeTest, RefusesOtherPlansPlacesAndDevices) {
  const Plan plan = plan_of(instant_job(2, 1, 2));
  expect_refusal(plan, {{2}, {0}}, "stage 2 is not one of the plan's 2");
  expect_refusal(plan, {{}, {0}}, "stage none is not one of the plan's 2");
  expect_refusal(plan, {{0}, {2}}, "replica 2 is not one of the job's 2");
  expect_refusal(plan, {{0}, {}}, "replica none is not one of the job's 2");
  expect_refusal(plan_of(instant_job(2, 2, 2)), {{0}, {0}}, "the plan has 4 micro-batches");
  expect_refusal(expect(make_lone_plan(2, 1, 2)), {{0}, {0}}, "must hold one stage");
  Plan tied = plan;
  tied.update.tied = true;
  expect_refusal(tied, {{0}, {0}}, "share a tied weight");
  expect_refusal(plan, {{0}, {0}}, "computes no gradients of given parameters");
}

}  // namespace
}  // namespace tenuto
