// Links that are cut while both ends live: which worker is left out, and how long the coordinator
// waits when its own link is cut.
#include "control/partition.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "control/survival.h"

namespace tenuto {
namespace {

// A run whose workers lose each other.
class Links : public Survival {
 public:
  explicit Links(const Rules& rules = surviving_rules()) : Survival(rules) { steps(2); }
  // Worker `i` can no longer reach `peer`.
  Decision lose(size_t i, int32_t peer) {
    reports[i].lost_peers.push_back({peer});
    now += kMillisecond;
    return report(i);
  }
  // The first decision with a reason within `limit`, or an empty one.
  Decision decision(Duration limit) {
    constexpr Duration kMoment = std::chrono::milliseconds(100);
    for (Duration spent{}; spent < limit; spent += kMoment) {
      Decision last;
      now += kMoment;
      for (size_t i = 0; i < reports.size(); ++i) {
        if (state.members[i].alive && !mute) keep(last = hear(reports[i]));
        if (!last.reason.empty()) return last;
      }
      keep(last = hear(Tick{}));
      if (!last.reason.empty()) return last;
    }
    return {};
  }
};

const std::string kLeftOut =
    "worker 3 (stage 1 of pipeline 1) and worker 1 (stage 1 of pipeline 0) cannot reach each other "
    "(cut: link 1-3), while the coordinator reaches both; worker 3 is left out in step 2: the run "
    "continues without it, epoch 2";

TEST(Partition, OneOfTwoIsLeftOutWhicheverReportsFirst) {
  using Told = std::vector<std::pair<size_t, int32_t>>;
  for (const Told& told : {Told{{1, 3}, {3, 1}}, Told{{3, 1}, {1, 3}}, Told{{1, 3}}, Told{{3, 1}},
                           // A worker that gives up a step drops its other peers, which report it.
                           Told{{3, 1}, {2, 3}, {0, 1}, {1, 3}}, Told{{1, 3}, {0, 1}, {2, 3}}}) {
    Links run;
    for (const auto& [worker, peer] : told) run.lose(worker, peer);
    EXPECT_EQ(run.state.situation, Situation::Running) << "the others may explain it";
    const Decision decision = run.decision(2 * kSecond);
    EXPECT_EQ(decision.reason, kLeftOut);
    EXPECT_STREQ(decision.event, "death");
    EXPECT_EQ(decision.cut_off, std::vector<WorkerId>{{3}});
    EXPECT_EQ(decision.expelled, std::vector<WorkerId>{{3}});
  }
}

TEST(Partition, TheWorkerWithMostCutLinksIsLeftOut) {
  Links run;
  for (const int32_t peer : {0, 2, 3}) {
    run.lose(1, peer);
    run.lose(static_cast<size_t>(peer), 1);
  }
  const Decision decision = run.decision(2 * kSecond);
  EXPECT_EQ(run.state.recovery.dead, std::vector<WorkerId>{{1}});
  EXPECT_NE(decision.reason.find("(cut: links 0-1, 1-2, 1-3)"), std::string::npos)
      << decision.reason;
}

TEST(Partition, TheReplaceableWorkerIsLeftOut) {
  Links run;
  run.die({3});
  run.keep(run.freeze());
  run.run();
  run.lose(0, 1);  // nobody else holds stage 1
  run.lose(1, 0);
  run.decision(2 * kSecond);
  EXPECT_TRUE(run.state.members[1].alive);
  EXPECT_FALSE(run.state.members[0].alive);
  EXPECT_EQ(run.state.situation, Situation::Recovering);
}

// Both workers live and are heard, so no committed step is lost.
TEST(Partition, IfBothAreNeededTheRunIsSavedAndEnds) {
  Rules rules = surviving_rules();
  rules.survive = false;
  Links run(rules);
  run.lose(0, 1);
  const Decision decision = run.decision(2 * kSecond);
  EXPECT_EQ(run.state.situation, Situation::Salvaging);
  EXPECT_TRUE(decision.cut_off.empty());
  EXPECT_NE(
      decision.reason.find("worker 1 (stage 1 of pipeline 0) and worker 0 (stage 0 of "
                           "pipeline 0) cannot reach each other (cut: link 0-1), while the "
                           "coordinator reaches both, and no other worker holds their stages"),
      std::string::npos)
      << decision.reason;
  EXPECT_TRUE(decision.expelled.empty());
  run.freeze();
  EXPECT_EQ(run.state.told.save_version, 2);
  run.save_all();
  run.hear(Stored{2, ""});
  ASSERT_TRUE(run.state.ending);
  EXPECT_EQ(run.state.ending->exit_code, 75);
  EXPECT_EQ(run.state.ending->sentence.find("no live worker holds"), std::string::npos);
  EXPECT_EQ(run.state.saved, 2);
}

TEST(Partition, ASilentWorkerIsDeadAndItsLinkNotCut) {
  Links run;
  Decision decision;
  for (int part = 0; part < 9 && run.state.situation == Situation::Running; ++part) {
    run.now += kSecond / 4;
    for (const size_t heard : {0u, 1u, 2u}) run.hear(run.reports[heard]);
    if (part == 5) run.lose(1, 3);
    decision = run.hear(Tick{});
  }
  EXPECT_TRUE(decision.cut_off.empty());
  EXPECT_FALSE(run.state.members[3].alive);
  EXPECT_EQ(decision.reason.find("cut: link"), std::string::npos) << decision.reason;
}

// Rules for workers on other hosts than the coordinator.
Rules far_rules() {
  Rules rules = surviving_rules();
  rules.cut_off_limit = kReturnLimit;
  return rules;
}

TEST(Partition, ACoordinatorThatHearsNoWorkerWaits) {
  Links run(far_rules());
  run.mute = true;
  const Decision alone = run.decision(5 * kSecond);
  EXPECT_EQ(
      alone.reason,
      "the coordinator receives nothing from any worker: its own link may be cut; it waits 30.0 s "
      "for them");
  EXPECT_STREQ(alone.event, "partition");
  EXPECT_EQ(run.decision(5 * kSecond).reason, "");
  // The workers are heard again one after the other, the last one much later.
  const auto hear_for = [&](Duration time, size_t first, size_t end) {
    for (Duration spent{}; spent < time; spent += kSecond / 4) {
      run.now += kSecond / 4;
      for (size_t i = first; i < end; ++i) run.keep(run.hear(run.reports[i]));
    }
  };
  hear_for(kSecond, 0, 1);
  EXPECT_EQ(run.reasons.back().find("the coordinator receives from its workers again, after "), 0u)
      << run.reasons.back();
  hear_for(4 * kSecond, 0, 3);
  EXPECT_EQ(run.state.situation, Situation::Running);
  hear_for(kSecond, 0, 4);
  EXPECT_EQ(run.state.situation, Situation::Running);
  EXPECT_EQ(run.state.epoch, 1);
  hear_for(4 * kSecond, 0, 3);
  EXPECT_FALSE(run.state.members[3].alive) << "it is as dead as ever";
}

TEST(Partition, ItWaitsForEndedStreamsToo) {
  Links run(far_rules());
  for (int32_t worker = 0; worker < 4; ++worker) run.hear(StreamEnded{{worker}, 0});
  run.mute = true;
  run.decision(kSecond);
  run.decision(10 * kSecond);
  EXPECT_EQ(run.state.situation, Situation::Running);
  for (size_t i = 0; i < 4; ++i) run.report(i);
  run.mute = false;
  run.decision(kSecond);
  run.decision(5 * kSecond);
  EXPECT_EQ(run.state.epoch, 1);
  for (const Member& member : run.state.members) EXPECT_TRUE(member.alive);
}

TEST(Partition, ItDoesNotWaitForEver) {
  Links run(far_rules());
  run.mute = true;
  run.decision(5 * kSecond);
  for (int part = 0; part < 4 * 31; ++part) {
    run.now += kSecond / 4;
    run.hear(Tick{});
  }
  EXPECT_NE(run.state.situation, Situation::Running);
}

TEST(Partition, OnOneHostItDoesNotWait) {
  Links run;
  run.mute = true;
  run.pass(3 * kSecond);
  EXPECT_NE(run.state.situation, Situation::Running);
}

}  // namespace
}  // namespace tenuto
