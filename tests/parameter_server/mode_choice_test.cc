// The mode that shall be in force: chosen from scripted iterations by the second, or wanted.
#include "parameter_server/mode_choice.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "parameter_server/mode_choice_run.h"
#include "sync/kappa_estimate.h"

namespace tenuto::servers {
namespace {

// Answers with the mode that it was told, and keeps what it was asked.
class ScriptedChooser : public Chooser {
 public:
  struct Script {
    SyncMode answer;
    std::vector<ChooseInput> asked;
    bool fails = false;
  };
  explicit ScriptedChooser(Script& script) : script_(script) {}

  SyncMode first(std::span<const IterationTime>, double) const override { return {}; }
  Result<SyncChoice> choose(const ChooseInput& input) override {
    script_.asked.push_back(input);
    if (script_.fails) return invalid("the chooser fails");
    return SyncChoice{script_.answer, "told so", {}};
  }

 private:
  Script& script_;
};

TEST(ModeChoice, ItIsAskedOnceASecond) {
  ScriptedChooser::Script script;
  ModeChoice choice(four_replicas(), std::make_unique<ScriptedChooser>(script));
  script.answer = mode_of("asynchronous");
  // The first call, at whatever moment, begins the first second.
  EXPECT_EQ(next_of(choice, {}, at(50)), "");
  EXPECT_EQ(next_of(choice, {}, at(50.9)), "");
  EXPECT_EQ(script.asked.size(), 0u);
  EXPECT_EQ(next_of(choice, {}, at(51)), "asynchronous");
  EXPECT_EQ(script.asked.size(), 1u);
  EXPECT_EQ(next_of(choice, script.answer, at(51.5)), "");
  EXPECT_EQ(script.asked.size(), 1u);
  // The mode stays.
  EXPECT_EQ(next_of(choice, script.answer, at(52.5)), "");
  EXPECT_EQ(script.asked.size(), 2u);
  // The next second begins with the choice before.
  EXPECT_EQ(next_of(choice, script.answer, at(53.4)), "");
  EXPECT_EQ(script.asked.size(), 2u);
  EXPECT_EQ(next_of(choice, script.answer, at(53.5)), "");
  EXPECT_EQ(script.asked.size(), 3u);
}

TEST(ModeChoice, ItGetsWhatWasMeasured) {
  ScriptedChooser::Script script;
  ModeChoice choice(four_replicas(), std::make_unique<ScriptedChooser>(script));
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  ASSERT_TRUE(choice.add(iteration_of(0, 20)).ok());
  ASSERT_TRUE(choice.add(iteration_of(0, 10, 0.5)).ok());
  ASSERT_TRUE(choice.add(iteration_of(3, 40)).ok());
  EXPECT_EQ(next_of(choice, mode_of("x:2"), at(2)), "synchronous");
  ASSERT_EQ(script.asked.size(), 1u);
  const ChooseInput& input = script.asked.front();
  EXPECT_EQ(input.apply, four_replicas().apply);
  EXPECT_EQ(input.micros, 8);
  EXPECT_EQ(input.kappa, 0.5);
  EXPECT_EQ(input.seed, 11u);
  EXPECT_EQ(input.current, mode_of("x:2"));
  ASSERT_EQ(input.samples.size(), 4u);
  // Half of an iteration in 10 ms is a whole one in 20 ms.
  ASSERT_EQ(input.samples[0].size(), 2u);
  EXPECT_EQ(input.samples[0][0].compute, std::chrono::milliseconds(20));
  EXPECT_EQ(input.samples[0][1].compute, std::chrono::milliseconds(20));
  ASSERT_EQ(input.samples[3].size(), 1u);
  EXPECT_EQ(input.samples[3][0].compute, std::chrono::milliseconds(40));
  // The others have been in their first iteration for two seconds.
  const IterationTime guess = guess_from(at(2), std::chrono::milliseconds(100));
  for (const size_t replica : {size_t{1}, size_t{2}}) {
    ASSERT_EQ(input.samples[replica].size(), 1u);
    EXPECT_EQ(input.samples[replica][0].compute, guess.compute);
    EXPECT_EQ(input.samples[replica][0].transfer, guess.transfer);
  }
}

TEST(ModeChoice, AgeCostsTwiceAsMuchWhileTheLossRises) {
  ScriptedChooser::Script script;
  ModeChoice choice(four_replicas(), std::make_unique<ScriptedChooser>(script));
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  const auto add_losses = [&choice](int rounds, double loss) {
    for (int i = 0; i < rounds * 4; ++i) {
      MeasuredIteration one = iteration_of(i % 4, 20);
      one.loss = loss;
      ASSERT_TRUE(choice.add(one).ok());
    }
  };
  const auto kappa_at = [&](double seconds) {
    EXPECT_EQ(next_of(choice, mode_of("x:2"), at(seconds)), "synchronous");
    return script.asked.back().kappa;
  };
  add_losses(20, 1);
  EXPECT_EQ(kappa_at(1), 0.5);
  add_losses(8, 2);
  EXPECT_EQ(kappa_at(2), 1);
  add_losses(4, 0.5);
  EXPECT_EQ(kappa_at(3), 0.5);
}

// It hears what the estimate has to hear, and tells the chooser what that has learned.
TEST(ModeChoice, WhatAgeCostsIsLearned) {
  ModeChoiceSettings settings = four_replicas();
  for (const bool learns : {false, true}) {
    settings.learns_kappa = learns;
    ScriptedChooser::Script script;
    ModeChoice choice(settings, std::make_unique<ScriptedChooser>(script));
    KappaEstimate expected(settings.kappa, settings.replicas);
    CommittedReport report;
    report.applied = {4000};  // before this choice began
    choice.add(report);
    report.works = 1;
    double loss = 10;
    for (int i = 0; i < 160; ++i) {
      report.age = i / 40 % 2 == 0 ? 1.5 : 3;
      MeasuredIteration one = iteration_of(i % 4, 20);
      // The loss falls three times as fast with young gradients.
      loss -= report.age < 2 ? 0.03 : 0.01;
      one.loss = loss;
      ASSERT_TRUE(choice.add(one).ok());
      expected.add_loss(1, loss);
      report.applied += Mass{settings.micros};
      choice.add(report);
      expected.add_applied(1, report.age);
    }
    EXPECT_EQ(next_of(choice, mode_of("x:2"), at(0)), "");
    EXPECT_EQ(next_of(choice, mode_of("x:2"), at(1)), "synchronous");
    ASSERT_EQ(script.asked.size(), 1u);
    EXPECT_NE(expected.kappa(), settings.kappa);
    EXPECT_EQ(script.asked[0].kappa, learns ? expected.kappa() : settings.kappa);
    EXPECT_EQ(choice.learned_kappa(),
              learns ? std::optional(expected.kappa()) : std::optional<double>());
  }
  EXPECT_FALSE(ModeChoice(settings, nullptr).learned_kappa().has_value()) << "nobody needs it";
}

TEST(ModeChoice, TheTimeOfAnUpdateIsTheOneThatWasMeasured) {
  ScriptedChooser::Script script;
  ModeChoice choice(four_replicas(), std::make_unique<ScriptedChooser>(script));
  EXPECT_EQ(next_of(choice, mode_of("x:2"), at(0)), "");
  EXPECT_EQ(next_of(choice, mode_of("x:2"), at(1)), "synchronous");
  choice.set_apply(std::chrono::milliseconds(7));
  EXPECT_EQ(next_of(choice, mode_of("x:2"), at(2)), "synchronous");
  ASSERT_EQ(script.asked.size(), 2u);
  EXPECT_EQ(script.asked[0].apply, four_replicas().apply);
  EXPECT_EQ(script.asked[1].apply, std::chrono::milliseconds(7));
}

TEST(ModeChoice, AWishTakesTheSameWay) {
  ScriptedChooser::Script script;
  script.answer = mode_of("asynchronous");
  ModeChoice choice(four_replicas(), std::make_unique<ScriptedChooser>(script));
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  ASSERT_TRUE(choice.want(mode_of("x:2")).ok());
  EXPECT_EQ(next_of(choice, {}, at(0.5)), "x:2") << "a person does not wait for the second";
  EXPECT_EQ(next_of(choice, mode_of("x:2"), at(0.6)), "");
  EXPECT_EQ(next_of(choice, mode_of("x:2"), at(2)), "");
  EXPECT_EQ(script.asked.size(), 0u) << "nobody has to choose";
  ASSERT_TRUE(choice.want({}).ok());
  EXPECT_EQ(next_of(choice, mode_of("x:2"), at(2.1)), "asynchronous");
}

// No chooser knows what local steps are worth.
TEST(ModeChoice, LocalStepsEndWhenTheWishForThemIsWithdrawn) {
  ScriptedChooser::Script script;
  script.answer = mode_of("x:2");
  ModeChoice choice(four_replicas(), std::make_unique<ScriptedChooser>(script));
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  const SyncMode local = mode_of("x:2+local:4+outer:0.7,0.9");
  ASSERT_TRUE(choice.want(local).ok());
  EXPECT_EQ(next_of(choice, {}, at(0.5)), to_text(local));
  EXPECT_EQ(next_of(choice, local, at(2)), "");
  ASSERT_TRUE(choice.want({}).ok());
  EXPECT_EQ(next_of(choice, local, at(2.1)), "x:2");
  ASSERT_EQ(script.asked.size(), 1u);
  EXPECT_EQ(script.asked.front().current, mode_of("x:2"));
}

TEST(ModeChoice, AWishFromBeforeTheBeginIsTheFirstAnswer) {
  ModeChoice choice(four_replicas(), nullptr);
  ASSERT_TRUE(choice.want(mode_of("x:2")).ok());
  EXPECT_EQ(next_of(choice, {}, at(7)), "x:2");
}

TEST(ModeChoice, AWantedModeIsFormedOnce) {
  ModeChoice choice(four_replicas(), nullptr);
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  for (int32_t replica = 0; replica < 4; ++replica) {
    ASSERT_TRUE(choice.add(iteration_of(replica, replica < 2 ? 20 : 80)).ok());
  }
  ASSERT_TRUE(choice.want(mode_of("groups")).ok());
  const std::string formed = next_of(choice, {}, at(1));
  EXPECT_EQ(formed, "groups:0,1/2,3");
  for (int i = 0; i < 24; ++i) ASSERT_TRUE(choice.add(iteration_of(1, 80)).ok());
  EXPECT_EQ(next_of(choice, mode_of(formed), at(2)), "") << "other times make no other groups";
}

TEST(ModeChoice, AWantedModeWaitsForTheTimesThatItIsFormedFrom) {
  ModeChoice choice(four_replicas(), nullptr);
  ASSERT_TRUE(choice.want(mode_of("groups")).ok());
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  for (int32_t replica = 0; replica < 3; ++replica) {
    ASSERT_TRUE(choice.add(iteration_of(replica, replica < 2 ? 20 : 80)).ok());
  }
  EXPECT_EQ(next_of(choice, {}, at(0.5)), "") << "one has not ended an iteration";
  ASSERT_TRUE(choice.add(iteration_of(3, 80)).ok());
  EXPECT_EQ(next_of(choice, {}, at(0.6)), "groups:0,1/2,3");
}

TEST(ModeChoice, AWantedModeDoesNotWaitForAReplicaThatIsLost) {
  ModeChoice choice(four_replicas(), nullptr);
  ASSERT_TRUE(choice.want(mode_of("groups")).ok());
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  for (int32_t replica = 0; replica < 3; ++replica) {
    ASSERT_TRUE(choice.add(iteration_of(replica, 20)).ok());
  }
  EXPECT_EQ(next_of(choice, {}, at(9)), "");
  EXPECT_EQ(next_of(choice, {}, at(11)), "groups:0,1,2/3");
}

TEST(ModeChoice, WithoutAChooserTheModeStays) {
  ModeChoice choice(four_replicas(), nullptr);
  for (int second = 0; second < 5; ++second) {
    EXPECT_EQ(next_of(choice, mode_of("x:3"), at(second)), "");
  }
}

TEST(ModeChoice, TheLookAheadLeavesASlowReplicaBehind) {
  ModeChoiceSettings settings = four_replicas();
  settings.kappa = kPlainKappa;
  ModeChoice choice(settings, look_ahead_chooser());
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  for (int i = 0; i < 10; ++i) {
    for (int32_t replica = 0; replica < 4; ++replica) {
      ASSERT_TRUE(choice.add(iteration_of(replica, replica == 3 ? 1000 : 50)).ok());
    }
  }
  const std::string chosen = next_of(choice, {}, at(1));
  EXPECT_NE(chosen, "");
  EXPECT_NE(chosen, "synchronous");
}

// Replica 0 is the fastest, but other jobs have the processors of its host.
TEST(ModeChoice, AnOverloadedHostIsNotInTheRing) {
  const auto ring_of = [](double pressure, const char* wanted, std::string* reason) {
    ModeChoice choice(four_replicas(), nullptr);
    EXPECT_TRUE(choice.want(mode_of(wanted)).ok());
    for (int32_t replica = 0; replica < 4; ++replica) {
      MeasuredIteration one = iteration_of(replica, 20 + replica);
      one.processor.pressure = replica == 0 ? pressure : 0.1;
      EXPECT_TRUE(choice.add(one).ok());
    }
    const auto next = choice.next({}, at(1));
    EXPECT_TRUE(next.ok() && next.value());
    *reason = next.value()->reason;
    return to_text(next.value()->mode);
  };
  std::string reason;
  EXPECT_EQ(ring_of(0.2, "ring:3", &reason), "ring:3:0,1,2,0");
  EXPECT_EQ(ring_of(0.9, "ring:3", &reason), "ring:3:1,1,2,3");
  EXPECT_EQ(reason, "ring:3:1,1,2,3 is wanted");
  // Who names the parents has them.
  EXPECT_EQ(ring_of(0.9, "ring:3:0,1,2,0", &reason), "ring:3:0,1,2,0");
}

// Without servers a parent passes on what its children send. In 20 ms its port passes a gradient of
// 10 ms only once, and that is its own.
TEST(ModeChoice, ARingThatPortsDoNotTakeIsWantedNonetheless) {
  for (const bool passes_on : {false, true}) {
    ModeChoiceSettings settings = four_replicas();
    settings.children_send_to_parents = passes_on;
    ModeChoice choice(settings, nullptr);
    ASSERT_TRUE(choice.want(mode_of("ring:2")).ok());
    for (int32_t replica = 0; replica < 4; ++replica) {
      MeasuredIteration one = iteration_of(replica, 10);
      one.time.transfer = std::chrono::milliseconds(10);
      ASSERT_TRUE(choice.add(one).ok());
    }
    const auto next = choice.next({}, at(1));
    ASSERT_TRUE(next.ok() && next.value());
    EXPECT_EQ(to_text(next.value()->mode), "ring:2:0,1,0,1");
    EXPECT_EQ(next.value()->reason,
              passes_on ? "ring:2:0,1,0,1 is wanted, although this is against it: a ring of 2 "
                          "replicas: 2 others would be its children, and the ports of its members "
                          "take the gradients of 0: take a larger ring, or a mode without one"
                        : "ring:2:0,1,0,1 is wanted");
  }
}

TEST(ModeChoice, TheBestAlternativesAreTold) {
  SyncChoice choice{mode_of("x:2"), "told so", {}};
  EXPECT_TRUE(best_alternatives(choice).empty());
  for (size_t i = 0; i < kMostAlternatives + 3; ++i) {
    SyncAlternative one;
    one.mode = mode_of(cat("x:", i + 1));
    one.measure.gradients_per_second = 40;
    one.measure.mean_age = 1.5;
    one.score = 30 - static_cast<double>(i);
    choice.alternatives.push_back(one);
  }
  const std::vector<ModeAlternative> best = best_alternatives(choice);
  ASSERT_EQ(best.size(), kMostAlternatives);
  for (size_t i = 0; i < best.size(); ++i) {
    const ModeAlternative expected{mode_of(cat("x:", i + 1)), 40, 1.5, 30 - static_cast<double>(i)};
    EXPECT_EQ(best[i], expected);
  }
}

TEST(ModeChoice, WhatCannotBeIsRefused) {
  ScriptedChooser::Script script;
  ModeChoice choice(four_replicas(), std::make_unique<ScriptedChooser>(script));
  for (const MeasuredIteration& wrong :
       {iteration_of(-1, 10), iteration_of(4, 10), iteration_of(0, -1), iteration_of(0, 10, 0)}) {
    const Status added = choice.add(wrong);
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().code, Code::Invalid);
  }
  EXPECT_FALSE(choice.want(mode_of("x:5")).ok());
  EXPECT_FALSE(choice.want(mode_of("rebalanced:8,8,8,9")).ok());
  EXPECT_TRUE(choice.want(mode_of("rebalanced:8,8,7,9")).ok());
  ASSERT_TRUE(choice.want({}).ok());
  script.fails = true;
  EXPECT_TRUE(choice.next({}, at(0)).ok());
  const auto next = choice.next({}, at(1));
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().message, "the chooser fails");
}

// ---- the gate of a job that shares its host ---------------------------------------------------

// A choice that has to ask, and its chooser.
struct Gated {
  Gated() {
    ModeChoiceSettings settings = four_replicas();
    settings.asks = true;
    choice = std::make_unique<ModeChoice>(settings, std::make_unique<ScriptedChooser>(script));
    EXPECT_EQ(next_of(*choice, {}, at(0)), "");
  }
  ScriptedChooser::Script script;
  std::unique_ptr<ModeChoice> choice;
};

// Answers with scores.
class ScoringChooser : public Chooser {
 public:
  SyncMode first(std::span<const IterationTime>, double) const override { return {}; }
  Result<SyncChoice> choose(const ChooseInput& input) override {
    SyncChoice choice{mode_of("x:2"), "it is faster", {}};
    SyncAlternative better, current;
    better.mode = choice.mode;
    better.score = 15;
    current.mode = input.current;
    current.score = 10;
    choice.alternatives = {better, current};
    return choice;
  }
};

TEST(ModeChoiceGate, AClosedGateAsksOnceASecond) {
  Gated gated;
  ModeChoice& choice = *gated.choice;
  gated.script.answer = mode_of("asynchronous");
  EXPECT_FALSE(choice.take_question().has_value());
  EXPECT_EQ(next_of(choice, {}, at(1)), "");
  const auto question = choice.take_question();
  ASSERT_TRUE(question.has_value());
  EXPECT_EQ(to_text(question->mode), "asynchronous");
  EXPECT_EQ(question->gain, 0) << "the chooser has no scores";
  EXPECT_FALSE(choice.take_question().has_value());
  EXPECT_EQ(next_of(choice, {}, at(1.5)), "");
  EXPECT_FALSE(choice.take_question().has_value());
  EXPECT_EQ(next_of(choice, {}, at(2)), "");
  EXPECT_TRUE(choice.take_question().has_value());
  // What does not leave the synchronous mode is not asked for.
  gated.script.answer = {};
  EXPECT_EQ(next_of(choice, {}, at(3)), "");
  EXPECT_FALSE(choice.take_question().has_value());
}

TEST(ModeChoiceGate, TheGainIsThatOfTheScores) {
  ModeChoiceSettings settings = four_replicas();
  settings.asks = true;
  ModeChoice choice(settings, std::make_unique<ScoringChooser>());
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  EXPECT_EQ(next_of(choice, {}, at(1)), "");
  const auto question = choice.take_question();
  ASSERT_TRUE(question.has_value());
  EXPECT_EQ(to_text(question->mode), "x:2");
  EXPECT_DOUBLE_EQ(question->gain, 0.5);
}

TEST(ModeChoice, TheReasonNamesTheKappaOfTheScores) {
  ModeChoice choice(four_replicas(), std::make_unique<ScoringChooser>());
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  const auto next = choice.next({}, at(1));
  ASSERT_TRUE(next.ok() && next.value().has_value());
  EXPECT_EQ(next.value()->reason, "it is faster; kappa 0.50");
}

TEST(ModeChoiceGate, AnOpenGateLetsTheModeThatWasAskedForPassAtOnce) {
  Gated gated;
  ModeChoice& choice = *gated.choice;
  gated.script.answer = mode_of("asynchronous");
  EXPECT_EQ(next_of(choice, {}, at(1)), "");
  choice.set_gate(true);
  // Also if the chooser speaks only of changes, and has spoken already.
  gated.script.answer = {};
  EXPECT_EQ(next_of(choice, {}, at(1.2)), "asynchronous");
  EXPECT_FALSE(choice.take_question().has_value());
  // From then on the chooser decides as without a gate.
  gated.script.answer = mode_of("x:3");
  EXPECT_EQ(next_of(choice, mode_of("asynchronous"), at(2.2)), "x:3");
  gated.script.answer = {};
  EXPECT_EQ(next_of(choice, mode_of("x:3"), at(3.2)), "synchronous");
}

TEST(ModeChoiceGate, WhenItClosesTheModeIsSynchronousAgain) {
  Gated gated;
  ModeChoice& choice = *gated.choice;
  choice.set_gate(true);
  gated.script.answer = mode_of("x:3");
  EXPECT_EQ(next_of(choice, {}, at(1)), "x:3");
  choice.set_gate(false);
  const auto back = choice.next(mode_of("x:3"), at(1.1));
  ASSERT_TRUE(back.ok() && back.value().has_value());
  EXPECT_EQ(to_text(back.value()->mode), "synchronous");
  EXPECT_EQ(back.value()->reason, "synchronous: the job may not take more of its host any longer");
  // It asks again, and the same answer twice changes nothing.
  EXPECT_EQ(next_of(choice, {}, at(2.1)), "");
  EXPECT_TRUE(choice.take_question().has_value());
  choice.set_gate(false);
  EXPECT_EQ(next_of(choice, {}, at(2.2)), "");
  EXPECT_FALSE(choice.take_question().has_value());
}

TEST(ModeChoiceGate, AWantedModePasses) {
  Gated gated;
  ModeChoice& choice = *gated.choice;
  ASSERT_TRUE(choice.want(mode_of("asynchronous")).ok());
  EXPECT_EQ(next_of(choice, {}, at(0.1)), "asynchronous");
  EXPECT_EQ(next_of(choice, mode_of("asynchronous"), at(1.1)), "");
  EXPECT_FALSE(choice.take_question().has_value());
  // Without the wish the job has to ask for it.
  ASSERT_TRUE(choice.want(std::nullopt).ok());
  EXPECT_EQ(next_of(choice, mode_of("asynchronous"), at(1.2)), "synchronous");
}

TEST(ModeChoiceGate, WithoutAChooserNothingIsAsked) {
  ModeChoiceSettings settings = four_replicas();
  settings.asks = true;
  ModeChoice choice(settings, nullptr);
  EXPECT_EQ(next_of(choice, mode_of("asynchronous"), at(0)), "");
  EXPECT_EQ(next_of(choice, mode_of("asynchronous"), at(1)), "");
  EXPECT_FALSE(choice.take_question().has_value());
}

TEST(ModeChoiceGate, AJobThatDoesNotShareItsHostHasNone) {
  ScriptedChooser::Script script;
  ModeChoice choice(four_replicas(), std::make_unique<ScriptedChooser>(script));
  choice.set_gate(false);
  EXPECT_EQ(next_of(choice, {}, at(0)), "");
  script.answer = mode_of("asynchronous");
  EXPECT_EQ(next_of(choice, {}, at(1)), "asynchronous");
}

}  // namespace
}  // namespace tenuto::servers
