// State transfer: the state of a stage is sent in parts while both ends take optimizer steps.
#include "worker/state_transfer.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/check.h"
#include "base/mailbox.h"
#include "plan/make_plan.h"
#include "rehearsal/paced.h"
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
      : transfers(sizes),
        transport(make_memory_transport(network, {"job", "", 1, self, 1}, mailbox)),
        compute(make_paced(small_job(seed), small_plan(), {kStage}, monotonic_clock(), mailbox)),
        time{.self = self,
             .epoch = 1,
             .version = 4,
             .plan_serial = 3,
             .transport = transport.get(),
             .state = compute.get()} {
    (void)compute->adopt(time.version);
  }
  // Takes reports until the step may begin, 20 at most.
  Status advance() {
    for (int i = 0; i < 20 && !transfers.ready(); ++i) {
      const Result<Done> done = mailbox.wait(std::chrono::seconds(10));
      if (!done.ok()) return done.error();
      transfers.note(done.value(), time.now);
      if (const Status status = transfers.advance(time); !status.ok()) return status;
    }
    return ok();
  }
  // Takes the reports of calls that have ended meanwhile.
  void collect() {
    for (auto done = mailbox.wait({}); done.ok(); done = mailbox.wait({})) {
      transfers.note(done.value(), time.now);
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
  StateTransfers transfers;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<PacedDevice> compute;
  TransferMoment time;
};

class Transfer : public testing::Test {
 protected:
  explicit Transfer(const PartSizes& sizes = {})
      : donor(network, {0}, 1, sizes), joiner(network, {2}, 2) {
    const Status begun = donor.transport->connect({2}, {"worker-2"}, Ticket{1} /* nobody's */);
    CHECK(begun.ok(), "a way to the joiner");
    const Result<Done> done = donor.mailbox.wait(std::chrono::seconds(10));
    CHECK(done.ok() && done.value().status.ok(), "a connection");
  }
  // The time between two steps, at both ends, in which parts are transferred.
  void moment() {
    ASSERT_TRUE(donor.transfers.begin(joiners, donor.time).ok());
    ASSERT_TRUE(joiner.transfers.begin(joiners, joiner.time).ok());
    ASSERT_TRUE(joiner.advance().ok());
    ASSERT_TRUE(donor.advance().ok());
    ASSERT_TRUE(joiner.transfers.ready() && donor.transfers.ready());
  }
  void step() {
    donor.collect();
    donor.step();
    joiner.step();
  }

  MemoryNetwork network;
  Seat donor, joiner;
  std::vector<Joiner> joiners = {{{2}, 1, {kStage}, {{0}}, 3}};
};

TEST_F(Transfer, TransferredPartsStayEqualOverUpdates) {
  donor.time.voids = 7;
  int moments = 0;
  while (joiner.transfers.received() < 0 && moments < 50) {
    EXPECT_NE(joiner.compute->weights(), donor.compute->weights());
    moment();
    ++moments;
    step();
  }
  EXPECT_GT(moments, 2) << "it goes over in parts";
  EXPECT_LT(moments, 6) << "that grow while there is time";
  EXPECT_EQ(joiner.transfers.received(), 4 + moments - 1);
  EXPECT_EQ(joiner.transfers.voids(), 7);
  EXPECT_EQ(donor.transfers.received(), -1);
  EXPECT_EQ(joiner.compute->weights(), donor.compute->weights());
  moment();  // nothing is left to transfer
  step();
  EXPECT_EQ(joiner.compute->weights(), donor.compute->weights());
}

// Each part that takes little of the time between two steps is followed by one of twice its size,
// up to the largest size allowed.
class SmallParts : public Transfer {
 protected:
  SmallParts() : Transfer({.first = 64 << 10, .least = 16 << 10, .most = 256 << 10}) {}
};

TEST_F(SmallParts, NoneIsLargerThanAllowed) {
  int moments = 0;
  while (joiner.transfers.received() < 0 && moments < 200) {
    moment();
    ++moments;
    step();
  }
  // 64, 128 and then 256 KiB each: 5 MiB of weights alone are more than 20 parts.
  EXPECT_GE(moments, 21);
  EXPECT_LT(moments, 200);
  EXPECT_EQ(joiner.compute->weights(), donor.compute->weights());
}

// Each part that takes too much of the time between two steps is followed by one of half its size,
// down to the smallest size allowed.
TEST_F(SmallParts, NoneIsSmallerThanAllowed) {
  int moments = 0;
  while (joiner.transfers.received() < 0 && moments < 2000) {
    moment();
    ++moments;
    donor.time.now += std::chrono::seconds(1);
    step();
  }
  // 64, 32 and then 16 KiB each.
  EXPECT_GT(moments, kBytes / (16 << 10) - 10);
  EXPECT_LT(moments, 2000);
  EXPECT_EQ(joiner.compute->weights(), donor.compute->weights());
}

TEST_F(Transfer, NothingIsSentBeforeThePlanIsInForce) {
  joiners.front().plan_serial = 4;
  moment();
  EXPECT_EQ(joiner.transfers.received(), -1);
  joiners.front() = {{2}, 1, {kStage}};
  moment();
  EXPECT_EQ(joiner.transfers.received(), -1);
}

TEST_F(Transfer, ALostJoinerDoesNotBlockItsDonor) {
  moment();
  step();
  network.lose({2});
  ASSERT_TRUE(donor.transfers.begin(joiners, donor.time).ok());
  ASSERT_TRUE(donor.advance().ok());
  EXPECT_TRUE(donor.transfers.ready());
}

TEST_F(Transfer, ALostDonorEndsTheTransfer) {
  moment();
  step();
  ASSERT_TRUE(joiner.transfers.begin(joiners, joiner.time).ok());
  EXPECT_FALSE(joiner.transfers.ready());
  network.lose({0});
  const Status failed = joiner.advance();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::Disconnected);
  EXPECT_FALSE(joiner.transfers.advance(joiner.time).ok());
  joiner.transport.reset();
  joiner.transfers.start_over();
  EXPECT_TRUE(joiner.transfers.ready());
}

TEST_F(Transfer, APartOfAnotherVersionIsRefused) {
  donor.time.epoch = joiner.time.epoch;
  moment();
  step();
  // The joiner starts over, so the donor's next part is not the one it expects.
  joiner.transfers.start_over();
  ASSERT_TRUE(donor.transfers.begin(joiners, donor.time).ok());
  ASSERT_TRUE(joiner.transfers.begin(joiners, joiner.time).ok());
  const Status failed = joiner.advance();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::Corrupt);
}

}  // namespace
}  // namespace tenuto
