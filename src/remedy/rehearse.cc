#include "remedy/rehearse.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "adapt/layers.h"
#include "base/text.h"
#include "plan/routed.h"
#include "remedy/outlay.h"
#include "remedy/trouble_log.h"
#include "sim/price.h"

namespace tenuto {
namespace {

using SharedPlan = std::shared_ptr<const Plan>;

// After a move of layers: until the next plan is in force.
constexpr int64_t kStepsOfAPlan = 4;
// A state of the cluster that lasts for fewer steps goes unnoticed.
constexpr int64_t kStepsToSee = 2;
// The name of the steps in which workers that have come back receive their state.
constexpr const char* kReceives = "a worker receives the state";

// The name of the steps after the begin of an episode, until a decision; `came`: workers have come
// back in it.
const char* name_of_reaction(bool came) {
  return came ? "the plan with the workers that have come back" : "the present plan";
}

bool hold_the_same(const Plan& a, const Plan& b) { return a.stages == b.stages; }

std::vector<bool> alive_in(const Cluster& cluster) {
  std::vector<bool> alive;
  for (const Worker& worker : cluster.workers) alive.push_back(worker.alive);
  return alive;
}

// How workers come back: for some steps they receive their state, then a plan with them comes into
// force.
struct Arrival {
  SharedPlan plan;    // null: nobody has come back
  int64_t steps = 0;  // under the plan before
  Duration cost{};    // of the state, once
};

// A rehearsal under way.
class Stager {
 public:
  explicit Stager(const Rehearsal& rehearsal)
      : it_(rehearsal),
        home_(std::make_shared<const Plan>(rehearsal.plan)),
        healthy_(std::make_shared<const Cluster>(rehearsal.healthy)) {
    for (const Episode& episode : it_.episodes) all_ += episode.steps;
  }

  const SharedPlan& home() const { return home_; }

  // The plan that is in force when an episode begins, under `plan` so far: without the dead.
  Result<SharedPlan> starting(const SharedPlan& plan, const Cluster& now) const {
    const std::vector<bool> alive = alive_in(now);
    bool has_dead = false;
    for (size_t w = 0; w < alive.size(); ++w) {
      const WorkerId worker{static_cast<int32_t>(w)};
      has_dead = has_dead || (!alive[w] && !stages_of(plan->stages, worker).empty());
    }
    if (!has_dead) return plan;
    auto without = without_workers(*plan, alive);
    if (!without.ok()) return without.error();
    return std::make_shared<const Plan>(std::move(without).value());
  }

  // How the workers come back that live in the episode and have no place in `plan`, which has no
  // dead one: to their places in the first plan.
  Result<Arrival> arrival(const SharedPlan& plan, size_t episode) const {
    const Episode& now = it_.episodes[episode];
    const std::vector<bool> alive = alive_in(now.cluster);
    bool misses = false;
    for (size_t w = 0; w < alive.size(); ++w) {
      const WorkerId worker{static_cast<int32_t>(w)};
      misses = misses || (alive[w] && stages_of(plan->stages, worker).empty() &&
                          !stages_of(home_->stages, worker).empty());
    }
    if (!misses) return Arrival{};
    auto with = without_workers(*home_, alive);
    if (!with.ok()) return with.error();
    Arrival arrival{std::make_shared<const Plan>(std::move(with).value()),
                    std::min(kStepsOfAMove, now.steps),
                    {}};
    arrival.cost = cost_of_moves(joins_between(plan->stages, arrival.plan->stages), *plan,
                                 it_.model, now.cluster);
    return arrival;
  }

  // Steps that pass under the old plan, however long the episode is.
  int64_t reaction(size_t episode) const {
    const std::vector<Worker>& now = it_.episodes[episode].cluster.workers;
    const std::vector<Worker>& before =
        episode == 0 ? it_.healthy.workers : it_.episodes[episode - 1].cluster.workers;
    for (size_t w = 0; w < now.size(); ++w) {
      if (before[w].alive && !now[w].alive) return 0;
    }
    return it_.reaction_steps;
  }

  RemedyTerms terms(size_t episode, int64_t begun) const {
    RemedyTerms terms;
    const std::vector<Worker>& workers = it_.episodes[episode].cluster.workers;
    const bool reduced = std::any_of(workers.begin(), workers.end(),
                                     [](const Worker& worker) { return !worker.alive; });
    terms.routes = it_.routes || reduced;
    terms.layers = it_.layers;
    terms.left = all_ - begun;
    terms.home = home_;
    terms.healthy = healthy_;
    return terms;
  }

  // True when a run goes back to its first plan: all are well, and no layer is elsewhere.
  bool goes_home(const Plan& plan, size_t episode) const {
    return same_situation(it_.healthy, it_.episodes[episode].cluster) &&
           hold_the_same(plan, *home_);
  }

  // The time of a step in an episode.
  Result<Duration> step(const SharedPlan& plan, size_t episode) {
    const auto known = steps_.find({plan.get(), episode});
    if (known != steps_.end()) return known->second;
    const auto step = whole_step_time(*plan, it_.model, it_.episodes[episode].cluster);
    if (!step.ok()) return step;
    kept_.push_back(plan);
    steps_[{plan.get(), episode}] = step.value();
    return step;
  }

  // What it costs to come from one plan to another.
  Duration change(const Plan& from, const Plan& to, const Cluster& now) const {
    if (hold_the_same(from, to)) return {};
    return cost_of_moves(moves_between(from.stages, to.stages), from, it_.model, now);
  }

 private:
  const Rehearsal& it_;
  SharedPlan home_;
  std::shared_ptr<const Cluster> healthy_;
  int64_t all_ = 0;  // steps
  std::map<std::pair<const Plan*, size_t>, Duration> steps_;
  std::vector<SharedPlan> kept_;  // so that no pointer in steps_ is used again
};

// Adds steps under one plan, if there are any.
void add_part(Rehearsed& all, RehearsedSteps part) {
  const int64_t steps = part.end - part.first;
  if (steps == 0) return;
  all.total_ms +=
      to_milliseconds(part.change) + static_cast<double>(steps) * to_milliseconds(part.step);
  all.parts.push_back(std::move(part));
}

Status check_episodes(const Rehearsal& rehearsal) {
  for (size_t e = 0; e < rehearsal.episodes.size(); ++e) {
    if (rehearsal.episodes[e].steps > 0) continue;
    return Error{Code::Invalid, Reach::Call,
                 cat("state ", e, " of the cluster lasts for ", rehearsal.episodes[e].steps,
                     " steps: expected at least 1")};
  }
  return ok();
}

// What a run does in a state of the cluster.
struct Decided {
  SharedPlan plan;
  std::vector<LayerMove> moves;
  Duration change{};  // what it costs, once
  int64_t pays_after = -1;
  std::string remedy = "the present plan", reason;
};

// A plan that comes into force in a later state of the cluster than the one that it was made for.
struct Coming {
  int64_t step = 0;  // its first one
  SharedPlan plan;
  std::string remedy, reason;
};

// The decisions of a run.
class Run {
 public:
  explicit Run(const Rehearsal& rehearsal)
      : it_(rehearsal), stager_(rehearsal), plan_(stager_.home()) {}

  Result<Rehearsed> all() {
    for (size_t e = 0; e < it_.episodes.size(); ++e) {
      if (const Status done = episode(e); !done.ok()) return done.error();
    }
    return std::move(result_);
  }

 private:
  Status episode(size_t e) {
    const Episode& now = it_.episodes[e];
    const SharedPlan before = plan_;
    auto starting = stager_.starting(plan_, now.cluster);
    if (!starting.ok()) return starting.error();
    plan_ = std::move(starting).value();
    log_.note(it_.healthy, now.cluster, begun_);
    int64_t lasted = 0;
    if (const Status come = take_in(e, lasted); !come.ok()) return come;
    if (plan_ != before || lasted > 0) coming_.clear();  // made for other workers
    if (const Status reacted = react(e, lasted); !reacted.ok()) return reacted;
    if (lasted < now.steps) coming_.clear();  // this decision replaces earlier ones
    while (lasted < now.steps) {
      auto decided = decide(e);
      if (!decided.ok()) return decided.error();
      const Decided& choice = decided.value();
      int64_t until = now.steps;
      if (choice.pays_after > lasted) until = std::min(until, choice.pays_after);
      if (!choice.moves.empty()) {
        // Meanwhile the receivers run nothing; and from the new places other changes may pay.
        const int64_t moving = std::min(kStepsOfAMove, now.steps - lasted);
        const Status gone = go(e, moving, {}, "layers move", choice.reason);
        if (!gone.ok()) return gone;
        lasted += moving;
        until = std::min(until, lasted + kStepsOfAPlan);
      }
      plan_ = choice.plan;
      const Status gone = go(e, until - lasted, choice.change, choice.remedy, choice.reason);
      if (!gone.ok()) return gone;
      lasted = until;
    }
    return ok();
  }

  // Makes the steps of the episode before a decision about it is in force. `lasted`: how many of
  // its steps are done. If the episode ends before, the decision comes into force in a later one.
  Status react(size_t e, int64_t& lasted) {
    const int64_t left = it_.episodes[e].steps - lasted;
    const int64_t reaction = stager_.reaction(e), from = begun_;
    const int64_t end = from + std::min(reaction, left);
    std::string remedy = name_of_reaction(lasted > 0), reason;
    std::optional<Coming> late;
    if (left < reaction && left >= kStepsToSee) {
      auto decided = decide(e);
      if (!decided.ok()) return decided.error();
      Decided& choice = decided.value();
      if (choice.moves.empty() && choice.plan != plan_) {
        late = Coming{from + reaction, choice.plan, choice.remedy, choice.reason};
      }
    }
    while (!coming_.empty() && coming_.front().step < end) {
      const Coming next = std::move(coming_.front());
      coming_.pop_front();
      const Status gone = go(e, next.step - begun_, {}, remedy, reason);
      if (!gone.ok()) return gone;
      plan_ = next.plan;
      remedy = next.remedy;
      reason = next.reason;
    }
    if (const Status gone = go(e, end - begun_, {}, remedy, reason); !gone.ok()) return gone;
    if (late) coming_.push_back(std::move(*late));
    lasted += end - from;
    return ok();
  }

  // The decision that a run makes in the episode.
  Result<Decided> decide(size_t e) const {
    Decided decided;
    decided.plan = plan_;
    if (!it_.order) return decided;  // no plan changes but for a death
    if (stager_.goes_home(*plan_, e)) {
      if (plan_ != stager_.home()) decided.remedy = "the plan of a healthy cluster";
      decided.plan = stager_.home();
      return decided;
    }
    RemedyTerms terms = stager_.terms(e, begun_);
    terms.troubles = log_.known(begun_);
    auto chosen = choose_remedy(*plan_, it_.model, it_.episodes[e].cluster, terms);
    if (!chosen.ok()) return chosen.error();
    RemedyChoice& choice = chosen.value();
    for (const Alternative& one : choice.alternatives) {
      if (!one.chosen) continue;
      decided.remedy = one.name;
      decided.change = one.change;
    }
    if (choice.plan) decided.plan = std::move(choice.plan);
    decided.moves = std::move(choice.moves);
    decided.pays_after = choice.pays_after;
    decided.reason = std::move(choice.reason);
    return decided;
  }

  // Gives workers that have come back their places; `lasted`: how many steps of the episode pass
  // meanwhile. If the episode ends before, they come in a later one.
  Status take_in(size_t e, int64_t& lasted) {
    auto found = stager_.arrival(plan_, e);
    if (!found.ok()) return found.error();
    const Arrival& arrival = found.value();
    if (arrival.plan == nullptr) return ok();
    lasted = arrival.steps;
    if (const Status gone = go(e, lasted, {}, kReceives, ""); !gone.ok()) return gone;
    if (lasted == it_.episodes[e].steps) return ok();
    plan_ = arrival.plan;
    owed_ = arrival.cost;
    return ok();
  }

  // Makes steps under the present plan.
  Status go(size_t e, int64_t steps, Duration change, const std::string& remedy,
            const std::string& reason) {
    if (steps == 0) return ok();
    const auto step = stager_.step(plan_, e);
    if (!step.ok()) return step.error();
    change += std::exchange(owed_, {});
    add_part(result_, {begun_, begun_ + steps, step.value(), change, *plan_, remedy, reason});
    begun_ += steps;
    return ok();
  }

  const Rehearsal& it_;
  Stager stager_;
  SharedPlan plan_;
  TroubleLog log_;
  int64_t begun_ = 0;
  Duration owed_{};            // what the next steps cost in addition, once
  std::deque<Coming> coming_;  // by step
  Rehearsed result_;
};

// A way through the episodes so far.
struct Way {
  SharedPlan plan;
  Rehearsed so_far;
  int64_t begun = 0;  // steps of the episode that is added next
  Duration owed{};    // what its next steps cost in addition, once
};

// A plan that a decision could choose.
struct Choice {
  SharedPlan plan;
  std::string remedy;
};

// How many ways are followed: those with the least totals.
constexpr size_t kMostWays = 24;
// From how many of them the alternatives of an episode are planned.
constexpr size_t kBases = 4;

void add_choice(std::vector<Choice>& choices, SharedPlan plan, const std::string& remedy) {
  const bool known = std::any_of(choices.begin(), choices.end(),
                                 [&](const Choice& one) { return *one.plan == *plan; });
  if (!known) choices.push_back({std::move(plan), remedy});
}

void keep_best(std::vector<Way>& ways) {
  std::stable_sort(ways.begin(), ways.end(), [](const Way& a, const Way& b) {
    return a.so_far.total_ms < b.so_far.total_ms;
  });
  std::vector<Way> kept;
  for (Way& way : ways) {
    const bool known = std::any_of(kept.begin(), kept.end(),
                                   [&](const Way& one) { return *one.plan == *way.plan; });
    if (!known && kept.size() < kMostWays) kept.push_back(std::move(way));
  }
  ways = std::move(kept);
}

// The ways through one more episode.
class Hindsight {
 public:
  explicit Hindsight(const Rehearsal& rehearsal)
      : it_(rehearsal), stager_(rehearsal), ways_({{stager_.home(), {}}}) {}

  Status add(size_t e) {
    const Episode& now = it_.episodes[e];
    for (Way& way : ways_) {
      auto starting = stager_.starting(way.plan, now.cluster);
      if (!starting.ok()) return starting.error();
      way.plan = std::move(starting).value();
      if (const Status come = take_in(way, e); !come.ok()) return come;
    }
    const auto home = stager_.starting(stager_.home(), now.cluster);
    if (!home.ok()) return home.error();
    const std::vector<Choice> choices = choices_in(e, home.value());
    std::vector<Way> next;
    for (const Way& way : ways_) {
      std::vector<Choice> all = choices;
      add_choice(all, way.plan, "the present plan");
      for (const Choice& choice : all) {
        if (auto longer = with(way, choice, e)) next.push_back(std::move(*longer));
      }
    }
    ways_ = std::move(next);
    keep_best(ways_);
    begun_ += now.steps;
    return ok();
  }

  const std::vector<Way>& ways() const { return ways_; }

 private:
  // Gives workers that have come back their places, as a run does.
  Status take_in(Way& way, size_t e) {
    way.begun = 0;
    auto found = stager_.arrival(way.plan, e);
    if (!found.ok()) return found.error();
    const Arrival& arrival = found.value();
    if (arrival.plan == nullptr) return ok();
    const auto step = stager_.step(way.plan, e);
    if (!step.ok()) return step.error();
    way.begun = arrival.steps;
    add_part(way.so_far, {begun_, begun_ + way.begun, step.value(), {}, *way.plan, kReceives, ""});
    if (way.begun == it_.episodes[e].steps) return ok();
    way.plan = arrival.plan;
    way.owed = arrival.cost;
    return ok();
  }

  // What decisions could choose from if they knew how long the episode lasts.
  std::vector<Choice> choices_in(size_t e, const SharedPlan& home) const {
    std::vector<Choice> bases, choices;
    add_choice(bases, home, "the plan of a healthy cluster");
    for (size_t i = 0; i < std::min(kBases, ways_.size()); ++i) {
      add_choice(bases, ways_[i].plan, "the present plan");
    }
    for (const Choice& base : bases) {
      add_choice(choices, base.plan, base.remedy);
      if (stager_.goes_home(*base.plan, e)) continue;
      RemedyTerms terms = stager_.terms(e, begun_);
      // As long as it does last, so that what pays is among the alternatives.
      TroubleLog log(begun_);
      log.note(it_.healthy, it_.episodes[e].cluster, begun_);
      terms.troubles = log.known(begun_ + it_.episodes[e].steps);
      const auto choice = choose_remedy(*base.plan, it_.model, it_.episodes[e].cluster, terms);
      if (!choice.ok()) continue;
      for (const Alternative& one : choice.value().alternatives) {
        add_choice(choices, one.plan, one.name);
      }
    }
    return choices;
  }

  // The way through the episode with this choice; nothing when it is impossible.
  std::optional<Way> with(const Way& way, const Choice& choice, size_t e) {
    const Episode& now = it_.episodes[e];
    const int64_t begun = begun_ + way.begun, left = now.steps - way.begun;
    if (left == 0) return *choice.plan == *way.plan ? std::optional(way) : std::nullopt;
    const auto before = stager_.step(way.plan, e);
    const auto after = stager_.step(choice.plan, e);
    if (!before.ok() || !after.ok() || !have_equal_counts(way.plan->stages, choice.plan->stages))
      return std::nullopt;
    if (stager_.goes_home(*choice.plan, e) && choice.plan != stager_.home()) return std::nullopt;
    Way longer{choice.plan, way.so_far};
    int64_t reaction = std::min(left, stager_.reaction(e));
    if (!hold_the_same(*way.plan, *choice.plan))
      reaction = std::min(left, reaction + kStepsOfAMove);
    const int64_t changed = begun + reaction, end = begun_ + now.steps;
    const Duration change = stager_.change(*way.plan, *choice.plan, now.cluster);
    add_part(longer.so_far, {begun, changed, before.value(), way.owed, *way.plan,
                             name_of_reaction(way.begun > 0), ""});
    add_part(longer.so_far,
             {changed, end, after.value(), change + (reaction == 0 ? way.owed : Duration{}),
              *choice.plan, choice.remedy, ""});
    return longer;
  }

  const Rehearsal& it_;
  Stager stager_;
  std::vector<Way> ways_;
  int64_t begun_ = 0;
};

}  // namespace

Result<Rehearsed> rehearse(const Rehearsal& rehearsal) {
  if (const Status right = check_episodes(rehearsal); !right.ok()) return right.error();
  return Run(rehearsal).all();
}

Result<Rehearsed> best_in_hindsight(const Rehearsal& rehearsal) {
  auto best = rehearse(rehearsal);
  if (!best.ok()) return best;
  Hindsight hindsight(rehearsal);
  for (size_t e = 0; e < rehearsal.episodes.size(); ++e) {
    if (const Status added = hindsight.add(e); !added.ok()) return added.error();
  }
  for (const Way& way : hindsight.ways()) {
    if (way.so_far.total_ms < best.value().total_ms) best = way.so_far;
  }
  return best;
}

}  // namespace tenuto
