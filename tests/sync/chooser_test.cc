// Choosers behind one face, recorded decisions, and what a learned chooser is worth.
#include "sync/chooser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "sync/chooser_errors.h"
#include "sync/decision_record.h"
#include "sync/heuristic.h"
#include "sync/progress.h"
#include "sync/trial.h"

namespace tenuto {
namespace {

// Decisions of drawn clusters; other seeds are other clusters.
std::vector<DecisionRecord> drawn(int32_t replicas, uint64_t first_seed, int count) {
  std::vector<DecisionRecord> records;
  for (int i = 0; i < count; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    for (DecisionRecord& one : record_decisions(draw_scenario(replicas, seed), seed, 1, 0.3)) {
      records.push_back(std::move(one));
    }
  }
  return records;
}

// Iterations that take 80 and 120 ms in turn: half of the replicas is slow in each round, and none
// on average.
ChooseInput in_turn(const SyncMode& current) {
  ChooseInput input;
  const IterationTime low{from_milliseconds(60), from_milliseconds(20)};
  const IterationTime high{from_milliseconds(100), from_milliseconds(20)};
  for (int32_t replica = 0; replica < 8; ++replica) {
    if (replica % 2 == 0) {
      input.samples.push_back({low, high});
    } else {
      input.samples.push_back({high, low});
    }
  }
  input.kappa = 0;
  input.current = current;
  return input;
}

// Without weights, so that its promises are the estimates.
ChooserModel plain_model(const Gain& held_out_gain) {
  ChooserModel model;
  model.replicas = 8;
  model.held_out = held_out_gain;
  return model;
}

ChooserModel random_model(uint64_t seed) {
  Random random(seed);
  ChooserModel model = plain_model({});
  for (KindWeights& kind : model.kinds) {
    for (double& weight : kind.rate) weight = 0.2 * (random.uniform() - 0.5);
    for (double& weight : kind.age) weight = 0.2 * (random.uniform() - 0.5);
  }
  return model;
}

constexpr Gain kSure{20, 0.5, 0.01}, kUnsure{20, 0.01, 0.01};

TEST(DecisionRecord, HasWhatEachModeAchieved) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const SyncScenario scenario = draw_scenario(4, seed);
    const auto records = record_decisions(scenario, seed, 2, 0.3);
    ASSERT_EQ(records.size(), 2u);
    for (const DecisionRecord& record : records) {
      ASSERT_EQ(record.input.samples.size(), 4u);
      for (const auto& own : record.input.samples) {
        EXPECT_GE(own.size(), 1u);
        EXPECT_LE(own.size(), kKeptSamples);
      }
      const auto modes = modes_to_compare(record.input);
      ASSERT_TRUE(modes.ok());
      ASSERT_GE(record.achieved.size(), modes.value().size());
      EXPECT_LE(record.achieved.size(), modes.value().size() + 1);  // the heuristic's mode
      for (size_t i = 0; i < modes.value().size(); ++i) {
        EXPECT_EQ(record.achieved[i].mode, modes.value()[i]);
        EXPECT_EQ(record.achieved[i].score, progress_of(record.achieved[i].measure, 4, 0.3));
      }
    }
    // The same again, and otherwise with another seed.
    const auto again = record_decisions(scenario, seed, 2, 0.3);
    const auto other = record_decisions(scenario, seed + 100, 2, 0.3);
    EXPECT_EQ(records[1].achieved[0].score, again[1].achieved[0].score);
    EXPECT_NE(records[1].achieved[0].score, other[1].achieved[0].score);
  }
}

// Samples are from before the moment of a decision, and the run after it goes on from there:
// replica 0 is slow from 5 s on.
TEST(DecisionRecord, GoesOnAtItsMoment) {
  SyncScenario scenario = *find_sync_scenario("none");
  scenario.replicas = 2;
  scenario.phases = {{from_milliseconds(5000), {}}, {from_milliseconds(600'000), {{0, 1, 31}}}};
  // Before 5 s both take about 100 ms; afterwards replica 0 takes 700 ms.
  const DecisionRecord before = record_decision(scenario, 1, from_milliseconds(4900), 0.3);
  const DecisionRecord after = record_decision(scenario, 1, from_milliseconds(60'000), 0.3);
  ASSERT_EQ(before.achieved[0].mode, SyncMode{});
  EXPECT_LT(to_milliseconds(before.input.samples[0].back().transfer), 100);
  EXPECT_GT(to_milliseconds(after.input.samples[0].back().transfer), 300);
  EXPECT_NEAR(before.achieved[0].measure.gradients_per_second, 2 / 0.7, 1);
  EXPECT_NEAR(after.achieved[0].measure.gradients_per_second, 2 / 0.7, 1);
}

TEST(ChooserModel, TrainingIsAFunctionOfItsArguments) {
  const std::vector<DecisionRecord> training = drawn(4, 1000, 8), held_out = drawn(4, 2000, 4);
  const ChooserModel model = train_chooser(training, held_out);
  EXPECT_EQ(train_chooser(training, held_out), model);
  EXPECT_NE(train_chooser(std::span(training).first(6), held_out).kinds, model.kinds);
  EXPECT_EQ(train_chooser(training, {}).kinds, model.kinds);
  EXPECT_EQ(train_chooser(training, {}).held_out, Gain{});
  EXPECT_EQ(model.replicas, 4);
  EXPECT_EQ(model.held_out.outcomes, 4);
}

// On clusters that it was not trained on, the model is less wrong than a constant, and than the
// heuristic on the modes which that knows; so it is surely better.
TEST(ChooserModel, AConstantLoses) {
  const std::vector<DecisionRecord> training = drawn(8, 1000, 36), held_out = drawn(8, 2000, 24);
  const ChooserModel model = train_chooser(training, held_out);
  std::vector<ChooserErrors> all;
  const auto add = [&](const std::string& name, const Choose& choose) {
    auto errors = chooser_errors(name, choose, held_out);
    ASSERT_TRUE(errors.ok()) << errors.error().message;
    all.push_back(std::move(errors).value());
  };
  add("constant", constant_chooser(training));
  add("heuristic", choose_as_published);
  add("learned", [&](const ChooseInput& input) { return choose_by_model(model, input); });
  ASSERT_EQ(all.size(), 3u);
  const ChooserErrors &constant = all[0], &heuristic = all[1], &learned = all[2];
  EXPECT_EQ(learned.promises, constant.promises);
  EXPECT_LT(learned.error, constant.error) << chooser_table(all);
  const auto mean = [](const ChooserErrors& of) {
    return of.known_error / static_cast<double>(of.known_promises);
  };
  EXPECT_LT(mean(learned), mean(heuristic)) << chooser_table(all);
  EXPECT_TRUE(surely_above_zero(model.held_out)) << to_text(model);
}

// Eight times longer times make an eighth of the rate, and gradients of the same age.
TEST(ChooserModel, ScalesWithTheTimes) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const ChooserModel model = random_model(seed);
    ChooseInput fast, slow;
    for (int32_t replica = 0; replica < 8; ++replica) {
      const double ms = 50 + 200 * random.uniform();
      const IterationTime time{from_milliseconds(ms), from_milliseconds(ms / 4)};
      fast.samples.push_back({time});
      slow.samples.push_back({{8 * time.compute, 8 * time.transfer}});
    }
    fast.apply = from_milliseconds(5);
    slow.apply = 8 * fast.apply;
    fast.micros = slow.micros = 16;
    const auto modes = modes_to_compare(fast), longer = modes_to_compare(slow);
    ASSERT_TRUE(modes.ok() && longer.ok());
    ASSERT_EQ(modes.value().size(), longer.value().size());
    for (size_t i = 0; i < modes.value().size(); ++i) {
      const SyncMeasure one = promise_of(model, fast, modes.value()[i]);
      const SyncMeasure eight = promise_of(model, slow, longer.value()[i]);
      const double rate = one.gradients_per_second;
      EXPECT_NEAR(eight.gradients_per_second, rate / 8, 1e-5 * rate);
      EXPECT_NEAR(eight.mean_age, one.mean_age, 1e-5);
      EXPECT_GE(one.mean_age, 0);
      EXPECT_LE(one.mean_age, 8);
    }
  }
}

// However wild the weights are, a rate is at most doubled or halved, and W gradients are under way.
TEST(ChooserModel, CorrectionsHaveALimit) {
  const ChooseInput input = in_turn({});
  const ChooserModel plain = plain_model(kSure);
  ChooserModel high = plain, low = plain;
  for (size_t kind = 0; kind < kSyncKinds; ++kind) {
    high.kinds[kind].rate.back() = high.kinds[kind].age.back() = 1000;
    low.kinds[kind].rate.back() = low.kinds[kind].age.back() = -1000;
  }
  const auto modes = modes_to_compare(input);
  ASSERT_TRUE(modes.ok());
  for (const SyncMode& mode : modes.value()) {
    const double rate = promise_of(plain, input, mode).gradients_per_second;
    const SyncMeasure most = promise_of(high, input, mode), least = promise_of(low, input, mode);
    EXPECT_NEAR(most.gradients_per_second, 2 * rate, 1e-9 * rate);
    EXPECT_NEAR(least.gradients_per_second, rate / 2, 1e-9 * rate);
    EXPECT_EQ(most.mean_age, 8);
    EXPECT_EQ(least.mean_age, 0);
  }
}

TEST(ChooserModel, RefusesAnotherNumberOfReplicas) {
  ChooseInput input = in_turn({});
  EXPECT_TRUE(choose_by_model(plain_model(kSure), input).ok());
  input.samples.pop_back();
  EXPECT_EQ(choose_by_model(plain_model(kSure), input).error().message,
            "the chooser was trained for 8 replicas: expected as many, found 7; train one for this "
            "number");
  input = in_turn({});
  input.current.kind = SyncKind::Groups;  // not formed
  EXPECT_FALSE(choose_by_model(plain_model(kSure), input).ok());
  input.samples.clear();
  EXPECT_EQ(choose_by_model(plain_model(kSure), input).error().message,
            "a choice of the sync mode needs replicas, found none");
}

TEST(Chooser, AllBeginAsTheySay) {
  const std::vector<IterationTime> equal(8, {from_milliseconds(80), from_milliseconds(20)});
  const SyncMode half = first_mode(equal, kPlainKappa);
  EXPECT_EQ(half.kind, SyncKind::Grace);
  EXPECT_EQ(half.count, 4);
  EXPECT_EQ(look_ahead_chooser()->first(equal, kPlainKappa), half);
  EXPECT_EQ(published_chooser()->first(equal, kPlainKappa), SyncMode{});
  EXPECT_EQ(learned_chooser(plain_model(kSure))->first(equal, kPlainKappa), half);
  EXPECT_EQ(learned_chooser(plain_model(kUnsure))->first(equal, kPlainKappa), SyncMode{});
  // Where age costs much, all begin synchronous.
  EXPECT_EQ(look_ahead_chooser()->first(equal, kDearAge), SyncMode{});
  EXPECT_EQ(learned_chooser(plain_model(kSure))->first(equal, kDearAge), SyncMode{});
}

TEST(Chooser, PublishedChoosesWhenTheStragglersChange) {
  ChooseInput input = in_turn({});
  input.current = sync_mode_from_text("x:4").value();
  const auto chooser = published_chooser();
  // Nobody straggles on average, and nobody did before: the mode in force stays.
  EXPECT_EQ(chooser->choose(input).value().mode, input.current);
  input.samples[7] = {{from_milliseconds(400), from_milliseconds(100)}};
  const SyncMode chosen = choose_as_published(input).value().mode;
  ASSERT_NE(chosen, input.current);
  EXPECT_EQ(chooser->choose(input).value().mode, chosen);
  const auto again = chooser->choose(input);
  EXPECT_EQ(again.value().mode, input.current);
  EXPECT_EQ(again.value().reason, "x:4 stays: the same replicas straggle as before");
}

// The heuristic promises of the modes that it knows, and of no other ones.
TEST(Chooser, PublishedPromises) {
  const ChooseInput input = in_turn({});
  const std::vector<IterationTime> means = means_of(input.samples);
  const auto choice = choose_as_published(input);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice.value().mode, SyncMode{});
  EXPECT_EQ(choice.value().reason,
            "synchronous: by the published formula, with 0 of 8 replicas that straggle");
  EXPECT_EQ(choice.value().alternatives.size(), 8u);  // x:1, as asynchronous, to x:8, synchronous
  for (const SyncAlternative& one : choice.value().alternatives) {
    const int32_t count = one.mode.kind == SyncKind::Asynchronous  ? 1
                          : one.mode.kind == SyncKind::Synchronous ? 8
                                                                   : one.mode.count;
    const double rate = count * 1000 / published_interval(means, count);
    EXPECT_NEAR(one.measure.gradients_per_second, rate, 1e-9);
    EXPECT_EQ(one.measure.mean_age, (16 - count - 1) / 2.0);
  }
  EXPECT_FALSE(published_promise(sync_mode_from_text("bounded:3").value(), means));
  EXPECT_FALSE(published_promise(sync_mode_from_text("grace:4").value(), means));
}

// The model leads if it was surely better before; it stops when its promises are surely worse than
// the heuristic's in this run, and leads again when they are not.
TEST(Chooser, LearnedTakesOverAndHandsBack) {
  const ChooseInput input = in_turn({});
  const auto by_model = choose_by_model(plain_model(kSure), input);
  ASSERT_TRUE(by_model.ok());
  EXPECT_EQ(by_model.value().mode.kind, SyncKind::Count) << by_model.value().reason;
  const std::vector<IterationTime> means = means_of(input.samples);

  const auto unsure = learned_chooser(plain_model(kUnsure));
  EXPECT_EQ(unsure->choose(input).value().mode, SyncMode{});

  const auto chooser = learned_chooser(plain_model(kSure));
  for (int64_t i = 0; i < kLeastOutcomes; ++i) {
    const SyncMode mode = chooser->choose(input).value().mode;
    ASSERT_EQ(mode, by_model.value().mode) << i;
    chooser->achieved(published_promise(mode, means)->gradients_per_second);
    chooser->achieved(1);  // no promise is open any more: not counted
  }
  SyncMode mode = chooser->choose(input).value().mode;
  EXPECT_EQ(mode, SyncMode{});  // the heuristic's
  const double right = promise_of(plain_model(kSure), input, mode).gradients_per_second;
  ASSERT_GT(std::abs(std::log(published_promise(mode, means)->gradients_per_second / right)), 0.1);
  for (int i = 0; i < 100 && mode == SyncMode{}; ++i) {
    chooser->achieved(right);
    mode = chooser->choose(input).value().mode;
  }
  EXPECT_EQ(mode, by_model.value().mode);
}

TEST(ChooserErrors, Table) {
  ChooserErrors constant, heuristic, learned;
  constant.name = "constant";
  constant.promises = 4;
  constant.error = 4 * std::log(1.5);
  constant.known_promises = 2;
  constant.known_error = 2 * std::log(1.25);
  constant.choices = 2;
  constant.progress = 1.5;
  constant.least_progress = 0.5;
  heuristic.name = "heuristic";
  heuristic.promises = heuristic.known_promises = 2;
  heuristic.error = heuristic.known_error = 2 * std::log(2);
  learned = constant;
  learned.name = "learned";
  learned.error = 4 * std::log(1.1);
  const std::string rows =
      "chooser     all modes  x:K modes  progress    least\n"
      "constant        1.50x      1.25x    75.0 %   50.0 %\n"
      "heuristic           -      2.00x         -        -\n"
      "learned         1.10x      1.25x    75.0 %   50.0 %\n";
  EXPECT_EQ(chooser_table({constant, heuristic, learned}),
            rows +
                "a constant must lose: it does not against heuristic\n"
                "the least error over all modes: learned\n");
  heuristic.error = heuristic.known_error = 2 * std::log(1.125);
  const std::string text = chooser_table({constant, heuristic, learned});
  EXPECT_NE(text.find("a constant must lose: it does, against each of the others\n"),
            std::string::npos)
      << text;
}

// A chooser that promises twice of what each mode then achieves, and takes the worst one.
TEST(ChooserErrors, ByHand) {
  const std::vector<DecisionRecord> one = drawn(4, 1000, 1);
  const DecisionRecord& record = one.front();
  const Choose choose = [&](const ChooseInput&) -> Result<SyncChoice> {
    SyncChoice choice;
    choice.alternatives = record.achieved;
    const auto worst = std::min_element(
        record.achieved.begin(), record.achieved.end(),
        [](const auto& left, const auto& right) { return left.score < right.score; });
    choice.mode = worst->mode;
    for (SyncAlternative& of : choice.alternatives) of.score *= 2;
    return choice;
  };
  const auto errors = chooser_errors("twice", choose, one);
  ASSERT_TRUE(errors.ok());
  EXPECT_EQ(errors.value().promises, std::ssize(record.achieved));
  EXPECT_NEAR(errors.value().error, std::log(2.0) * static_cast<double>(record.achieved.size()),
              1e-9);
  EXPECT_EQ(errors.value().choices, 1);
  EXPECT_EQ(errors.value().progress, errors.value().least_progress);
  EXPECT_LT(errors.value().progress, 1);
  EXPECT_GT(errors.value().progress, 0);
}

TEST(Chooser, LearnedTrainsInATrial) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario("slow-link");
  setting.policy = SyncPolicy::Learned;
  setting.chooser = plain_model(kSure);
  const auto learned = run_trial(setting);
  ASSERT_TRUE(learned.ok()) << learned.error().message;
  ASSERT_TRUE(learned.value().reached);
  setting.policy = SyncPolicy::Fixed;
  const auto synchronous = run_trial(setting);
  ASSERT_TRUE(synchronous.ok() && synchronous.value().reached);
  EXPECT_LT(*learned.value().reached * 3, *synchronous.value().reached * 2);
}

TEST(Chooser, TrialsNeedTheirOwn) {
  TrialSetting setting;
  setting.scenario = *find_sync_scenario("four-slow-link");
  setting.policy = SyncPolicy::Learned;
  EXPECT_EQ(run_trial(setting).error().message,
            "a trial of the learned chooser needs one, found none");
  setting.chooser = plain_model(kSure);
  EXPECT_EQ(run_trial(setting).error().message,
            "a trial of 4 replicas needs a chooser for as many, found one for 8");
}

}  // namespace
}  // namespace tenuto
