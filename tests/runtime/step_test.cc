// Whole clusters in one process: every order, layout and dispatch gives the numbers of one plain
// loop, bit for bit.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <thread>
#include <tuple>

#include "base/random.h"
#include "ir/walk.h"
#include "plan/make_plan.h"
#include "runtime/norm.h"
#include "test_cluster.h"

namespace tenuto {
namespace {

using Layout = std::tuple<int32_t, int32_t, std::string, std::string, bool>;

class Layouts : public testing::TestWithParam<Layout> {};

TEST_P(Layouts, GiveThePlainLoopsNumbers) {
  const auto& [pipelines, stages, order, dispatch, split] = GetParam();
  for (const int32_t micros : {1, 3, 8}) {
    SCOPED_TRACE(testing::Message() << micros << " micro-batches per pipeline");
    Job job = instant_job(stages, pipelines, micros);
    job.parallel.order = order;
    if (find_card(order)->refusal != nullptr) job.parallel.micros += 2 * stages;
    job.parallel.dispatch = dispatch;
    job.parallel.split_backward = split;
    job.seed = 5 + micros;
    TestCluster cluster(job, plan_of(job));
    cluster.connect();
    PlainLoop plain(job);
    std::vector<StepOutcome> outcomes;
    for (int step = 0; step < 4; ++step) outcomes.push_back(plain.step());
    expect_equal_runs(cluster, cluster.run(0, 4), outcomes, plain);
  }
}

std::string layout_name(const testing::TestParamInfo<Layout>& layout) {
  const auto& [pipelines, stages, order, dispatch, split] = layout.param;
  std::string name = std::to_string(pipelines) + "x" + std::to_string(stages) + "_" + order + "_" +
                     dispatch + (split ? "_split" : "_fused");
  std::erase(name, '-');
  return name;
}

std::vector<std::string> order_names() {
  std::vector<std::string> names;
  for (const OrderCard& card : order_cards()) names.push_back(card.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Layouts,
                         testing::Combine(testing::Values(1, 3), testing::Values(1, 2, 4),
                                          testing::ValuesIn(order_names()),
                                          testing::Values("listed", "ready"), testing::Bool()),
                         layout_name);

// More messages are under way on a link than receives are posted ahead: the rest wait for a buffer.
TEST(Step, MoreMessagesComeThanReceivesArePostedAhead) {
  for (const char* dispatch : {"listed", "ready"}) {
    Job job = instant_job(3, 2, 3 * kReceivesAhead + 1);
    job.parallel.order = "gpipe";
    job.parallel.dispatch = dispatch;
    TestCluster cluster(job, plan_of(job));
    cluster.connect();
    PlainLoop plain(job);
    std::vector<StepOutcome> outcomes;
    for (int step = 0; step < 2; ++step) outcomes.push_back(plain.step());
    expect_equal_runs(cluster, cluster.run(0, 2), outcomes, plain);
  }
}

// Random shapes, with ops that take random real times, so that messages and choices come in other
// orders each time: the numbers must stay the same.
TEST(Step, TimingChangesNothing) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const auto pick = [&](int32_t most) { return static_cast<int32_t>(random.below(most)); };
    Job job = instant_job(1 + pick(4), 1 + pick(3), 1 + pick(6));
    job.seed = static_cast<int64_t>(seed);
    const OrderCard& card = order_cards()[random.below(order_cards().size())];
    job.parallel.order = card.name;
    if (card.refusal != nullptr) job.parallel.micros += 2 * job.parallel.stages;
    job.parallel.dispatch = "ready";
    job.parallel.split_backward = random.below(2) == 0;
    job.device.message_bytes = 80 + 4 * pick(4000);
    job.device.parameter_bytes = 4 * (1 + pick(3000));
    DeviceSettings& device = job.device;
    for (auto* lengths :
         {&device.forward_ms, &device.backward_input_ms, &device.backward_weight_ms}) {
      lengths->clear();
      for (int32_t s = 0; s < job.parallel.stages; ++s) lengths->push_back(random.uniform() * 0.4);
    }
    TestCluster cluster(job, plan_of(job));
    cluster.connect();
    PlainLoop plain(job);
    const std::vector<StepOutcome> outcomes{plain.step(), plain.step()};
    expect_equal_runs(cluster, cluster.run(0, 2), outcomes, plain);
  }
}

TEST(Step, EvaluationSeesTheNewWeights) {
  Job job = instant_job(4, 2, 4);
  job.validate_micros = 5;
  TestCluster cluster(job, plan_of(job));
  cluster.connect();
  PlainLoop plain(job);
  const std::vector<StepOutcome> outcomes{plain.step(), plain.step()};
  expect_equal_runs(cluster, cluster.run(0, 2), outcomes, plain);
  std::map<int32_t, double> losses;
  for (const ThreadRun& run : cluster.run(2, 1, true)) {
    ASSERT_TRUE(run.status.ok()) << run.status.error().message;
    for (const MicroLoss& loss : run.outcomes[0].losses) losses[loss.micro.value] = loss.loss;
  }
  const std::vector<MicroLoss> expected = plain.evaluate(job.micro_count(), 5);
  ASSERT_EQ(losses.size(), expected.size());
  for (const MicroLoss& loss : expected) EXPECT_EQ(losses[loss.micro.value], loss.loss);
  EXPECT_EQ(cluster.device(0).version(), 2);
}

TEST(Step, EventsNameEveryOpOnceWithItsBytes) {
  const Job job = instant_job(2, 2, 3);
  const Plan plan = plan_of(job);
  TestCluster cluster(job, plan);
  cluster.connect();
  const std::vector<ThreadRun> runs = cluster.run(0, 1);
  for (size_t w = 0; w < runs.size(); ++w) {
    ASSERT_TRUE(runs[w].status.ok()) << runs[w].status.error().message;
    std::multiset<Op> listed(plan.schedule.lists[w].begin(), plan.schedule.lists[w].end());
    std::multiset<Op> seen;
    for (const Event& event : runs[w].events[0]) {
      seen.insert(event.op);
      EXPECT_EQ(event.worker.value, static_cast<int32_t>(w));
      EXPECT_EQ(event.step, 0);
      EXPECT_LE(event.start, event.finish);
      const int64_t size = event.op.moved == ValueKind::Norm           ? sizeof(RunningNorm)
                           : event.op.moved == ValueKind::ClipDecision ? sizeof(WholeNorm)
                                                                       : 256;
      EXPECT_EQ(event.moved.count, is_message(event.op) ? size : 0);
      if (event.op.kind == OpKind::Recv) {
        EXPECT_GT(event.sent.count(), 0);
      }
    }
    EXPECT_EQ(seen, listed);
  }
}

TEST(Step, WaitsForTheCommitBeforeItsUpdate) {
  const Job job = instant_job(2, 1, 2);
  TestCluster cluster(job, plan_of(job));
  cluster.connect();
  ASSERT_TRUE(cluster.run(0, 1)[0].status.ok());
  cluster.set_standing({0, false});  // version 1 is not final yet
  Duration committed_at{};
  std::thread control([&] {
    sleep_until(monotonic_clock().now() + std::chrono::milliseconds(60));
    EXPECT_EQ(cluster.device(0).version(), 1);
    EXPECT_EQ(cluster.device(1).version(), 1);
    committed_at = monotonic_clock().now();
    cluster.set_standing({1, false});
  });
  const std::vector<ThreadRun> runs = cluster.run(1, 1);
  control.join();
  for (const ThreadRun& run : runs) {
    ASSERT_TRUE(run.status.ok()) << run.status.error().message;
    for (const Event& event : run.events[0]) {
      if (event.op.kind == OpKind::Step) {
        EXPECT_GE(event.start, committed_at);
      }
    }
    EXPECT_EQ(run.events[0].back().op.kind, OpKind::Step);
  }
}

TEST(Step, LateAndDoubledReportsOfOthersAreDropped) {
  const Job job = instant_job(2, 1, 4);
  TestCluster cluster(job, plan_of(job));
  cluster.connect();
  cluster.double_reports();
  PlainLoop plain(job);
  const std::vector<StepOutcome> outcomes{plain.step()};
  expect_equal_runs(cluster, cluster.run(0, 1), outcomes, plain);
}

TEST(Step, APlanOfAnotherClusterIsRefused) {
  const Job job = instant_job(2, 1, 2);
  Plan plan = plan_of(job);
  QueueMailbox mailbox;
  MemoryNetwork network;
  const auto transport =
      make_memory_transport(network, {"test", "token", kWireVersion, {0}, 1}, mailbox);
  const auto device = make_paced(job, plan, {{0}}, monotonic_clock(), mailbox);
  const Machine machine{transport.get(), device.get(),       device.get(),
                        &mailbox,        &monotonic_clock(), nullptr};
  StepInput input;
  input.plan = &plan;
  input.self = {2};
  input.limits.silence = std::chrono::seconds(1);
  Result<std::vector<Event>> result = run_step(input, machine);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "worker 2 has no list in a plan of 2 workers: the plan is of another cluster");
  input.self = {0};
  for (Op& op : plan.schedule.lists[0]) {
    if (op.kind == OpKind::Reduce) op.group = {7};
  }
  result = run_step(input, machine);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::Invalid);
  EXPECT_NE(result.error().message.find("group 7 is not one of the 2 groups"), std::string::npos)
      << result.error().message;
}

TEST(Tags, TagsOfValuesAndMovesNeverCollide) {
  std::set<Tag> tags;
  size_t count = 0;
  for (int kind = 1; kind < kValueKindCount; ++kind) {
    for (const int16_t part : {-1, 0, 4000}) {
      for (const int32_t stage : {-1, 0, 200'000}) {
        for (const int32_t micro : {-1, 0, 1, 30'000'000}) {
          tags.insert(tag_of({static_cast<ValueKind>(kind), part, {stage}, {micro}}, 1, 2));
          ++count;
        }
      }
    }
  }
  for (const int32_t group : {0, 1, 32'767}) {
    for (const int16_t part : {-1, 0, 1}) {
      for (const int32_t round : {0, 1, 1'000'000}) {
        for (const int32_t chunk : {0, 1, 65'535}) {
          tags.insert(tag_of_move({group}, part, round, {chunk}, 1, 2));
          ++count;
        }
      }
    }
  }
  EXPECT_EQ(tags.size(), count);
}

}  // namespace
}  // namespace tenuto
