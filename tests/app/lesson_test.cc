// State transfer: the state of a stage is sent in parts while both ends take optimizer steps.
#include "app/lesson.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "base/mailbox.h"
#include "plan/make_plan.h"
#include "runtime/paced.h"
#include "transport/memory.h"
#include "world/job.h"

namespace tenuto {
namespace {

constexpr StageId kStage{0};
constexpr int64_t kBytes = 5 << 20;

Job small_job(int64_t seed) {
  Job job;
  job.seed = seed;
  job.device.kind = "paced";
  job.device.parameter_bytes = kBytes;
  job.parallel.stages = 1;
  return job;
}

Plan small_plan() {
  Shape shape;
  shape.stages = shape.layers = shape.pipelines = shape.micros = 1;
  shape.order = "1f1b";
  const auto plan = make_plan(shape);
  CHECK(plan.ok(), "a small plan");
  return plan.value();
}

// One worker with a device that holds the stage.
struct Seat {
  Seat(MemoryNetwork& network, WorkerId self, int64_t seed, const PartSizes& sizes = {})
      : lessons(sizes),
        transport(make_memory_transport(network, {"job", "", 1, self, 1}, mailbox)),
        compute(make_paced(small_job(seed), small_plan(), {kStage}, monotonic_clock(), mailbox)),
        time{.self = self,
             .epoch = 1,
             .version = 4,
             .plan_serial = 3,
             .transport = transport.get(),
             .compute = compute.get()} {
    (void)compute->adopt(time.version);
  }
  // Takes reports until the step may begin, 20 at most.
  Status settle() {
    for (int i = 0; i < 20 && !lessons.ready(); ++i) {
      const Result<Done> done = mailbox.wait(std::chrono::seconds(10));
      if (!done.ok()) return done.error();
      lessons.note(done.value(), time.now);
      if (const Status status = lessons.advance(time); !status.ok()) return status;
    }
    return ok();
  }
  // Takes the reports of calls that have ended meanwhile.
  void collect() {
    for (auto done = mailbox.wait({}); done.ok(); done = mailbox.wait({})) {
      lessons.note(done.value(), time.now);
    }
  }
  // An optimizer step that works element by element.
  void step() {
    std::vector<float> weights = compute->weights();
    for (float& weight : weights) weight = weight * 0.5F + static_cast<float>(time.version);
    const auto bytes = std::as_bytes(std::span(weights));
    CHECK(compute->write_state(kStage, 0, bytes).ok(), "weights of the stage");
    time.version += 1;
    time.now += std::chrono::seconds(1);
    CHECK(compute->adopt(time.version).ok(), "the next version");
  }

  QueueMailbox mailbox;
  Lessons lessons;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<PacedCompute> compute;
  LessonTime time;
};

class Lesson : public testing::Test {
 protected:
  explicit Lesson(const PartSizes& sizes = {})
      : donor(network, {0}, 1, sizes), learner(network, {2}, 2) {
    const Status begun = donor.transport->connect({2}, {"worker-2"}, Ticket{1} /* nobody's */);
    CHECK(begun.ok(), "a way to the learner");
    const Result<Done> done = donor.mailbox.wait(std::chrono::seconds(10));
    CHECK(done.ok() && done.value().status.ok(), "a connection");
  }
  // The time between two steps, at both ends, in which parts are transferred.
  void moment() {
    ASSERT_TRUE(donor.lessons.begin(newcomers, donor.time).ok());
    ASSERT_TRUE(learner.lessons.begin(newcomers, learner.time).ok());
    ASSERT_TRUE(learner.settle().ok());
    ASSERT_TRUE(donor.settle().ok());
    ASSERT_TRUE(learner.lessons.ready() && donor.lessons.ready());
  }
  void step() {
    donor.collect();
    donor.step();
    learner.step();
  }

  MemoryNetwork network;
  Seat donor, learner;
  std::vector<Newcomer> newcomers = {{{2}, 1, {kStage}, {{0}}, 3}};
};

TEST_F(Lesson, WhatWasGivenStaysRightOverTheUpdates) {
  donor.time.voids = 7;
  int moments = 0;
  while (learner.lessons.learned() < 0 && moments < 50) {
    EXPECT_NE(learner.compute->weights(), donor.compute->weights());
    moment();
    ++moments;
    step();
  }
  EXPECT_GT(moments, 2) << "it goes over in parts";
  EXPECT_LT(moments, 6) << "that grow while there is time";
  EXPECT_EQ(learner.lessons.learned(), 4 + moments - 1);
  EXPECT_EQ(learner.lessons.voids(), 7);
  EXPECT_EQ(donor.lessons.learned(), -1);
  EXPECT_EQ(learner.compute->weights(), donor.compute->weights());
  moment();  // nothing is left to transfer
  step();
  EXPECT_EQ(learner.compute->weights(), donor.compute->weights());
}

// Each part that takes little of the time between two steps is followed by one of twice its size,
// up to the largest size allowed.
class SmallParts : public Lesson {
 protected:
  SmallParts() : Lesson({.first = 64 << 10, .least = 16 << 10, .most = 256 << 10}) {}
};

TEST_F(SmallParts, NoneIsLargerThanAllowed) {
  int moments = 0;
  while (learner.lessons.learned() < 0 && moments < 200) {
    moment();
    ++moments;
    step();
  }
  // 64, 128 and then 256 KiB each: 5 MiB of weights alone are more than 20 parts.
  EXPECT_GE(moments, 21);
  EXPECT_LT(moments, 200);
  EXPECT_EQ(learner.compute->weights(), donor.compute->weights());
}

// Each part that takes too much of the time between two steps is followed by one of half its size,
// down to the smallest size allowed.
TEST_F(SmallParts, NoneIsSmallerThanAllowed) {
  int moments = 0;
  while (learner.lessons.learned() < 0 && moments < 2000) {
    moment();
    ++moments;
    donor.time.now += std::chrono::seconds(1);
    step();
  }
  // 64, 32 and then 16 KiB each.
  EXPECT_GT(moments, kBytes / (16 << 10) - 10);
  EXPECT_LT(moments, 2000);
  EXPECT_EQ(learner.compute->weights(), donor.compute->weights());
}

TEST_F(Lesson, NothingIsGivenBeforeThePlanIsInForce) {
  newcomers.front().plan_serial = 4;
  moment();
  EXPECT_EQ(learner.lessons.learned(), -1);
  newcomers.front() = {{2}, 1, {kStage}};
  moment();
  EXPECT_EQ(learner.lessons.learned(), -1);
}

TEST_F(Lesson, ALearnerThatIsGoneKeepsNobody) {
  moment();
  step();
  network.lose({2});
  ASSERT_TRUE(donor.lessons.begin(newcomers, donor.time).ok());
  ASSERT_TRUE(donor.settle().ok());
  EXPECT_TRUE(donor.lessons.ready());
}

TEST_F(Lesson, ADonorThatIsGoneEndsTheLesson) {
  moment();
  step();
  ASSERT_TRUE(learner.lessons.begin(newcomers, learner.time).ok());
  EXPECT_FALSE(learner.lessons.ready());
  network.lose({0});
  const Status settled = learner.settle();
  ASSERT_FALSE(settled.ok());
  EXPECT_EQ(settled.error().code, Code::Disconnected);
  EXPECT_FALSE(learner.lessons.advance(learner.time).ok());
  learner.transport.reset();
  learner.lessons.start_over();
  EXPECT_TRUE(learner.lessons.ready());
}

TEST_F(Lesson, APartOfAnotherVersionIsRefused) {
  donor.time.epoch = learner.time.epoch;
  moment();
  step();
  // The learner starts over, so the donor's next part is not the one it expects.
  learner.lessons.start_over();
  ASSERT_TRUE(donor.lessons.begin(newcomers, donor.time).ok());
  ASSERT_TRUE(learner.lessons.begin(newcomers, learner.time).ok());
  const Status settled = learner.settle();
  ASSERT_FALSE(settled.ok());
  EXPECT_EQ(settled.error().code, Code::Corrupt);
}

}  // namespace
}  // namespace tenuto
