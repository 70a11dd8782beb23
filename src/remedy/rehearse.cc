#include "remedy/rehearse.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "adapt/layers.h"
#include "base/text.h"
#include "plan/routed.h"
#include "remedy/trouble_log.h"
#include "sim/price.h"

namespace tenuto {
namespace {

using SharedPlan = std::shared_ptr<const Plan>;

// After a move of layers: until the next plan is in force.
constexpr int64_t kStepsOfAPlan = 4;
// A state of the cluster that lasts for fewer steps goes unnoticed.
constexpr int64_t kStepsToSee = 2;
// The names of steps: until a decision, and after one that changes nothing; while workers that have
// come back receive their state, and from then until a decision.
constexpr const char* kStays = "the present plan";
constexpr const char* kReceives = "a worker receives the state";
constexpr const char* kWithMore = "the plan with the workers that have come back";
constexpr const char* kHome = "the plan of a healthy cluster";

// The ends of all links that carry messages under a plan, in both directions.
std::set<std::pair<WorkerId, WorkerId>> links_in_use(const Plan& plan) {
  std::set<std::pair<WorkerId, WorkerId>> all;
  const auto add = [&](WorkerId a, WorkerId b) { all.insert({{a, b}, {b, a}}); };
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    for (const Op& op : plan.schedule.lists[w]) {
      if (op.kind == OpKind::Send) add({static_cast<int32_t>(w)}, op.peer);
    }
  }
  for (const Stage& stage : plan.stages) {
    for (const WorkerId a : stage.holders) {
      for (const WorkerId b : stage.holders) add(a, b);
    }
  }
  return all;
}

// What a run under this plan knows of the cluster, which is as `now` says. Nobody measures a link
// without messages, so such a link counts as in `known`, which the run knew before.
Cluster seen_under(const Plan& plan, const Cluster& known, const Cluster& now) {
  const auto in_use = links_in_use(plan);
  const auto lives = [&](WorkerId worker) {
    return now.workers[static_cast<size_t>(worker.value)].alive;
  };
  Cluster seen = now;
  std::erase_if(seen.exceptions, [&](const auto& one) { return !in_use.contains(one.first); });
  for (const auto& [ends, link] : known.exceptions) {
    const bool kept = !in_use.contains(ends) && lives(ends.first) && lives(ends.second);
    if (kept) seen.exceptions[ends] = link;
  }
  return seen;
}

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
  Result<SharedPlan> starting(const SharedPlan& plan, size_t episode) const {
    const std::vector<bool> alive = alive_in(it_.episodes[episode].cluster);
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

  // How long the episode lasts.
  int64_t steps(size_t episode) const { return it_.episodes[episode].steps; }

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
  bool goes_home(const Plan& plan, const Cluster& now) const {
    return same_situation(it_.healthy, now) && plan.stages == home_->stages;
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

 private:
  const Rehearsal& it_;
  SharedPlan home_;
  std::shared_ptr<const Cluster> healthy_;
  int64_t all_ = 0;  // steps
  std::map<std::pair<const Plan*, size_t>, Duration> steps_;
  std::vector<SharedPlan> kept_;  // so that no pointer in steps_ is used again
};

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
  Duration change{};     // what it costs, once
  int64_t pays_at = -1;  // the step at which moves of layers will pay; -1 = none will
  std::string remedy = kStays, reason;
};

// A plan that comes into force at a later step, perhaps in a later state of the cluster than the
// one that it was made for.
struct Coming {
  int64_t step = 0;  // its first one
  SharedPlan plan;
  bool moved = false;  // layers arrive with it
  Duration change{};
  std::string remedy, reason;
};

// When a decision about a state of the cluster is made at the earliest, and comes into force.
struct Moments {
  int64_t decides = 0, acts = 0;
  bool seen = false;  // the state lasts long enough for a decision
};

// A way through the first episodes: the steps that are done, and the plans that come into force
// later.
class Course {
 public:
  explicit Course(SharedPlan plan) : plan_(std::move(plan)) {}

  // Begins an episode. Its dead workers are left out. Workers that have come back receive their
  // state for some steps and then get their places, in a later episode if this one ends before.
  Status begin(Stager& stager, size_t e) {
    const SharedPlan before = plan_;
    auto starting = stager.starting(plan_, e);
    if (!starting.ok()) return starting.error();
    plan_ = std::move(starting).value();
    end_ = begun_ + stager.steps(e);
    auto found = stager.arrival(plan_, e);
    if (!found.ok()) return found.error();
    const Arrival& arrival = found.value();
    const bool came = arrival.plan != nullptr;
    if (plan_ != before || came) coming_.clear();  // made for other workers
    name_ = came ? kReceives : kStays;
    reason_.clear();
    if (!came) return ok();
    if (const Status gone = go(stager, e, arrival.steps); !gone.ok()) return gone;
    name_ = kWithMore;
    if (begun_ == end_) return ok();
    plan_ = arrival.plan;
    owed_ = arrival.cost;
    return ok();
  }

  // The moments of a decision about the episode that has begun. While layers move, the run makes no
  // other decision.
  Moments moments(const Stager& stager, size_t e) const {
    Moments all{begun_, begun_ + stager.reaction(e), end_ - begun_ >= kStepsToSee};
    if (coming_.empty() || !coming_.back().moved) return all;
    const int64_t arrives = coming_.back().step;
    all.decides = arrives + 1;
    all.acts = std::max(all.acts, arrives + kStepsOfAPlan);
    all.seen = all.seen && all.decides <= end_;
    return all;
  }

  // A decision comes into force at this step. While layers move, the plan goes on.
  void await(Decided choice, int64_t step) {
    const bool moves = !choice.moves.empty();
    if (moves) {
      coming_.push_back({step, last_plan(), false, {}, "layers move", choice.reason});
      step += kStepsOfAMove;
    }
    coming_.push_back({step, std::move(choice.plan), moves, choice.change, std::move(choice.remedy),
                       std::move(choice.reason)});
  }

  // Makes the steps of the episode before this one, under the plans that come into force meanwhile.
  Status go_to(Stager& stager, size_t e, int64_t step) {
    while (!coming_.empty() && coming_.front().step < step) {
      Coming next = std::move(coming_.front());
      coming_.pop_front();
      if (const Status gone = go(stager, e, next.step - begun_); !gone.ok()) return gone;
      plan_ = std::move(next.plan);
      owed_ += next.change;
      name_ = std::move(next.remedy);
      reason_ = std::move(next.reason);
    }
    return go(stager, e, step - begun_);
  }

  // Something that is decided comes into force later.
  bool waits() const { return !coming_.empty(); }
  // The plan, and the one that will be in force when all that is decided has come.
  const SharedPlan& plan() const { return plan_; }
  const SharedPlan& last_plan() const { return coming_.empty() ? plan_ : coming_.back().plan; }
  int64_t begun() const { return begun_; }  // steps
  int64_t end() const { return end_; }      // of the episode
  const Rehearsed& so_far() const { return so_far_; }

 private:
  // Makes steps under the present plan.
  Status go(Stager& stager, size_t e, int64_t steps) {
    if (steps <= 0) return ok();
    const auto step = stager.step(plan_, e);
    if (!step.ok()) return step.error();
    const Duration change = std::exchange(owed_, {});
    so_far_.total_ms +=
        to_milliseconds(change) + static_cast<double>(steps) * to_milliseconds(step.value());
    so_far_.parts.push_back({begun_, begun_ + steps, step.value(), change, *plan_, name_, reason_});
    begun_ += steps;
    return ok();
  }

  SharedPlan plan_;
  std::deque<Coming> coming_;  // by step
  Duration owed_{};            // what the next steps cost in addition, once
  std::string name_, reason_;  // of the next steps, in the result
  int64_t begun_ = 0, end_ = 0;
  Rehearsed so_far_;
};

// The decisions of a run.
class Run {
 public:
  explicit Run(const Rehearsal& rehearsal)
      : it_(rehearsal), stager_(rehearsal), course_(stager_.home()), seen_(rehearsal.healthy) {}

  Result<Rehearsed> all() {
    for (size_t e = 0; e < it_.episodes.size(); ++e) {
      if (const Status done = episode(e); !done.ok()) return done.error();
    }
    return course_.so_far();
  }

 private:
  Status episode(size_t e) {
    const int64_t first = course_.begun();
    if (const Status begun = course_.begin(stager_, e); !begun.ok()) return begun;
    const int64_t end = course_.end(), reaction = std::max<int64_t>(1, it_.reaction_steps);
    if (const Status reacted = react(e, look(e, first)); !reacted.ok()) return reacted;
    while (course_.begun() < end) {
      auto decided = decide(e, course_.plan(), course_.begun());
      if (!decided.ok()) return decided.error();
      const Decided& choice = decided.value();
      int64_t until = choice.pays_at > course_.begun() ? choice.pays_at : end;
      const int64_t arrives = course_.begun() + (choice.moves.empty() ? 0 : kStepsOfAMove);
      // From the new places of layers other changes may pay, and links are measured anew.
      if (!choice.moves.empty()) until = arrives + kStepsOfAPlan;
      if (!same_situation(seen_, seen_in(e, *choice.plan))) until = arrives + reaction;
      course_.await(choice, course_.begun());
      const Status gone = course_.go_to(stager_, e, std::min(until, end));
      if (!gone.ok()) return gone;
      look(e, course_.begun());
    }
    return ok();
  }

  Cluster seen_in(size_t e, const Plan& plan) const {
    return seen_under(plan, seen_, it_.episodes[e].cluster);
  }

  // What the run knows of the cluster at this step. False: nothing new.
  bool look(size_t e, int64_t step) {
    Cluster now = seen_in(e, *course_.plan());
    if (e > 0 && same_situation(now, seen_)) return false;
    seen_ = std::move(now);
    log_.note(it_.healthy, seen_, step);
    return true;
  }

  // Makes the steps of the episode before a decision about it is in force. If the episode ends
  // before, the decision comes into force in a later one. `news`: the run sees that it has begun.
  Status react(size_t e, bool news) {
    Moments when = course_.moments(stager_, e);
    if (!news && !course_.waits()) when.acts = course_.begun();
    std::optional<Decided> late;
    if (when.acts > course_.end() && when.seen) {
      auto decided = decide(e, course_.last_plan(), when.decides);
      if (!decided.ok()) return decided.error();
      if (decided.value().plan != course_.last_plan()) late = std::move(decided).value();
    }
    const Status gone = course_.go_to(stager_, e, std::min(when.acts, course_.end()));
    if (late) course_.await(std::move(*late), when.acts);
    look(e, course_.begun());
    return gone;
  }

  // The decision that a run makes at this step of the episode if this plan is in force.
  Result<Decided> decide(size_t e, const SharedPlan& plan, int64_t step) const {
    Decided decided;
    decided.plan = plan;
    if (!it_.order) return decided;  // no plan changes but for a death
    if (stager_.goes_home(*plan, seen_)) {
      if (plan != stager_.home()) decided.remedy = kHome;
      decided.plan = stager_.home();
      return decided;
    }
    RemedyTerms terms = stager_.terms(e, step);
    terms.troubles = log_.known(step);
    auto chosen = choose_remedy(*plan, it_.model, seen_, terms);
    if (!chosen.ok()) return chosen.error();
    RemedyChoice& choice = chosen.value();
    for (const Alternative& one : choice.alternatives) {
      if (!one.chosen) continue;
      decided.remedy = one.name;
      decided.change = one.change;
    }
    if (choice.plan) decided.plan = std::move(choice.plan);
    decided.moves = std::move(choice.moves);
    if (choice.pays_after >= 0) decided.pays_at = step - terms.troubles.lasted + choice.pays_after;
    decided.reason = std::move(choice.reason);
    return decided;
  }

  const Rehearsal& it_;
  Stager stager_;
  Course course_;
  Cluster seen_;  // as the run knows it
  TroubleLog log_;
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

void keep_best(std::vector<Course>& ways) {
  std::stable_sort(ways.begin(), ways.end(), [](const Course& a, const Course& b) {
    return a.so_far().total_ms < b.so_far().total_ms;
  });
  std::vector<Course> kept;
  for (Course& way : ways) {
    const bool known = std::any_of(kept.begin(), kept.end(), [&](const Course& one) {
      return *one.plan() == *way.plan() && *one.last_plan() == *way.last_plan();
    });
    if (!known && kept.size() < kMostWays) kept.push_back(std::move(way));
  }
  ways = std::move(kept);
}

// The ways through one more episode.
class Hindsight {
 public:
  explicit Hindsight(const Rehearsal& rehearsal)
      : it_(rehearsal), stager_(rehearsal), ways_({Course(stager_.home())}) {}

  Status add(size_t e) {
    for (Course& way : ways_) {
      if (const Status begun = way.begin(stager_, e); !begun.ok()) return begun;
    }
    const auto home = stager_.starting(stager_.home(), e);
    if (!home.ok()) return home.error();
    const std::vector<Choice> choices = choices_in(e, home.value());
    std::vector<Course> next;
    for (const Course& way : ways_) {
      std::vector<Choice> all = choices;
      add_choice(all, way.last_plan(), kStays);
      for (const Choice& choice : all) {
        if (auto longer = with(way, choice, e)) next.push_back(std::move(*longer));
      }
    }
    ways_ = std::move(next);
    keep_best(ways_);
    return ok();
  }

  const std::vector<Course>& ways() const { return ways_; }

 private:
  // What decisions could choose from if they knew how long the episode lasts.
  std::vector<Choice> choices_in(size_t e, const SharedPlan& home) const {
    std::vector<Choice> bases, choices;
    add_choice(bases, home, kHome);
    for (size_t i = 0; i < std::min(kBases, ways_.size()); ++i) {
      add_choice(bases, ways_[i].last_plan(), kStays);
    }
    const int64_t end = ways_.front().end(), begun = end - it_.episodes[e].steps;
    for (const Choice& base : bases) {
      add_choice(choices, base.plan, base.remedy);
      if (stager_.goes_home(*base.plan, it_.episodes[e].cluster)) continue;
      RemedyTerms terms = stager_.terms(e, begun);
      // As long as it does last, so that what pays is among the alternatives.
      TroubleLog log(begun);
      log.note(it_.healthy, it_.episodes[e].cluster, begun);
      terms.troubles = log.known(end);
      const auto choice = choose_remedy(*base.plan, it_.model, it_.episodes[e].cluster, terms);
      if (!choice.ok()) continue;
      for (const Alternative& one : choice.value().alternatives) {
        add_choice(choices, one.plan, one.name);
      }
    }
    return choices;
  }

  // The way through the episode with this choice; nothing when it is impossible.
  std::optional<Course> with(const Course& way, const Choice& choice, size_t e) {
    Course longer = way;
    const SharedPlan& before = way.last_plan();
    if (*choice.plan != *before) {
      const Moments when = way.moments(stager_, e);
      const bool is_other_home =
          stager_.goes_home(*choice.plan, it_.episodes[e].cluster) && choice.plan != stager_.home();
      if (!when.seen || is_other_home || !stager_.step(choice.plan, e).ok() ||
          !have_equal_counts(before->stages, choice.plan->stages)) {
        return std::nullopt;
      }
      Decided decided;
      decided.plan = choice.plan;
      decided.moves = moves_between(before->stages, choice.plan->stages);
      decided.change = cost_of_moves(decided.moves, *before, it_.model, it_.episodes[e].cluster);
      decided.remedy = choice.remedy;
      longer.await(std::move(decided), when.acts);
    }
    if (!longer.go_to(stager_, e, way.end()).ok()) return std::nullopt;
    return longer;
  }

  const Rehearsal& it_;
  Stager stager_;
  std::vector<Course> ways_;
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
  for (const Course& way : hindsight.ways()) {
    if (way.so_far().total_ms < best.value().total_ms) best = way.so_far();
  }
  return best;
}

}  // namespace tenuto
