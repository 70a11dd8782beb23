// The two parts of a replica over a wire that is made anew for each formation.
#include "worker/served_part.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/engine_cluster.h"
#include "engine/toy_job.h"
#include "transport/memory.h"

namespace tenuto {
namespace {

constexpr Duration kLimit = std::chrono::seconds(60);  // far above what anything takes
constexpr int32_t kReplica = 1;

// Some parameters, as bytes.
servers::Payload parameters_of(int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.02F * (static_cast<float>(i % 7) - 3);
  const auto bytes = std::as_bytes(std::span(values));
  return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

// An iteration of the replica's own micro-batches, or so many from this one on.
servers::Work work_of(int64_t iteration, int64_t micros, int32_t local_steps = 1) {
  servers::Work work;
  work.serial = iteration + 1;
  work.offer.replica = {kReplica};
  work.offer.mass = {micros * local_steps};
  work.local_steps = local_steps;
  work.micros.push_back({{kReplica}, iteration * micros, (iteration + local_steps) * micros});
  return work;
}

// The parts of replica 1 of two. The test is the host.
class StagedReplica {
 public:
  explicit StagedReplica(const Job& job) : job_(job) {
    Job alone = job;
    alone.parallel.pipelines = 1;
    plan_ = plan_of_model(alone);
    for (int32_t s = 0; s < 2; ++s) seats_[s].part = make(s);
  }

  ServedPart& part(int32_t stage) { return *seats_.at(stage).part; }
  const std::vector<std::string>& failures(int32_t stage) { return seats_.at(stage).failures; }
  // Another process takes the place of the part.
  void replace(int32_t stage) { seats_[stage].part = make(stage); }
  // The part's wire of this formation ends, as with the death of its process.
  void lose(int32_t stage, int64_t epoch) { networks_.at(number_of(epoch)).lose({stage}); }

  // Both parts listen, connect and are ready.
  void form(int64_t epoch) {
    std::vector<std::string> addresses;
    for (int32_t s = 0; s < 2; ++s) {
      const Result<std::string> address = part(s).listen(epoch);
      CHECK(address.ok(), address.error().message);
      addresses.push_back(address.value());
    }
    for (int32_t s = 0; s < 2; ++s) {
      const Status begun = part(s).connect(addresses);
      CHECK(begun.ok(), begun.error().message);
    }
    for (int32_t s = 0; s < 2; ++s) {
      const Result<bool> ready = part(s).go_on();
      CHECK(ready.ok(), ready.error().message);
      EXPECT_TRUE(ready.value()) << "stage " << s;
    }
  }

  void begin(int32_t stage, int64_t iteration, int32_t local_steps = 1) {
    const servers::Payload parameters = parameters_of(part(stage).elements());
    const servers::Work work = work_of(iteration, job_.parallel.micros, local_steps);
    const Status begun = part(stage).begin(work, {parameters}, Duration{});
    CHECK(begun.ok(), begun.error().message);
  }

  // Waits until the part has news, and takes what it has computed.
  std::optional<servers::ComputedIteration> take(int32_t stage) {
    CHECK(seats_.at(stage).news.wait(kLimit).ok(), "the part says nothing");
    return part(stage).advance({});
  }

  // The gradients of both parts, or their changes by several local steps.
  std::vector<std::vector<std::byte>> run(int64_t iteration, int32_t local_steps = 1) {
    for (int32_t s = 0; s < 2; ++s) begin(s, iteration, local_steps);
    std::vector<std::vector<std::byte>> gradients;
    for (int32_t s = 0; s < 2; ++s) {
      // A work of the formation before may have had news that nobody has taken.
      auto computed = take(s);
      while (!computed) computed = take(s);
      EXPECT_EQ(computed->loss.has_value(), s == 1) << "only the last stage knows the loss";
      EXPECT_EQ(computed->share, local_steps);
      gradients.push_back(*computed->gradients.at(0));
    }
    return gradients;
  }

 private:
  struct Seat {
    QueueMailbox news;
    std::vector<std::string> failures;
    std::unique_ptr<ServedPart> part;
  };

  // What the part has in its hello: the epochs of both replicas differ.
  static int64_t number_of(int64_t epoch) { return 2 * epoch + kReplica; }

  std::unique_ptr<ServedPart> make(int32_t stage) {
    Seat& seat = seats_[stage];
    ServedPartSettings settings;
    settings.job = job_;
    settings.plan = plan_;
    settings.place = {{stage}, {kReplica}};
    settings.make_device = [this, stage](WorkerId, Mailbox& mailbox) -> Result<WorkerCompute> {
      auto engine = make_engine(job_, plan_, {{stage}}, mailbox);
      if (!engine.ok()) return engine.error();
      WorkerCompute made;
      made.compute = std::move(engine).value();
      return made;
    };
    settings.make_wire = [this](WorkerId self, int64_t epoch,
                                Mailbox& mailbox) -> Result<WorkerWire> {
      Hello hello{"parts", "token", kWireVersion, self, epoch};
      WorkerWire wire;
      wire.transport = make_memory_transport(networks_[epoch], std::move(hello), mailbox);
      return wire;
    };
    settings.wake_host = [&seat] { seat.news.post({}); };
    settings.fail = [&seat](const Error& why) { seat.failures.push_back(why.message); };
    auto made = ServedPart::make(std::move(settings));
    CHECK(made.ok(), made.error().message);
    return std::move(made).value();
  }

  const Job job_;
  Plan plan_;
  std::map<int64_t, MemoryNetwork> networks_;  // by epoch of the hello
  std::map<int32_t, Seat> seats_;              // by stage
};

class ServedPartTest : public ToyTest {
 protected:
  ServedPartTest() {
    write_lines("a.txt", 400, [](std::ostream& out, int i) {
      out << i << " plus " << i * 7 % 31 << " is more.\n";
    });
  }

  Job job() const {
    Job job = toy_job(2, 2);
    job.steps = 10;
    job.model.width = 20;
    job.model.sequence = 8;
    job.parallel.pipelines = 2;
    job.parallel.micro_rows = 1;
    return job;
  }
};

TEST_F(ServedPartTest, PartsComputeTogetherInEachFormation) {
  StagedReplica replica(job());
  EXPECT_TRUE(replica.part(0).has_siblings());
  EXPECT_FALSE(replica.part(0).is_last());
  EXPECT_TRUE(replica.part(1).is_last());
  EXPECT_FALSE(replica.part(0).advance({}).has_value()) << "it has no wire yet";
  replica.form(1);
  const auto first = replica.run(3), other = replica.run(4);
  EXPECT_NE(first, other);
  replica.form(2);
  EXPECT_EQ(replica.run(3), first);
}

// With these it can keep ranges of its stage.
TEST_F(ServedPartTest, APartHasTheInitialParametersOfItsStage) {
  StagedReplica replica(job());
  std::vector<std::vector<float>> all;
  for (const int32_t stage : {0, 1}) {
    auto own = replica.part(stage).initial_parameters();
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_EQ(std::ssize(own.value().initial), replica.part(stage).elements());
    EXPECT_GE(own.value().decayed, 0);
    EXPECT_LE(own.value().decayed, replica.part(stage).elements());
    EXPECT_NE(own.value().initial, std::vector<float>(own.value().initial.size(), 0.0F));
    all.push_back(std::move(own).value().initial);
  }
  EXPECT_NE(all[0], all[1]);
}

// The moments of local steps belong to the part: they are there in the next formation, and another
// process begins without.
TEST_F(ServedPartTest, PartsTakeLocalStepsTogether) {
  StagedReplica replica(job()), other(job());
  replica.form(1);
  other.form(1);
  const auto changes = replica.run(3, 3);
  EXPECT_NE(changes, replica.run(3)) << "no gradients";
  EXPECT_EQ(other.run(3, 3), changes);
  const auto next = replica.run(6, 3);
  other.form(2);
  EXPECT_EQ(other.run(6, 3), next);
  StagedReplica fresh(job());
  fresh.form(1);
  EXPECT_NE(fresh.run(6, 3), next);
}

TEST_F(ServedPartTest, AWorkIsGivenUpWhenTheOtherPartIsLost) {
  StagedReplica replica(job());
  replica.form(1);
  const auto expected = replica.run(3);
  replica.begin(1, 4);
  replica.lose(0, 1);
  EXPECT_FALSE(replica.take(1).has_value());
  EXPECT_EQ(replica.part(1).take_lost(), std::vector<StageId>{{0}});
  EXPECT_TRUE(replica.part(1).take_lost().empty());
  EXPECT_TRUE(replica.failures(1).empty()) << replica.failures(1).front();
  replica.replace(0);
  replica.form(2);
  EXPECT_EQ(replica.run(3), expected);
  EXPECT_TRUE(replica.failures(1).empty());
}

// The other part never gets this work, because its decider is lost.
TEST_F(ServedPartTest, AnotherFormationStopsAWork) {
  StagedReplica replica(job());
  replica.form(1);
  const auto expected = replica.run(3);
  replica.begin(1, 4);
  replica.form(2);
  EXPECT_EQ(replica.run(3), expected);
  for (const int32_t stage : {0, 1}) EXPECT_TRUE(replica.failures(stage).empty());
}

TEST_F(ServedPartTest, APartThatCannotBeReachedIsLost) {
  StagedReplica replica(job());
  const Result<std::string> own = replica.part(1).listen(1);
  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_FALSE(replica.part(1).connect({own.value()}).ok()) << "an address is missing";
  ASSERT_TRUE(replica.part(1).connect({"worker-0", own.value()}).ok());
  const Result<bool> ready = replica.part(1).go_on();
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_FALSE(ready.value());
  EXPECT_EQ(replica.part(1).take_lost(), std::vector<StageId>{{0}});
  EXPECT_FALSE(replica.part(1).begin(work_of(0, 2), {parameters_of(4)}, {}).ok());
  replica.form(2);
  EXPECT_FALSE(replica.run(3).empty());
}

TEST_F(ServedPartTest, OneStageNeedsNoWire) {
  Job alone = job();
  alone.parallel.stages = 1;
  Job pipeline = alone;
  pipeline.parallel.pipelines = 1;
  QueueMailbox news;
  ServedPartSettings settings;
  settings.job = alone;
  settings.plan = plan_of_model(pipeline);
  settings.place = {{0}, {kReplica}};
  settings.make_device = [&](WorkerId, Mailbox& mailbox) -> Result<WorkerCompute> {
    auto engine = make_engine(settings.job, settings.plan, {{0}}, mailbox);
    if (!engine.ok()) return engine.error();
    WorkerCompute made;
    made.compute = std::move(engine).value();
    return made;
  };
  settings.wake_host = [&news] { news.post({}); };
  settings.fail = [](const Error& why) { ADD_FAILURE() << why.message; };
  auto made = ServedPart::make(settings);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ServedPart& part = *made.value();
  EXPECT_FALSE(part.has_siblings());
  EXPECT_TRUE(part.is_last());
  const servers::Payload parameters = parameters_of(part.elements());
  ASSERT_TRUE(part.begin(work_of(3, 2), {parameters}, {}).ok());
  ASSERT_TRUE(news.wait(kLimit).ok());
  const auto computed = part.advance({});
  ASSERT_TRUE(computed.has_value());
  EXPECT_TRUE(computed->loss.has_value());
  EXPECT_EQ(computed->gradients.at(0)->size(), parameters->size());
}

}  // namespace
}  // namespace tenuto
