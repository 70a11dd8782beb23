// The steps of a run with server shards: when one is done, and what its line says.
#include "run/served_steps.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace tenuto {
namespace {

using servers::CommittedReport;
using servers::MeasuredIteration;
using servers::ValidatedReport;

// Two replicas with four micro-batches each: the mass of a step is 8.
Job two_replicas() {
  Job job;
  job.steps = 5;
  job.parallel.pipelines = 2;
  job.parallel.micros = 4;
  job.sync.architecture = "servers";
  job.sync.mode = "synchronous";
  return job;
}

MeasuredIteration iteration(int32_t replica, double loss, double share = 1) {
  MeasuredIteration one;
  one.replica = {replica};
  one.share = share;
  one.loss = loss;
  return one;
}

CommittedReport committed(int64_t version, int64_t mass) {
  CommittedReport report;
  report.version = {version};
  report.applied = {mass};
  report.works = 1;
  return report;
}

// A limit above all steps.
constexpr int64_t kAll = 1000;

Duration ms(int64_t milliseconds) { return std::chrono::milliseconds(milliseconds); }

class ServedStepsTest : public testing::Test {
 protected:
  ServedStepsTest() { steps.begin(ms(100)); }
  // Those that can be reported when a step that was done at this moment has waited.
  std::vector<ServedStep> reported(ServedSteps& of, int64_t milliseconds) {
    return of.take(ms(milliseconds) + ServedSteps::kPause, kAll);
  }

  Job job = two_replicas();
  ServedSteps steps{job, Mass{0}};
};

TEST_F(ServedStepsTest, AStepIsDoneWhenItsMassIsCommitted) {
  steps.add(iteration(0, 3));
  steps.add(committed(1, 4), ms(150));
  EXPECT_EQ(steps.done(), 0);
  EXPECT_TRUE(reported(steps, 150).empty());
  steps.add(iteration(1, 5));
  steps.add(committed(2, 8), ms(300));
  EXPECT_EQ(steps.done(), 1);
  EXPECT_TRUE(steps.take(ms(300), kAll).empty());
  const std::vector<ServedStep> taken = reported(steps, 300);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].step, 0);
  EXPECT_EQ(taken[0].loss, 4);
  EXPECT_EQ(taken[0].duration, ms(200));
  EXPECT_EQ(taken[0].mode, "synchronous");
  EXPECT_EQ(taken[0].applied, Mass{8});
  EXPECT_TRUE(reported(steps, 400).empty());
}

// They share the time; each has the losses of its own micro-batches.
TEST_F(ServedStepsTest, SeveralStepsMayEndWithOneReport) {
  for (const double loss : {6, 4, 2}) {
    steps.add(iteration(0, loss));
    steps.add(iteration(1, loss));
  }
  steps.add(committed(3, 24), ms(400));
  const std::vector<ServedStep> taken = reported(steps, 400);
  ASSERT_EQ(taken.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    const ServedStep& step = taken[static_cast<size_t>(i)];
    EXPECT_EQ(step.step, i);
    EXPECT_EQ(step.loss, 6.0 - 2.0 * static_cast<double>(i));
    EXPECT_EQ(step.duration, ms(100));
  }
}

// One replica's reports come before those of the other one, and before the commits.
TEST_F(ServedStepsTest, AnIterationOfTheNextStepIsNotInThisOne) {
  steps.add(iteration(0, 8));
  steps.add(iteration(0, 1));
  steps.add(committed(1, 8), ms(200));
  steps.add(iteration(1, 6));
  const std::vector<ServedStep> first = reported(steps, 200);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].loss, 7);
  steps.add(iteration(1, 3));
  steps.add(committed(2, 16), ms(300));
  const std::vector<ServedStep> second = reported(steps, 300);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].loss, 2);
}

TEST_F(ServedStepsTest, AStepWaitsForTheIterationsThatAreInIt) {
  steps.add(iteration(0, 1));
  steps.add(committed(1, 8), ms(200));
  EXPECT_EQ(steps.done(), 1);
  EXPECT_TRUE(reported(steps, 200).empty());
  steps.add(iteration(1, 2));
  const std::vector<ServedStep> taken = reported(steps, 300);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].loss, 1.5);
  EXPECT_EQ(taken[0].duration, ms(100));  // until the commit, not until the loss came
}

// The process that measured an iteration is lost: a step waits for a while, and later ones do not.
TEST_F(ServedStepsTest, AStepDoesNotWaitForEver) {
  steps.add(iteration(0, 1));
  steps.add(committed(1, 8), ms(200));
  EXPECT_TRUE(steps.take(ms(200) + ServedSteps::kWait - ms(1), kAll).empty());
  const std::vector<ServedStep> first = steps.take(ms(200) + ServedSteps::kWait, kAll);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].loss, 1);
  steps.add(iteration(0, 2));
  steps.add(iteration(1, 4));
  steps.add(committed(2, 16), ms(2000));
  const std::vector<ServedStep> second = reported(steps, 2000);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].loss, 3);
}

// An update of local steps may have the mass of steps that the job does not have any more. A
// checkpoint of it is one after these steps, so they are given out when they are asked for.
TEST_F(ServedStepsTest, TheLastUpdateMayHaveMoreStepsThanTheJob) {
  for (const int32_t replica : {0, 1}) {
    for (int i = 0; i < 6; ++i) steps.add(iteration(replica, 1));
  }
  steps.add(committed(1, 32), ms(200));
  EXPECT_EQ(steps.done(), 4);
  steps.add(committed(2, 48), ms(200));
  EXPECT_EQ(steps.done(), 5);
  const Duration later = ms(200) + ServedSteps::kPause;
  EXPECT_EQ(steps.take(later, 5).size(), 5u);
  EXPECT_TRUE(steps.take(later, 5).empty());
  const std::vector<ServedStep> last = steps.take(later, 6);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].step, 5);
  EXPECT_EQ(last[0].loss, 1);
}

TEST_F(ServedStepsTest, AStepWithoutAnyLossHasNone) {
  steps.add(committed(1, 8), ms(200));
  const std::vector<ServedStep> taken = steps.take(ms(200) + ServedSteps::kWait, kAll);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_FALSE(taken[0].loss.has_value());
}

// A slow replica ends half as many iterations. Each step has the losses of its time.
TEST_F(ServedStepsTest, ReplicasMayHaveOtherSpeeds) {
  for (const int32_t replica : {0, 0, 1}) steps.add(iteration(replica, 4));
  steps.add(committed(1, 8), ms(200));
  EXPECT_EQ(reported(steps, 200).size(), 1u);
  for (const int32_t replica : {0, 0, 1}) steps.add(iteration(replica, 2));
  steps.add(committed(2, 16), ms(300));
  steps.add(committed(3, 24), ms(400));
  const std::vector<ServedStep> taken = reported(steps, 400);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].loss, 3);
  EXPECT_EQ(taken[1].loss, 2);
}

TEST_F(ServedStepsTest, TheLossIsWeightedByMassAndTheAgeByWorks) {
  steps.add(iteration(0, 1, 0.5));
  steps.add(iteration(1, 2, 1.5));
  CommittedReport report = committed(1, 4);
  report.age = 3;
  report.works = 1;
  steps.add(report, ms(110));
  report = committed(2, 8);
  report.age = 1;
  report.works = 3;
  steps.set_mode("x:1");
  steps.set_epoch(7);
  steps.add(report, ms(200));
  const std::vector<ServedStep> taken = reported(steps, 200);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].loss, (1 * 2.0 + 2 * 6.0) / 8);
  EXPECT_EQ(taken[0].age, (3 * 1 + 1 * 3) / 4.0);
  EXPECT_EQ(taken[0].mode, "x:1");
  EXPECT_EQ(taken[0].epoch, 7);
  EXPECT_EQ(steps.age(), 1);
}

// An iteration whose offer was dropped was measured as well, and takes no place of another one.
TEST_F(ServedStepsTest, DroppedIterationsAreNoSurplus) {
  steps.add(committed(0, 0), ms(100));
  for (const int32_t replica : {0, 1, 0}) steps.add(iteration(replica, 6));
  CommittedReport report = committed(1, 8);
  report.dropped = {4};
  steps.add(report, ms(200));
  const std::vector<ServedStep> first = reported(steps, 200);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].dropped, Mass{4});
  for (const int32_t replica : {0, 1}) steps.add(iteration(replica, 2));
  report = committed(2, 16);
  report.dropped = {4};
  steps.add(report, ms(300));
  const std::vector<ServedStep> second = reported(steps, 300);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].loss, 2);
}

// Five blocks of 16 iterations with one loss, then two with a higher one.
TEST_F(ServedStepsTest, ALossThatRisesIsToldOnce) {
  job.optimizer.schedule = "constant";
  job.optimizer.warm_up_steps = 0;
  job.optimizer.learning_rate = 0.25;
  steps.set_mode("asynchronous");
  CommittedReport report = committed(1, 4);
  report.age = 1;
  steps.add(report, ms(110));
  for (int32_t i = 0; i < 111; ++i) steps.add(iteration(i % 2, i < 80 ? 1 : 2));
  EXPECT_TRUE(steps.take_rises().empty());
  steps.add(iteration(1, 2));
  EXPECT_EQ(steps.take_rises(),
            std::vector<std::string>{
                "the loss has risen by 1.0000 from 1.0000 within 32 gradients of age 1.00: the "
                "learning rate 0.25 is too high for sync mode asynchronous; lower "
                "optimizer.learning_rate, or choose a mode with younger gradients"});
  EXPECT_TRUE(steps.take_rises().empty());
}

// The job's kappa is 2.
TEST_F(ServedStepsTest, AKappaThatHasChangedIsToldOnce) {
  CommittedReport report = committed(1, 1);
  steps.add(report, ms(110));
  report.kappa = 2.3;
  steps.add(report, ms(120));
  EXPECT_TRUE(steps.take_kappas().empty());
  report.kappa = 1.5;
  steps.add(report, ms(130));
  steps.add(report, ms(140));
  EXPECT_EQ(steps.take_kappas(),
            std::vector<std::string>{
                "the age of gradients costs less than was thought: kappa is 1.50, and was 2.00"});
  EXPECT_TRUE(steps.take_kappas().empty());
  report.kappa = 1.7;
  steps.add(report, ms(150));
  EXPECT_TRUE(steps.take_kappas().empty()) << "it is compared with what was told last";
}

// A run that goes on begins with the mass of its checkpoint, which may be above that of its step.
TEST_F(ServedStepsTest, ARunThatGoesOnCountsFromItsCheckpoint) {
  ServedSteps later(job, Mass{19});
  later.begin(ms(0));
  EXPECT_EQ(later.done(), 2);
  later.add(iteration(0, 1));
  later.add(committed(9, 23), ms(100));
  EXPECT_TRUE(reported(later, 100).empty());
  later.add(iteration(0, 1));
  later.add(committed(10, 27), ms(200));
  const std::vector<ServedStep> taken = reported(later, 200);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].step, 2);
  EXPECT_EQ(taken[0].loss, 1);
}

TEST_F(ServedStepsTest, NoStepOfTheJobFollowsTheLastOne) {
  for (int32_t i = 0; i < 14; ++i) steps.add(iteration(i % 2, 1));
  steps.add(committed(7, 56), ms(200));
  EXPECT_EQ(steps.done(), 5);
  const Duration later = ms(300) + ServedSteps::kPause;
  EXPECT_EQ(steps.take(later, job.steps).size(), 5u);
  steps.add(committed(8, 64), ms(300));
  EXPECT_EQ(steps.done(), 5);
  EXPECT_TRUE(steps.take(later, job.steps).empty());
}

// A validation is due after steps 2, 4 and 5; each replica has two of its micro-batches.
class ValidatedStepsTest : public ServedStepsTest {
 protected:
  ValidatedStepsTest() {
    job.validate_every = 2;
    job.validate_micros = 4;
    steps.set_replicas({ReplicaId{0}, ReplicaId{1}});
  }
  // So many steps are done, with all their losses.
  void commit(int64_t done, Duration now) {
    for (int64_t step = steps.done(); step < done; ++step) {
      for (const int32_t replica : {0, 1}) steps.add(iteration(replica, 1));
    }
    steps.add(committed(done, 8 * done), now);
  }
  static ValidatedReport validated(int32_t replica, int64_t step, double sum, int64_t micros = 2) {
    return {{replica}, step, sum, micros};
  }
};

TEST_F(ValidatedStepsTest, AStepWaitsForAllReplicas) {
  commit(3, ms(200));
  std::vector<ServedStep> taken = reported(steps, 200);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_FALSE(taken[0].validation_loss.has_value());
  EXPECT_TRUE(steps.waits_for_validation(ms(300)));
  steps.add(validated(1, 2, 3));
  EXPECT_TRUE(reported(steps, 300).empty());
  steps.add(validated(0, 2, 7));
  EXPECT_FALSE(steps.waits_for_validation(ms(300)));
  taken = reported(steps, 300);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].step, 1);
  EXPECT_EQ(taken[0].validation_loss, 2.5);
  EXPECT_FALSE(taken[1].validation_loss.has_value());
}

// It is the mean over the same micro-batches, and not told if a replica does not know it.
TEST_F(ValidatedStepsTest, TheAccuracyIsKnownIfAllReplicasKnowIt) {
  ValidatedReport known = validated(0, 2, 3, 3);
  known.accuracy_sum = 1.5;
  ValidatedReport other = validated(1, 2, 3, 1);
  other.accuracy_sum = 1;
  for (const ValidatedReport& report : {known, other}) steps.add(report);
  steps.add(validated(0, 4, 3));
  other.step = 4;
  steps.add(other);
  commit(4, ms(200));
  const std::vector<ServedStep> taken = reported(steps, 200);
  ASSERT_EQ(taken.size(), 4u);
  EXPECT_EQ(taken[1].validation_accuracy, 2.5 / 4);
  EXPECT_TRUE(taken[3].validation_loss.has_value());
  EXPECT_FALSE(taken[3].validation_accuracy.has_value());
}

// A replica may be faster than the report of the commit.
TEST_F(ValidatedStepsTest, AReplicaMayValidateBeforeTheCommitIsKnown) {
  for (const int32_t replica : {0, 1}) steps.add(validated(replica, 2, 4));
  commit(2, ms(200));
  const std::vector<ServedStep> taken = reported(steps, 200);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[1].validation_loss, 2);
}

TEST_F(ValidatedStepsTest, ALostReplicaIsNotWaitedFor) {
  commit(2, ms(200));
  steps.add(validated(0, 2, 3));
  EXPECT_EQ(reported(steps, 200).size(), 1u);
  steps.set_replicas({ReplicaId{0}});
  const std::vector<ServedStep> taken = reported(steps, 200);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].validation_loss, 1.5);
}

// A slow replica gets no parameters of step 2 or 3, so it makes only the validation of step 4.
TEST_F(ValidatedStepsTest, AReplicaMayLeaveAValidationOut) {
  commit(4, ms(200));
  for (const int64_t step : {2, 4}) steps.add(validated(0, step, 6));
  steps.add(validated(1, 4, 2));
  const std::vector<ServedStep> taken = reported(steps, 200);
  ASSERT_EQ(taken.size(), 4u);
  EXPECT_EQ(taken[1].validation_loss, 3);
  EXPECT_EQ(taken[3].validation_loss, 2);
}

TEST_F(ValidatedStepsTest, NoValidationIsWaitedForForEver) {
  commit(2, ms(200));
  const Duration limit = ServedSteps::validation_limit(job);
  EXPECT_EQ(limit, std::chrono::seconds(60));
  EXPECT_EQ(steps.take(ms(200) + limit - ms(1), kAll).size(), 1u);
  const std::vector<ServedStep> taken = steps.take(ms(200) + limit, kAll);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_FALSE(taken[0].validation_loss.has_value());
  EXPECT_FALSE(steps.waits_for_validation(ms(200) + limit));
  // It comes too late, and belongs to no later step.
  for (const int32_t replica : {0, 1}) steps.add(validated(replica, 2, 4));
  commit(4, ms(100'000));
  EXPECT_EQ(reported(steps, 100'000).size(), 1u);
}

TEST_F(ValidatedStepsTest, TheLastStepIsValidated) {
  commit(4, ms(200));
  for (const int32_t replica : {0, 1}) steps.add(validated(replica, 4, 6));
  EXPECT_EQ(reported(steps, 200).size(), 4u);
  commit(5, ms(300));
  EXPECT_TRUE(steps.waits_for_validation(ms(300)));
  steps.add(validated(0, 5, 3));
  // A replica without any of the micro-batches.
  steps.add(validated(1, 5, 0, 0));
  EXPECT_FALSE(steps.waits_for_validation(ms(300)));
  const std::vector<ServedStep> taken = reported(steps, 300);
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].validation_loss, 1.5);
  EXPECT_FALSE(taken[0].validation_accuracy.has_value());
}

}  // namespace
}  // namespace tenuto
