// Whole clusters over faulty wires. With any delay, rate and jitter of the links a step ends with
// the numbers of one plain loop. When a link breaks or a worker freezes, every thread returns with
// an error that says who and where.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "base/random.h"
#include "test_cluster.h"

namespace tenuto {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The orders whose workers hold one stage each.
std::vector<std::string> orders() {
  std::vector<std::string> names;
  for (const OrderCard& card : order_cards()) {
    Shape shape;
    shape.stages = 2;
    shape.layers = 8;
    shape.micros = 4;
    shape.order = card.name;
    const auto plan = make_plan(shape);
    if (plan.ok() && plan.value().stages.size() == 2) names.push_back(card.name);
  }
  return names;
}

// A job and its links, drawn from a seed.
struct Case {
  Job job;
  FaultSettings faults;
};

int32_t pick(Random& random, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(random.below(high - low + 1));
}

LinkFault random_link(Random& random) {
  LinkFault fault;
  if (random.below(3) > 0) fault.latency = microseconds(random.below(500));
  if (random.below(3) == 0) fault.bytes_per_second = 1e6 * pick(random, 1, 100);
  if (random.below(2) == 0) fault.jitter = microseconds(1 + random.below(500));
  return fault;
}

Case random_case(uint64_t seed, int32_t least_stages) {
  static const std::vector<std::string> names = orders();
  Random random(seed);
  Case drawn{instant_job(pick(random, least_stages, 4), pick(random, 1, 2), pick(random, 1, 6)),
             {}};
  Job& job = drawn.job;
  job.seed = static_cast<int64_t>(seed);
  job.parallel.order = names[static_cast<size_t>(random.below(int64_t(names.size())))];
  job.parallel.dispatch = random.below(2) == 0 ? "ready" : "listed";
  job.parallel.split_backward = random.below(2) == 0;
  job.device.message_bytes = 80 + 4 * pick(random, 0, 1000);
  job.device.parameter_bytes = 4 * pick(random, 1, 500);
  DeviceSettings& device = job.device;
  for (auto* lengths :
       {&device.forward_ms, &device.backward_input_ms, &device.backward_weight_ms}) {
    *lengths = {random.below(2) == 0 ? 0 : random.uniform() * 0.2};
  }
  drawn.faults.seed = seed;
  drawn.faults.others = random_link(random);
  const int32_t workers = job.worker_count();
  for (int i = 0; i < 3; ++i) {
    const WorkerId from{pick(random, 0, workers - 1)}, to{pick(random, 0, workers - 1)};
    drawn.faults.links[{from, to}] = random_link(random);
  }
  return drawn;
}

std::string name_of(uint64_t seed, const Job& job) {
  return "seed " + std::to_string(seed) + ": " + job.parallel.order + " " + job.parallel.dispatch +
         ", " + std::to_string(job.parallel.stages) + " stages, " +
         std::to_string(job.parallel.pipelines) + " pipelines, " +
         std::to_string(job.parallel.micros) + " micro-batches";
}

TEST(Disturbed, NoDelayChangesTheNumbers) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Case drawn = random_case(seed, 1);
    SCOPED_TRACE(name_of(seed, drawn.job));
    TestCluster cluster(drawn.job, plan_of(drawn.job));
    cluster.faults = drawn.faults;
    cluster.connect();
    PlainLoop plain(drawn.job);
    const std::vector<StepOutcome> outcomes{plain.step(), plain.step()};
    expect_equal_runs(cluster, cluster.run(0, 2), outcomes, plain);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// On a real clock an event shows how long a message took: at least its link's latency.
TEST(Disturbed, EventsShowTheLatency) {
  Job job = instant_job(3, 1, 4);
  TestCluster cluster(job, plan_of(job));
  cluster.faults.emplace();
  cluster.faults->others.latency = milliseconds(2);
  cluster.faults->links[{WorkerId{1}, WorkerId{2}}].latency = milliseconds(7);
  cluster.connect();
  int64_t seen = 0;
  for (const ThreadRun& run : cluster.run(0, 2)) {
    ASSERT_TRUE(run.status.ok()) << run.status.error().message;
    for (const auto& events : run.events) {
      for (const Event& event : events) {
        if (event.op.kind != OpKind::Recv) continue;
        ++seen;
        const bool slow = event.op.peer == WorkerId{1} && event.worker == WorkerId{2};
        EXPECT_GE(event.finish - event.sent, milliseconds(slow ? 7 : 2));
        EXPECT_GT(event.sent, Duration(0));
      }
    }
  }
  EXPECT_GE(seen, 2 * 4 * 4);
}

// Runs `deed` at call number `at` to the device, on the worker's own thread.
class Trap : public ForwardingDevice {
 public:
  Trap(Device& under, int64_t at, std::function<void()> deed)
      : ForwardingDevice(under), at_(at), deed_(std::move(deed)) {}
  Status start(const Op& op, Duration inputs_at, Ticket ticket) override {
    count();
    return under_.start(op, inputs_at, ticket);
  }
  Result<std::span<const std::byte>> bytes(const Value& value) override {
    count();
    return under_.bytes(value);
  }
  Result<std::span<std::byte>> allocate(const Value& value) override {
    count();
    return under_.allocate(value);
  }

 private:
  void count() {
    if (at_-- == 0) deed_();
  }
  int64_t at_;
  std::function<void()> deed_;
};

// Makes `victim` run `deed` at a random moment of its step.
void set_trap(TestCluster& cluster, int32_t victim, Random& random, std::function<void()> deed) {
  const int64_t at = random.below(10);
  cluster.wrap_compute = [victim, at, deed](WorkerId self,
                                            Device& under) -> std::unique_ptr<Device> {
    if (self.value != victim) return nullptr;
    return std::make_unique<Trap>(under, at, deed);
  };
}

// True when the error is this worker's and names its link with `peer` (-1: with any worker).
bool names_link(const TestCluster& cluster, int32_t worker, const Error& error, int32_t peer) {
  const std::string start = "worker " + std::to_string(worker) + " (stage " +
                            std::to_string(cluster.stages_of(worker).front().value) + "), step 0: ";
  EXPECT_EQ(error.message.compare(0, start.size(), start), 0) << error.message;
  const std::string other = "worker " + (peer < 0 ? std::string() : std::to_string(peer));
  return error.message.find(other, start.size()) != std::string::npos;
}

// A worker that this one exchanges messages with.
int32_t peer_of(const Plan& plan, int32_t worker, Random& random) {
  std::vector<int32_t> peers;
  for (const Op& op : plan.schedule.lists[static_cast<size_t>(worker)]) {
    if (op.kind == OpKind::Send || op.kind == OpKind::Recv) peers.push_back(op.peer.value);
  }
  return peers[static_cast<size_t>(random.below(static_cast<int64_t>(peers.size())))];
}

TEST(Disturbed, ABrokenLinkIsNamed) {
  int broken = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Case drawn = random_case(seed, 2);
    SCOPED_TRACE(name_of(seed, drawn.job));
    Random random(seed + 1000);
    const Plan plan = plan_of(drawn.job);
    TestCluster cluster(drawn.job, plan);
    cluster.faults = drawn.faults;
    const int32_t victim = pick(random, 0, cluster.size() - 1);
    const int32_t peer = peer_of(plan, victim, random);
    set_trap(cluster, victim, random, [&] { cluster.faulty(victim).lose({peer}); });
    cluster.connect();
    const std::vector<ThreadRun> runs = cluster.run(0, 1);
    int failed = 0, named = 0;
    for (int32_t w = 0; w < cluster.size(); ++w) {
      const ThreadRun& run = runs[static_cast<size_t>(w)];
      if (run.status.ok()) continue;
      ++failed;
      const Error& error = run.status.error();
      EXPECT_TRUE(error.code == Code::Disconnected || error.code == Code::Cancelled)
          << error.message;
      EXPECT_NE(error.reach, Reach::Job) << error.message;
      const bool at_link = w == victim || w == peer;
      if (names_link(cluster, w, error, w == victim ? peer : victim) && at_link) ++named;
    }
    // Without a failure, the two had no more messages for each other.
    if (failed > 0) {
      ++broken;
      EXPECT_GT(named, 0) << "nobody names the link between " << victim << " and " << peer;
    }
  }
  std::printf("%d of 60 links broke while they were needed\n", broken);
  EXPECT_GT(broken, 20);
}

// Runs a cluster whose links and ops are drawn from the seed, and freezes one worker in its step.
// Returns true when another worker still needed that one.
bool freeze_one(uint64_t seed) {
  const Case drawn = random_case(seed, 2);
  SCOPED_TRACE(name_of(seed, drawn.job));
  Random random(seed + 2000);
  TestCluster cluster(drawn.job, plan_of(drawn.job));
  cluster.faults = drawn.faults;
  cluster.silence_limit = std::chrono::seconds(10);
  cluster.retire_limit = std::chrono::seconds(1);
  const int32_t victim = pick(random, 0, cluster.size() - 1);
  cluster.mute = {victim};
  set_trap(cluster, victim, random, [&] { cluster.faulty(victim).freeze(); });
  cluster.connect();
  const std::vector<ThreadRun> runs = cluster.run(0, 1);
  int failed = 0, timeouts = 0, named = 0;
  for (int32_t w = 0; w < cluster.size(); ++w) {
    const ThreadRun& run = runs[static_cast<size_t>(w)];
    if (run.status.ok()) continue;
    ++failed;
    const Error& error = run.status.error();
    const bool pair = cluster.size() == 2 && w != victim;
    const bool names = names_link(cluster, w, error, pair ? victim : -1);
    if (error.code != Code::Timeout) continue;
    ++timeouts;
    if (names) ++named;
  }
  if (failed == 0) return false;  // it froze when nobody needed it any more
  EXPECT_GT(timeouts, 0);
  EXPECT_EQ(named, timeouts) << "a worker waits and does not say for whom";
  return true;
}

// On a busy machine, too, a worker is silent for the 10 s of the limit only when it waits for the
// frozen one. The clusters run side by side so that the test takes these 10 s once.
TEST(Disturbed, AFrozenWorkerEndsTheStepWithinTheLimit) {
  constexpr uint64_t kClusters = 12;
  std::atomic<int> frozen = 0;
  std::vector<std::thread> threads;
  for (uint64_t seed = 1; seed <= kClusters; ++seed) {
    threads.emplace_back([seed, &frozen] { frozen += freeze_one(seed); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(frozen, 6);
}

}  // namespace
}  // namespace tenuto
