// Failures in a step: every thread returns, the error says who and where, no call is left under
// way, and the step can be run again.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "plan/routed.h"
#include "source_tree.h"
#include "test_cluster.h"
#include "trap.h"

namespace tenuto {
namespace {

// A limit of silence that is reached only if nothing more can come, however busy the machine is.
constexpr Duration kBeyondAnyDelay = std::chrono::seconds(5);

void set_trap(TestCluster& cluster, WorkerId victim, Trap& trap) {
  cluster.wrap_compute = [&trap, victim](WorkerId self, Device& under) -> std::unique_ptr<Device> {
    if (self != victim) return nullptr;
    return std::make_unique<TrapDevice>(under, trap);
  };
  cluster.wrap_transport = [&trap, victim](
                               WorkerId self,
                               std::unique_ptr<Transport> under) -> std::unique_ptr<Transport> {
    if (self != victim) return under;
    return std::make_unique<TrapTransport>(std::move(under), trap);
  };
}

// Cuts the wire of each worker at each of its calls. All threads return, one names the lost worker,
// and after undoing early optimizer steps the same step gives the plain loop's numbers.
void lose_at_every_call(const Job& job) {
  const Plan plan = plan_of(job);
  const int32_t workers = job.worker_count();
  for (int32_t victim = 0; victim < workers; ++victim) {
    bool reached = true;
    for (int64_t at = 0; reached; ++at) {
      SCOPED_TRACE(testing::Message() << "worker " << victim << " lost at call " << at);
      TestCluster cluster(job, plan);
      Trap trap;
      trap.at = at;
      trap.deed = [&] { cluster.network().lose({victim}); };
      set_trap(cluster, {victim}, trap);
      cluster.mute = {victim};
      cluster.connect();
      const std::vector<ThreadRun> runs = cluster.run(0, 1);
      reached = trap.calls > at;
      if (!reached) break;
      int32_t failed = 0, named = 0;
      for (int32_t w = 0; w < workers; ++w) {
        const ThreadRun& run = runs[static_cast<size_t>(w)];
        if (run.status.ok()) continue;
        ++failed;
        const Error& error = run.status.error();
        EXPECT_TRUE(error.code == Code::Disconnected || error.code == Code::Cancelled)
            << error.message;
        EXPECT_EQ(error.message.find("worker " + std::to_string(w) + " (stage " +
                                     std::to_string(w % job.parallel.stages) + "), step 0: "),
                  0U)
            << error.message;
        const bool names =
            error.message.find("worker " + std::to_string(victim), 10) != std::string::npos;
        if (w != victim && names) ++named;
      }
      if (failed > 0 && !(failed == 1 && !runs[static_cast<size_t>(victim)].status.ok())) {
        EXPECT_GT(named, 0) << "nobody names the lost worker";
      }
      trap.at = -1;
      cluster.connect();
      for (int32_t w = 0; w < workers; ++w) {
        if (cluster.device(w).version() == 0) continue;
        ASSERT_TRUE(cluster.device(w).undo().ok());
      }
      PlainLoop plain(job);
      const std::vector<StepOutcome> outcomes{plain.step(), plain.step()};
      expect_equal_runs(cluster, cluster.run(0, 2), outcomes, plain);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Failure, LossAtEveryCallEndsAndCanBeRunAgain) { lose_at_every_call(instant_job(2, 2, 2)); }

// The same for all-reduces other than the ring: also the late member of late-one is lost.
TEST(Failure, LossAtEveryCallOfOtherSums) {
  for (const char* name : {"halving", "late-one"}) {
    SCOPED_TRACE(name);
    Job job = instant_job(1, 4, 1);
    job.parallel.all_reduce = name;
    lose_at_every_call(job);
  }
}

// A plan that sums one weight gradient twice, or never: no worker takes its optimizer step, and the
// error names the gradient. check() would refuse the plan, but is not called here.
TEST(Failure, W4AWrongSumStopsTheOptimizerStep) {
  const Job job = instant_job(2, 2, 2);
  for (const bool twice : {false, true}) {
    SCOPED_TRACE(twice ? "one twice" : "one is missing");
    Plan plan = plan_of(job);
    if (twice) {  // the second pipeline runs micro-batch 0 instead of its own first one
      for (const size_t w : {2, 3}) {
        for (Op& op : plan.schedule.lists[w]) op.micro.value *= op.micro.value == 1 ? 0 : 1;
      }
    } else {
      std::erase_if(plan.schedule.lists[3], [](const Op& op) {
        return op.kind == OpKind::BackwardWeight && op.micro.value == 1;
      });
    }
    const std::string said = twice ? "micro-batch 1 of stage 1 is not in it, and micro-batch 0"
                                   : "micro-batch 1 of stage 1 is not in it";
    TestCluster cluster(job, plan);
    cluster.connect();
    const std::vector<ThreadRun> runs = cluster.run(0, 1);
    int32_t told = 0;
    for (int32_t w = 0; w < 4; ++w) {
      const ThreadRun& run = runs[static_cast<size_t>(w)];
      ASSERT_FALSE(run.status.ok());
      EXPECT_EQ(cluster.device(w).version(), 0) << "a step was taken with a sum that is wrong";
      const std::string& sentence = run.status.error().message;
      if (run.status.error().code != Code::Corrupt) continue;
      ++told;  // the first stage to see such a sum ends the step for all
      if (sentence.find("stage 1:") != said.npos) {
        EXPECT_TRUE(sentence.find(said) != said.npos ||
                    sentence.find("micro-batch 0 of stage 1 twice") != said.npos)
            << sentence;
      }
    }
    EXPECT_GE(told, 1);
  }
}

// After a loss at any call the others run the step again without the lost worker, and get the plain
// loop's numbers, bit for bit.
TEST(Failure, W8TheOthersRepeatTheStepWithTheSameNumbers) {
  const Job job = instant_job(2, 2, 2);
  const Plan plan = plan_of(job);
  for (int32_t victim = 0; victim < 4; ++victim) {
    std::vector<bool> alive(4, true);
    alive[static_cast<size_t>(victim)] = false;
    const Result<Plan> rest = without_workers(plan, alive);
    ASSERT_TRUE(rest.ok()) << rest.error().message;
    bool reached = true;
    for (int64_t at = 0; reached; ++at) {
      SCOPED_TRACE(testing::Message() << "worker " << victim << " lost at call " << at);
      TestCluster cluster(job, plan);
      Trap trap;
      trap.at = at;
      trap.deed = [&] { cluster.network().lose({victim}); };
      set_trap(cluster, {victim}, trap);
      cluster.mute = {victim};
      cluster.connect();
      (void)cluster.run(0, 1);
      reached = trap.calls > at;
      trap.at = -1;
      cluster.lose({victim}, rest.value());
      cluster.connect();
      for (int32_t w = 0; w < 4; ++w) {
        if (w == victim || cluster.device(w).version() == 0) continue;
        ASSERT_TRUE(cluster.device(w).undo().ok());
      }
      PlainLoop plain(job);
      const std::vector<StepOutcome> outcomes{plain.step(), plain.step()};
      expect_equal_runs(cluster, cluster.run(0, 2), outcomes, plain);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Failure, ALostPeerIsReportedAndNamed) {
  const Job job = instant_job(2, 1, 2);
  TestCluster cluster(job, plan_of(job));
  Trap trap;
  trap.at = 5;
  trap.deed = [&] { cluster.network().lose({1}); };
  set_trap(cluster, {1}, trap);
  cluster.mute = {1};
  cluster.connect();
  const std::vector<ThreadRun> runs = cluster.run(0, 1);
  ASSERT_FALSE(runs[0].status.ok());
  EXPECT_EQ(runs[0].status.error().code, Code::Disconnected);
  EXPECT_EQ(runs[0].status.error().reach, Reach::Worker);
  ASSERT_EQ(runs[0].lost.size(), 1U);
  EXPECT_EQ(runs[0].lost[0].first, WorkerId{1});
}

TEST(Failure, AStepIsAbandonedInTheMiddle) {
  Job job = instant_job(2, 2, 4);
  job.device.forward_ms = {2};
  TestCluster cluster(job, plan_of(job));
  Trap trap;
  trap.at = 12;
  trap.deed = [&] { cluster.set_standing({0, true}); };
  set_trap(cluster, {2}, trap);
  cluster.connect();
  for (const ThreadRun& run : cluster.run(0, 1)) {
    ASSERT_FALSE(run.status.ok());
    // A worker that abandons drops its peers: a peer that notices this first reports a loss.
    const Code code = run.status.error().code;
    EXPECT_TRUE(code == Code::Cancelled || code == Code::Disconnected)
        << run.status.error().message;
  }
  cluster.connect();
  PlainLoop plain(job);
  const std::vector<StepOutcome> outcomes{plain.step()};
  cluster.wrap_compute = nullptr;
  expect_equal_runs(cluster, cluster.run(0, 1), outcomes, plain);
}

TEST(Failure, AStepIsAbandonedBeforeItBegins) {
  const Job job = instant_job(1, 1, 1);
  TestCluster cluster(job, plan_of(job));
  cluster.connect();
  cluster.set_standing({0, true});
  const std::vector<ThreadRun> runs = cluster.run(0, 1);
  ASSERT_FALSE(runs[0].status.ok());
  EXPECT_EQ(runs[0].status.error().code, Code::Cancelled);
  EXPECT_EQ(runs[0].status.error().message,
            "worker 0 (stage 0), step 0: the coordinator has asked to abandon the step");
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = source_tree() + "/tests/runtime/golden/" + name;
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text << "\n";
    return;
  }
  std::ifstream file(path);
  const std::string expected{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text + "\n", expected) << "UPDATE_GOLDEN=1 rewrites " << path;
}

// A mailbox that is told how many reports will come. It waits for these as long as a busy machine
// takes. Then it says at once that the limit of silence has passed.
class KnowingMailbox : public QueueMailbox {
 public:
  explicit KnowingMailbox(int reports) : reports_(reports) {}
  Result<Done> wait(Duration limit) override {
    if (reports_-- > 0) return QueueMailbox::wait(std::chrono::seconds(60));
    if (reports_ == -1) return QueueMailbox::wait(Duration(0));
    return QueueMailbox::wait(limit);  // the step is being ended
  }

 private:
  int reports_;
};

// Only one worker of the pair runs: its error says what it waits for, and from whom.
TEST(Failure, SilenceShowsTheListWithArrows) {
  const Job job = instant_job(2, 1, 3);
  const Plan plan = plan_of(job);
  for (int32_t alone = 0; alone < 2; ++alone) {
    QueueMailbox other_mailbox;
    // The reports to come: the connection, and at worker 0 two forwards.
    KnowingMailbox mailbox(alone == 0 ? 3 : 1);
    MemoryNetwork network;
    const auto transport =
        make_memory_transport(network, {"test", "token", kWireVersion, {alone}, 1}, mailbox);
    const auto other = make_memory_transport(
        network, {"test", "token", kWireVersion, {1 - alone}, 1}, other_mailbox);
    ASSERT_TRUE(transport->connect({1 - alone}, other->address(), fresh_ticket()).ok());
    const auto device =
        make_paced(job, plan, std::vector<StageId>{{alone}}, monotonic_clock(), mailbox);
    StepInput input;
    input.plan = &plan;
    input.self = {alone};
    input.limits.silence = std::chrono::milliseconds(150);
    const auto result = run_step(input, {transport.get(), device.get(), device.get(), &mailbox,
                                         &monotonic_clock(), nullptr});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Code::Timeout);
    EXPECT_EQ(result.error().reach, Reach::Worker);
    expect_golden("silence" + std::to_string(alone) + ".txt", result.error().message);
  }
}

TEST(Failure, SilenceBeforeTheCommitIsReported) {
  const Job job = instant_job(1, 1, 1);
  TestCluster cluster(job, plan_of(job));
  cluster.connect();
  ASSERT_TRUE(cluster.run(0, 1)[0].status.ok());
  cluster.silence_limit = kBeyondAnyDelay;
  cluster.set_standing({0, false});
  const std::vector<ThreadRun> runs = cluster.run(1, 1);
  ASSERT_FALSE(runs[0].status.ok());
  expect_golden("gate.txt", runs[0].status.error().message);
}

// A message that nobody sends: the receiver's error names the missing value and its sender.
TEST(Failure, AMissingMessageIsNamed) {
  const Job job = instant_job(2, 1, 3);
  Plan plan = plan_of(job);
  std::erase_if(plan.schedule.lists[0], [](const Op& op) {
    return op.kind == OpKind::Send && op.moved == ValueKind::Activation && op.micro.value == 1;
  });
  TestCluster cluster(job, plan);
  cluster.silence_limit = kBeyondAnyDelay;
  cluster.connect();
  const std::vector<ThreadRun> runs = cluster.run(0, 1);
  int timeouts = 0;
  for (const ThreadRun& run : runs) {
    ASSERT_FALSE(run.status.ok());
    const Error& error = run.status.error();
    if (error.code != Code::Timeout) continue;
    ++timeouts;
    const std::string misses = &run == runs.data() ? "<g1.1@1 is posted and waits for worker 1"
                                                   : "F1.1 misses a0.1 (from worker 0)";
    EXPECT_NE(error.message.find(misses), std::string::npos) << error.message;
  }
  EXPECT_GT(timeouts, 0);
}

// Changes one number of one message in transit.
class MutatingTransport : public ForwardingTransport {
 public:
  explicit MutatingTransport(std::unique_ptr<Transport> under)
      : ForwardingTransport(std::move(under)) {}
  Status send(WorkerId to, Tag tag, std::span<const std::byte> bytes, Stamp stamp,
              Ticket ticket) override {
    if (tag == tag_of({ValueKind::Activation, -1, {0}, {1}}, tag.epoch, tag.step)) {
      changed_.assign(bytes.begin(), bytes.end());
      changed_[40] ^= std::byte{0x40};
      bytes = changed_;
    }
    return under_->send(to, tag, bytes, stamp, ticket);
  }

 private:
  std::vector<std::byte> changed_;
};

TEST(Failure, AChangedMessageIsDetected) {
  const Job job = instant_job(2, 1, 3);
  TestCluster cluster(job, plan_of(job));
  cluster.wrap_transport = [](WorkerId self,
                              std::unique_ptr<Transport> under) -> std::unique_ptr<Transport> {
    if (self.value != 0) return under;
    return std::make_unique<MutatingTransport>(std::move(under));
  };
  cluster.connect();
  const std::vector<ThreadRun> runs = cluster.run(0, 1);
  ASSERT_FALSE(runs[1].status.ok());
  EXPECT_EQ(runs[1].status.error().code, Code::Corrupt);
  EXPECT_EQ(runs[1].status.error().message.find(
                "worker 1 (stage 1), step 0: F1.1 failed: a0.1 arrived with the label"),
            0U)
      << runs[1].status.error().message;
}

// A message whose size differs from its receive buffer ends both sides with an error.
TEST(Failure, AMessageOfAnotherSizeIsRefused) {
  Job job = instant_job(2, 1, 1);
  const Plan plan = plan_of(job);
  TestCluster cluster(job, plan);
  Job larger = job;
  larger.device.message_bytes = 512;
  TestMailbox mailbox;
  const auto device = make_paced(larger, plan, {{0}}, monotonic_clock(), mailbox);
  class Swapped : public ForwardingDevice {
   public:
    Swapped(Device& under, std::vector<std::byte>& wrong)
        : ForwardingDevice(under), wrong_(wrong) {}
    Result<std::span<const std::byte>> bytes(const Value& value) override {
      if (value.kind == ValueKind::Activation) return std::span<const std::byte>(wrong_);
      return under_.bytes(value);
    }

   private:
    std::vector<std::byte>& wrong_;
  };
  std::vector<std::byte> wrong(512);
  cluster.wrap_compute = [&](WorkerId self, Device& under) -> std::unique_ptr<Device> {
    if (self.value != 0) return nullptr;
    return std::make_unique<Swapped>(under, wrong);
  };
  cluster.connect();
  const std::vector<ThreadRun> runs = cluster.run(0, 1);
  int named = 0;  // the other may only have heard that the step is abandoned
  for (const ThreadRun& run : runs) {
    ASSERT_FALSE(run.status.ok());
    named += run.status.error().message.find("512") != std::string::npos;
  }
  EXPECT_GT(named, 0) << runs[0].status.error().message;
}

// A wire whose receives never end: their memory stays in use, so the process must end.
class StuckTransport : public ForwardingTransport {
 public:
  explicit StuckTransport(std::unique_ptr<Transport> under)
      : ForwardingTransport(std::move(under)) {}
  Status recv(WorkerId, Tag, std::span<std::byte>, Ticket) override { return ok(); }
};

TEST(Failure, ACallThatCannotEndEndsTheProcess) {
  const Job job = instant_job(2, 1, 1);
  TestCluster cluster(job, plan_of(job));
  cluster.wrap_transport = [](WorkerId self,
                              std::unique_ptr<Transport> under) -> std::unique_ptr<Transport> {
    if (self.value != 1) return under;
    return std::make_unique<StuckTransport>(std::move(under));
  };
  cluster.silence_limit = kBeyondAnyDelay;
  cluster.retire_limit = std::chrono::milliseconds(200);
  cluster.connect();
  const std::vector<ThreadRun> runs = cluster.run(0, 1);
  ASSERT_FALSE(runs[1].status.ok());
  EXPECT_EQ(runs[1].status.error().reach, Reach::Job);
  EXPECT_NE(runs[1].status.error().message.find("this process must end"), std::string::npos)
      << runs[1].status.error().message;
}

}  // namespace
}  // namespace tenuto
