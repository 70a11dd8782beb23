// What a change of the mode costs where replicas keep the parameters: it waits until it pays.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "parameter_server/mode_choice.h"
#include "parameter_server/mode_choice_run.h"

namespace tenuto::servers {
namespace {

// Compares the synchronous mode with a ring.
class RingChooser : public Chooser {
 public:
  struct Script {
    double ring = 10, synchronous = 10;  // scores
    bool is_silent = false;              // it speaks of no change
  };
  explicit RingChooser(const Script& script) : script_(script) {}

  SyncMode first(std::span<const IterationTime>, double) const override { return {}; }
  Result<SyncChoice> choose(const ChooseInput& input) override {
    SyncAlternative ring, synchronous;
    ring.mode = mode_of("ring:3:0,1,2,0");
    ring.score = script_.ring;
    synchronous.score = script_.synchronous;
    if (!script_.is_silent) return choose_best({ring, synchronous}, input.current);
    return SyncChoice{input.current, "the same replicas straggle", {ring, synchronous}};
  }

 private:
  const Script& script_;
};

// A run of four replicas with AdamW, of which the last one transfers for a second. So it hands its
// ranges over in 3/4 of a second.
struct KeptByReplicas {
  explicit KeptByReplicas(double kept_numbers = 3) {
    ModeChoiceSettings settings = four_replicas();
    settings.kept_numbers = kept_numbers;
    choice = std::make_unique<ModeChoice>(settings, std::make_unique<RingChooser>(script));
    for (int32_t replica = 0; replica < 4; ++replica) {
      MeasuredIteration one = iteration_of(replica, 50);
      if (replica == 3) one.time.transfer = std::chrono::seconds(1);
      EXPECT_TRUE(choice->add(one).ok());
    }
    EXPECT_EQ(next_of(*choice, current, at(0)), "");
  }
  // The next decision, in which the two modes have these scores. Returns whether the mode changed.
  bool decide(double ring, double synchronous) {
    script.ring = ring;
    script.synchronous = synchronous;
    const std::string next = next_of(*choice, current, at(++seconds));
    if (next.empty()) return false;
    current = mode_of(next);
    return true;
  }

  RingChooser::Script script;
  std::unique_ptr<ModeChoice> choice;
  SyncMode current;
  int seconds = 0;
};

TEST(ModeChoiceHandover, TimesThatAlternateDoNotFlipTheMode) {
  KeptByReplicas run, costless(0);
  int changes = 0, without_cost = 0;
  for (int i = 0; i < 40; ++i) {
    const double ring = i % 2 == 0 ? 13 : 10, synchronous = i % 2 == 0 ? 10 : 13;
    changes += run.decide(ring, synchronous) ? 1 : 0;
    without_cost += costless.decide(ring, synchronous) ? 1 : 0;
  }
  EXPECT_EQ(changes, 0);
  EXPECT_EQ(without_cost, 40) << "servers hand nothing over";
}

TEST(ModeChoiceHandover, AChangePaysWhenEnoughWasMissed) {
  KeptByReplicas run;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(run.decide(12, 10)) << i;
  EXPECT_TRUE(run.decide(12, 10)) << "4 x 0.2 s are more than 0.75 s";
  EXPECT_EQ(to_text(run.current), "ring:3:0,1,2,0");
  // What was missed before counts no more.
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(run.decide(10, 12)) << i;
  EXPECT_TRUE(run.decide(10, 12));
  EXPECT_EQ(to_text(run.current), "synchronous");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(run.decide(12, 10)) << i;
  EXPECT_FALSE(run.decide(10, 10)) << "it is not better any more";
  EXPECT_FALSE(run.decide(12, 10));
  // A large gain pays until the next decision.
  EXPECT_TRUE(run.decide(20, 10));
}

TEST(ModeChoiceHandover, AChooserNeedNotRepeatAChange) {
  KeptByReplicas run;
  EXPECT_FALSE(run.decide(12, 10));
  run.script.is_silent = true;
  EXPECT_FALSE(run.decide(12, 10));
  EXPECT_FALSE(run.decide(12, 10));
  EXPECT_TRUE(run.decide(12, 10));
  EXPECT_EQ(to_text(run.current), "ring:3:0,1,2,0");
}

TEST(ModeChoiceHandover, AWishDoesNotWait) {
  KeptByReplicas run;
  EXPECT_FALSE(run.decide(12, 10));
  ASSERT_TRUE(run.choice->want(mode_of("ring:3:0,1,2,0")).ok());
  EXPECT_TRUE(run.decide(12, 10));
  EXPECT_EQ(to_text(run.current), "ring:3:0,1,2,0");
}

}  // namespace
}  // namespace tenuto::servers
