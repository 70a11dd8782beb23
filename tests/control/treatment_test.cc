// What is done about troubles: its names, and that what a user asks for outlives the coordinator.
#include "control/treatment.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "control/planning.h"
#include "control/query.h"
#include "control/replan.h"
#include "control/survival.h"
#include "control/take_up.h"

namespace tenuto {
namespace {

TEST(Treatment, HasANameForEachValueOfItsKey) {
  int named = 0;
  for (const TreatmentKey key : kTreatmentKeys) {
    for (const char* name : {"off", "observe", "adapt", "act"}) {
      const std::optional<Treatment> how = treatment_from(key, name);
      if (!how) continue;
      EXPECT_STREQ(name_of(key, *how), name);
      ++named;
    }
  }
  EXPECT_EQ(named, 11);
  EXPECT_FALSE(treatment_from(TreatmentKey::Mode, "adapt"));
  EXPECT_FALSE(treatment_from(TreatmentKey::SlowLinks, "act"));
  EXPECT_FALSE(treatment_from(TreatmentKey::SlowWorkers, "off"));
  EXPECT_EQ(setting_text(TreatmentKey::Mode, Treatment::Adapt), "resilience.mode is \"act\"");
}

TEST(Treatment, IsReadFromTheJob) {
  ResilienceSettings settings;
  settings.mode = "observe";
  settings.slow_links = "off";
  settings.slow_workers = "adapt";
  settings.layers = "observe";
  const Treatments expected = {Treatment::Observe, Treatment::Off, Treatment::Adapt,
                               Treatment::Observe};
  EXPECT_EQ(treatments_of(settings), expected);
}

// A store that was written before treatments were kept leaves those of the job.
TEST(Treatment, IsTheSameUnderTheNextCoordinator) {
  Survival run;
  const Treatments asked = {Treatment::Observe, Treatment::Off, Treatment::Adapt,
                            Treatment::Observe};
  for (const TreatmentKey key : kTreatmentKeys) run.hear(request_for(key, asked.of(key)));
  EXPECT_EQ(run.state.planning.treatments, asked);
  Rules rules = run.state.rules;
  rules.term = 2;
  const auto plan = run.state.planning.present;
  Facts facts = facts_of(run.state);
  ASSERT_TRUE(facts.begun);
  EXPECT_EQ(take_up(rules, facts, {plan, plan}, run.now).planning.treatments, asked);
  facts.begun = false;
  EXPECT_EQ(take_up_beginning(rules, facts, run.now).planning.treatments, asked);
  facts.treatments.reset();
  EXPECT_EQ(take_up_beginning(rules, facts, run.now).planning.treatments, rules.treatments);
}

// Layers that may not move: what may be done is done, and what their moves would gain is told.
TEST(Treatment, ABetterMoveIsToldAndTheRestIsDone) {
  Rules rules = surviving_rules();
  rules.treatments = {Treatment::Adapt, Treatment::Adapt, Treatment::Adapt, Treatment::Observe};
  Survival run(rules);
  const PlanRequest question = question_of(run.state, rules.plan, true);
  EXPECT_TRUE(question.terms.layers);
  EXPECT_TRUE(question.terms.only_observes_layers);
  run.state.planning.request = 1;
  run.state.planning.answered = false;
  Planned planned{1, rules.plan, "it is faster"};
  planned.observed = "a move is faster still";
  const DecisionPart part = take_planned(run.state, planned);
  EXPECT_EQ(part.reason,
            "resilience.layers is \"observe\", so no layer moves; a move is faster still; plan 2 "
            "(1f1b) is proposed: it is faster");
}

}  // namespace
}  // namespace tenuto
