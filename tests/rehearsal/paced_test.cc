// The paced device by itself: op lengths, lag, undoing an optimizer step, files.
#include "rehearsal/paced.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/exact_sum.h"
#include "rehearsal/link_clock.h"
#include "rehearsal/paced_math.h"
#include "runtime/test_cluster.h"
#include "temporary_folder.h"

namespace tenuto {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(Paced, LengthsAreThoseOfTheStage) {
  StageCost cost;
  cost.forward = milliseconds(2);
  cost.backward_input = milliseconds(3);
  cost.backward_weight = milliseconds(4);
  cost.update = milliseconds(1);
  EXPECT_EQ(paced_length(cost, true, OpKind::Forward), milliseconds(2));
  EXPECT_EQ(paced_length(cost, true, OpKind::Evaluate), milliseconds(2));
  EXPECT_EQ(paced_length(cost, true, OpKind::BackwardInput), milliseconds(3));
  EXPECT_EQ(paced_length(cost, true, OpKind::BackwardWeight), milliseconds(4));
  EXPECT_EQ(paced_length(cost, false, OpKind::BackwardInput), milliseconds(7));
  EXPECT_EQ(paced_length(cost, false, OpKind::BackwardWeight), Duration(0));
  EXPECT_EQ(paced_length(cost, true, OpKind::Step), milliseconds(1));
  EXPECT_EQ(paced_length(cost, true, OpKind::Measure), Duration(0));
}

TEST(Paced, TheStateIsTransferredInParts) {
  const Job job = instant_job(2, 2, 3);
  TestCluster donors(job, plan_of(job)), joiners(job, plan_of(job));
  donors.connect();
  ASSERT_TRUE(donors.run(0, 2)[0].status.ok());
  for (int32_t w = 0; w < 4; ++w) {
    PacedDevice& from = donors.device(w);
    PacedDevice& to = joiners.device(w);
    const StageId stage{w % 2};
    EXPECT_NE(to.weights(), from.weights());
    ASSERT_EQ(to.state_bytes(stage), from.state_bytes(stage));
    ASSERT_TRUE(to.adopt(2).ok());
    EXPECT_EQ(to.version(), 2);
    EXPECT_FALSE(to.undo().ok());
    const int64_t size = 7 * from.state_unit(stage);
    for (int64_t first = 0; first < from.state_bytes(stage); first += size) {
      std::vector<std::byte> part(
          static_cast<size_t>(std::min(size, from.state_bytes(stage) - first)));
      ASSERT_TRUE(from.read_state(stage, first, part).ok());
      ASSERT_TRUE(to.write_state(stage, first, part).ok());
    }
    EXPECT_EQ(to.weights(), from.weights());
  }
}

TEST(Paced, UndoTakesTheLastStepBackExactly) {
  const Job job = instant_job(2, 2, 3);
  TestCluster cluster(job, plan_of(job));
  cluster.connect();
  ASSERT_TRUE(cluster.run(0, 2)[0].status.ok());
  std::vector<std::vector<float>> before;
  for (int32_t w = 0; w < 4; ++w) before.push_back(cluster.device(w).weights());
  ASSERT_TRUE(cluster.run(2, 1)[0].status.ok());
  for (int32_t w = 0; w < 4; ++w) {
    PacedDevice& device = cluster.device(w);
    EXPECT_NE(device.weights(), before[static_cast<size_t>(w)]);
    ASSERT_TRUE(device.undo().ok());
    EXPECT_EQ(device.weights(), before[static_cast<size_t>(w)]);
    EXPECT_EQ(device.version(), 2);
    const Status again = device.undo();
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, Code::Invalid);
  }
}

// A plain loop over a model whose first and last stage share the second half of their weights.
class TiedRun {
 public:
  explicit TiedRun(const Job& job) : job_(job) {
    const int64_t count = job.device.parameter_bytes / 4;
    half_ = count / 2;
    for (int32_t s = 0; s < job.parallel.stages; ++s) {
      const bool tied = is_tied(s);
      weights_.push_back(paced_weights(job.seed, {s}, tied ? half_ : count));
      if (!tied) continue;
      const std::vector<float> shared = paced_weights(job.seed, {0}, count - half_);
      weights_.back().insert(weights_.back().end(), shared.begin(), shared.end());
    }
  }

  // One step; returns the gradient norm.
  double step() {
    std::vector<std::vector<float>> sums;
    for (const std::vector<float>& weights : weights_) sums.emplace_back(weights.size());
    for (int32_t m = 0; m < job_.micro_count(); ++m) add_micro({m}, sums);
    for (size_t i = static_cast<size_t>(half_); i < sums.front().size(); ++i) {
      sums.front()[i] += sums.back()[i];
      sums.back()[i] = sums.front()[i];
    }
    ExactSum squares;
    for (size_t s = 0; s < sums.size(); ++s) {
      for (float& element : sums[s]) element /= static_cast<float>(job_.micro_count());
      const std::span<const float> all(sums[s]);
      const auto half = static_cast<size_t>(is_tied(static_cast<int32_t>(s)) ? half_ : 0);
      squares.add(paced_square(0, all.first(half)));
      squares.add(paced_square(0, all.subspan(half)));
      paced_update(weights_[s], sums[s]);
    }
    ++step_;
    return std::sqrt(squares.value());
  }

  const std::vector<float>& weights(int32_t stage) const {
    return weights_[static_cast<size_t>(stage)];
  }
  std::vector<float> shared(const std::vector<float>& weights) const {
    return {weights.begin() + half_, weights.end()};
  }

 private:
  bool is_tied(int32_t stage) const { return stage == 0 || stage == job_.parallel.stages - 1; }

  void add_micro(MicroId micro, std::vector<std::vector<float>>& sums) const {
    const int64_t live = std::min<int64_t>(job_.device.message_bytes / 4 - 4, kPacedLive);
    std::vector<std::vector<float>> values{paced_input({step_}, micro, live)};
    for (const std::vector<float>& weights : weights_) {
      std::vector<float> y(static_cast<size_t>(live));
      paced_forward(weights, values.back(), y);
      values.push_back(std::move(y));
    }
    std::vector<float> dy = values.back();
    for (size_t s = weights_.size(); s-- > 0;) {
      paced_backward_weight(values[s], dy, sums[s]);
      std::vector<float> dx(dy.size());
      paced_backward_input(dy, dx);
      dy = dx;
    }
  }

  const Job job_;
  int64_t half_ = 0, step_ = 0;
  std::vector<std::vector<float>> weights_;
};

TEST(Paced, ATiedBucketIsOneWeightAtTwoStages) {
  for (const int32_t stages : {2, 3}) {
    for (const int32_t pipelines : {1, 2}) {
      SCOPED_TRACE(testing::Message() << stages << " stages, " << pipelines << " pipelines");
      const Job job = instant_job(stages, pipelines, 3);
      Shape shape;
      shape.stages = shape.layers = stages;
      shape.pipelines = pipelines;
      shape.micros = 3;
      shape.tied = true;
      const auto plan = make_plan(shape);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      TestCluster cluster(job, plan.value());
      cluster.connect();
      TiedRun plain(job);
      const std::vector<float> before = plain.shared(plain.weights(0));
      const std::vector<ThreadRun> runs = cluster.run(0, 3);
      std::vector<double> norms;
      for (int step = 0; step < 3; ++step) norms.push_back(plain.step());
      for (int32_t w = 0; w < cluster.size(); ++w) {
        const ThreadRun& run = runs[static_cast<size_t>(w)];
        ASSERT_TRUE(run.status.ok()) << run.status.error().message;
        for (size_t step = 0; step < norms.size(); ++step) {
          EXPECT_EQ(run.outcomes[step].gradient_norm, norms[step]) << "step " << step;
        }
        EXPECT_EQ(cluster.device(w).weights(), plain.weights(cluster.stages_of(w).front().value));
      }
      const std::vector<float> first = plain.shared(cluster.device(0).weights());
      EXPECT_EQ(plain.shared(cluster.device(stages - 1).weights()), first);
      EXPECT_NE(first, before);
    }
  }
}

TEST(Paced, FilesContinueTheRun) {
  const TemporaryFolder folder;
  const Job job = instant_job(2, 1, 3);
  const Plan plan = plan_of(job);
  PlainLoop plain(job);
  std::vector<StepOutcome> outcomes;
  for (int step = 0; step < 4; ++step) outcomes.push_back(plain.step());
  const std::vector<std::string> files{folder / "b", folder / "a"};
  {
    TestCluster first(job, plan);
    first.connect();
    ASSERT_TRUE(first.run(0, 2)[0].status.ok());
    ASSERT_TRUE(first.device(0).save({0}, files[0]).ok());
    ASSERT_TRUE(first.device(1).save({1}, files[1]).ok());
  }
  TestCluster second(job, plan);
  second.connect();
  for (int32_t w = 0; w < 2; ++w) ASSERT_TRUE(second.device(w).load(files, 2).ok());
  outcomes.erase(outcomes.begin(), outcomes.begin() + 2);
  expect_equal_runs(second, second.run(2, 2), outcomes, plain);
}

TEST(Paced, DamagedFilesAreRefused) {
  const TemporaryFolder folder;
  const Job job = instant_job(2, 1, 1);
  QueueMailbox mailbox;
  const auto device = make_paced(job, plan_of(job), {{1}}, monotonic_clock(), mailbox);
  const std::string path = folder / "shard";
  ASSERT_TRUE(device->save({1}, path).ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1);
  const std::vector<float> weights = device->weights();
  const std::string whole = read_all(path);
  const auto refused = [&](const std::vector<std::string>& paths, int64_t version) {
    const Status status = device->load(paths, version);
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(device->weights(), weights);
    return status.ok() ? std::string() : status.error().message;
  };
  ASSERT_TRUE(device->load({path}, 0).ok());
  EXPECT_NE(refused({path}, 3).find("expected version 3 and 2 stages"), std::string::npos);
  EXPECT_NE(refused({}, 0).find("none of 0 files holds stage.1.weight"), std::string::npos);
  EXPECT_NE(refused({folder / "none"}, 0).find("/none: No such file"), std::string::npos);
  for (const size_t length : {size_t{0}, size_t{5}, size_t{20}, whole.size() - 1}) {
    write_all(path, whole.substr(0, length));
    EXPECT_NE(refused({path}, 0).find("this file is damaged"), std::string::npos) << length;
  }
  for (size_t at = 0; at < 8; ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    write_all(path, damaged);
    refused({path}, 0);
  }
  const Job other = instant_job(4, 1, 1);
  const auto stranger = make_paced(other, plan_of(other), {{1}}, monotonic_clock(), mailbox);
  write_all(path, whole);
  EXPECT_FALSE(stranger->load({path}, 0).ok());
  const Status nowhere = device->save({1}, folder / "no/such/folder");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.error().message.find("cannot write"), std::string::npos);
}

TEST(Paced, AStepOnAnotherVersionIsRefused) {
  const Job job = instant_job(1, 1, 1);
  QueueMailbox mailbox;
  const auto device = make_paced(job, plan_of(job), {{0}}, monotonic_clock(), mailbox);
  const Result<Duration> status = device->begin(3);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "step 3 begins on version 0 of the parameters");
}

TEST(Paced, APauseBetweenStepsSetsTheClock) {
  HandClock clock;
  Job job = instant_job(1, 1, 1);
  job.device.clock = "virtual";
  job.device.forward_ms = {5};
  TestCluster cluster(job, plan_of(job), clock);
  cluster.connect();
  const auto first_start = [&](int64_t step) {
    const std::vector<ThreadRun> runs = cluster.run(step, 1);
    EXPECT_TRUE(runs[0].status.ok());
    return runs[0].status.ok() ? runs[0].events[0].front().start : Duration(-1);
  };
  EXPECT_EQ(first_start(0), milliseconds(0));
  clock.advance(milliseconds(9));  // 4 ms behind: no pause, the virtual clock goes on at 5
  EXPECT_EQ(first_start(1), milliseconds(5));
  clock.advance(milliseconds(20));  // 19 ms behind: a pause
  EXPECT_EQ(first_start(2), milliseconds(29));
}

// A pause of the host moves the virtual clock of the first stage only, not that of later stages.
TEST(Paced, APauseSetsTheClockOfTheFirstStageAlone) {
  Job job = instant_job(2, 1, 1);
  job.device.clock = "virtual";
  job.device.forward_ms = {5};
  for (const int32_t stage : {0, 1}) {
    HandClock clock;
    QueueMailbox mailbox;
    const auto device = make_paced(job, plan_of(job), {{stage}}, clock, mailbox);
    const Result<Duration> begun = device->begin(0);
    ASSERT_TRUE(begun.ok());
    clock.advance(milliseconds(20));
    const Result<Duration> again = device->begin(0);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again.value() - begun.value(), milliseconds(stage == 0 ? 20 : 0));
  }
}

TEST(Lag, IsJudgedByTheTypicalOp) {
  LagRecord record;
  EXPECT_TRUE(record.summary().valid());
  for (int i = 1; i <= 100; ++i) record.note(Duration(i * 10), milliseconds(1));
  for (int i = 0; i < 50; ++i) record.note(Duration(-5), Duration(0));
  const Lag lag = record.summary();
  EXPECT_EQ(lag.ops, 150);
  EXPECT_EQ(lag.typical_op, milliseconds(1));
  EXPECT_EQ(lag.median, Duration(250));
  EXPECT_EQ(lag.worst, Duration(1000));
  EXPECT_TRUE(lag.valid());
  for (int i = 0; i < 5; ++i) record.note(milliseconds(1), milliseconds(1));
  EXPECT_FALSE(record.summary().valid());
}

TEST(LinkClock, OneSlowLinkDoesNotSlowTheOthers) {
  LinkClock links({std::chrono::milliseconds(1), 1e6}, {});
  links.set({2}, {std::chrono::milliseconds(2), 1e5});
  const Passage fast = links.send({1}, {1000}, std::chrono::milliseconds(10));
  EXPECT_EQ(fast.start, std::chrono::milliseconds(10));
  EXPECT_EQ(fast.finish, std::chrono::milliseconds(11));
  EXPECT_EQ(fast.arrival, std::chrono::milliseconds(12));
  const Passage behind = links.send({1}, {1000}, std::chrono::milliseconds(10));
  EXPECT_EQ(behind.start, fast.finish);
  EXPECT_EQ(links.send({2}, {1000}, std::chrono::milliseconds(10)).arrival,
            std::chrono::milliseconds(22));
}

}  // namespace
}  // namespace tenuto
