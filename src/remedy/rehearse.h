// Runs through troubles of known durations with the decisions that a run would make, and with the
// best ones in hindsight: on prices alone, without workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "ir/plan.h"
#include "remedy/choose_remedy.h"
#include "remedy/outlay.h"
#include "world/cluster.h"
#include "world/model.h"

namespace tenuto {

// A state of the cluster, and for how many steps it lasts. The next state begins after it.
struct Episode {
  Cluster cluster;
  int64_t steps = 0;
};

// What is run through.
struct Rehearsal {
  Plan plan;  // of the cluster when all are well
  Model model;
  Cluster healthy;
  std::vector<Episode> episodes;
  bool order = true;    // the order of ops may change, and what the next two allow
  bool routes = false;  // as RemedyTerms
  bool layers = false;
  // From the begin of an episode to the first step of another plan: until a change is certain, the
  // plan is computed, and no worker can have begun a step. A dead worker is left out at once. A
  // worker that comes back first receives its state, as layers that move do (outlay.h). If the next
  // episode begins meanwhile, a plan for this one still comes into force in its turn. Layers that
  // move arrive, and only then a run decides about the next episode.
  int64_t reaction_steps = kStepsOfAReaction;
};

// Steps [first, end) under one plan in one state of the cluster.
struct RehearsedSteps {
  int64_t first = 0, end = 0;
  Duration step{};    // each of them
  Duration change{};  // what it cost to come to this plan, once
  Plan plan;
  std::string remedy;  // the name of the alternative that was chosen
  std::string reason;
};

// What happened, or would have.
struct Rehearsed {
  std::vector<RehearsedSteps> parts;  // in turn
  double total_ms = 0;
};

// Decides as a run does: choose_remedy() when the cluster has changed, again once a change that
// does not pay yet would pay, and back to the plan of a healthy cluster where no layer has moved. A
// link is measured only while it carries messages; otherwise the decision takes it as it was
// before.
//
// Errors: as choose_remedy(); Invalid/Call for a duration below one step
Result<Rehearsed> rehearse(const Rehearsal& rehearsal);

// The fastest way in hindsight: of the sequences of plans that decisions could choose from if they
// knew how long each trouble lasts, and of what rehearse() does. They react as late as that.
//
// Errors: as rehearse()
Result<Rehearsed> best_in_hindsight(const Rehearsal& rehearsal);

}  // namespace tenuto
