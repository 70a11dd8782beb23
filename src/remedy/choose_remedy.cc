#include "remedy/choose_remedy.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "adapt/adapt.h"
#include "adapt/layers.h"
#include "adapt/mesh.h"
#include "base/text.h"
#include "ir/check.h"
#include "plan/fine_stages.h"
#include "remedy/outlay.h"
#include "sim/price.h"

namespace tenuto {
namespace {

// Plans with two workers in each other's place that may be priced: at most so many, and at most so
// many ops of all of them. A price takes some 0.3 us an op.
constexpr int64_t kMostSwaps = 16, kFewestSwaps = 4, kSwappedOps = 400'000;

// Something that could be done.
struct Candidate {
  std::string name, reason;
  std::shared_ptr<const Plan> plan;
  std::vector<LayerMove> moves = {};
  Duration step{}, change{};
  Outlay outlay = {};
};

std::string milliseconds(Duration time) { return cat(fixed(to_milliseconds(time), 1), " ms"); }

std::string counted(size_t count, const char* what) {
  return cat(count, " ", what, count == 1 ? "" : "s");
}

bool is_fine(const Plan& plan) {
  return std::all_of(plan.stages.begin(), plan.stages.end(),
                     [](const Stage& stage) { return stage.layer_end - stage.layer_first == 1; });
}

// One decision: the candidates, their prices, and the choice.
class Decider {
 public:
  Decider(const Plan& present, const Model& model, const Cluster& now, const RemedyTerms& terms)
      : model_(model), now_(now), terms_(terms), pricer_(present, model, now, terms) {
    const auto step = whole_step_time(present, model, now);
    if (!step.ok()) return;
    before_ = step.value();
    add({"the present plan", "", std::make_shared<const Plan>(present), {}, step.value(), {}});
  }

  bool present_runs() const { return before_.has_value(); }
  bool has_candidates() const { return !candidates_.empty(); }

  // A plan made earlier. False when it cannot run.
  bool add_made_ahead(std::shared_ptr<const Plan> plan) {
    const auto step = whole_step_time(*plan, model_, now_);
    if (!step.ok()) return false;
    if (before_ && static_cast<double>(step.value().count()) >
                       (1 - terms_.least_gain) * static_cast<double>(before_->count())) {
      kept_reason_ =
          cat("the plan ", candidates_.front().plan->order, " stays: one made ahead is not ",
              fixed(100 * terms_.least_gain, 0), " % faster");
      return true;
    }
    add_free("made ahead", std::move(plan));
    return true;
  }

  // The plan of a healthy cluster with the holders of the present plan.
  void add_even(const Plan& present) {
    const auto even = home_of(terms_.home, present.stages);
    if (even != nullptr) add_free("the plan of a healthy cluster", even);
  }

  // The result of adapt() with or without other routes.
  Status add_adapted(const Plan& present, bool routes) {
    auto adapted = adapted_of(present, routes);
    if (!adapted.ok()) return adapted.error();
    Adapted& found = adapted.value();
    kept_reason_ = found.reason;
    if (!found.changed) return ok();
    add_free(found.routed ? "other routes of micro-batches" : "another order of ops",
             std::make_shared<const Plan>(std::move(found.plan)), found.reason);
    return ok();
  }

  // The layers back where they are when all are well.
  void add_way_home(const Plan& present) {
    if (terms_.home == nullptr || present.stages == terms_.home->stages) return;
    if (home_of(terms_.home, present.stages) == nullptr) return;
    const auto step = whole_step_time(*terms_.home, model_, now_);
    if (!step.ok()) return;
    const std::vector<LayerMove> moves = moves_between(present.stages, terms_.home->stages);
    weigh({"all layers back at their first workers", "", terms_.home, moves, step.value(),
           cost_of_moves(moves, present, model_, now_)});
  }

  // Layers at other workers, and workers in each other's place, on top of the fastest plan in which
  // they stay.
  void add_moves() {
    const Candidate base = best_of_free();
    const bool combined = !present_runs() || base.plan != candidates_.front().plan;
    const std::string first = combined ? cat(base.name, ", and ") : std::string();
    auto layouts = find_layer_layouts(*base.plan, model_, now_);
    if (layouts.ok()) {
      weigh_best(std::move(layouts).value(), [&](const LayerLayout& layout) {
        return cat(first, counted(layout.moves.size(), "layer"), " at other workers");
      });
    }
    auto swaps = find_swaps(*base.plan, model_, now_, most_swaps(*base.plan));
    if (swaps.ok()) {
      weigh_best(std::move(swaps).value(), [&](const LayerLayout& layout) {
        const LayerMove& move = layout.moves.front();
        const auto [low, high] = std::minmax(move.from, move.to);
        return cat(first, "workers ", low, " and ", high, " in each other's place");
      });
    }
  }

  RemedyChoice choose() const {
    RemedyChoice choice;
    choice.expected_steps = pricer_.expected_steps();
    const Candidate* best = &candidates_.front();  // of all candidates
    const Candidate* chosen = best;                // of those that may be acted upon
    for (const Candidate& one : candidates_) {
      if (!may_be_chosen(one)) continue;
      const bool acted = one.moves.empty() || !terms_.only_observes_layers;
      if (total_of(one) < total_of(*best)) best = &one;
      if (acted && total_of(one) < total_of(*chosen)) chosen = &one;
    }
    if (best != chosen) choice.observed = best->reason;
    for (const Candidate& one : candidates_) {
      choice.alternatives.push_back(
          {one.name, one.step, one.change, total_of(one) / 1e6, &one == chosen, one.plan});
    }
    std::stable_sort(
        choice.alternatives.begin() + (present_runs() ? 1 : 0), choice.alternatives.end(),
        [](const Alternative& a, const Alternative& b) { return a.total_ms < b.total_ms; });
    const bool stays = present_runs() && chosen == &candidates_.front();
    choice.reason = stays ? kept_reason_ : chosen->reason;
    if (chosen->moves.empty() && pays_after_ >= 0) {
      choice.pays_after = pays_after_;
      choice.reason += cat("; ", later_);
    }
    if (stays) return choice;
    choice.plan = chosen->plan;
    choice.moves = chosen->moves;
    return choice;
  }

 private:
  double total_of(const Candidate& one) const { return pricer_.total(one.outlay); }

  void add(Candidate one) {
    one.outlay = pricer_.outlay(*one.plan, one.step, one.change);
    candidates_.push_back(std::move(one));
  }

  // The fastest candidate in which no layer moves. There is one: moves are added last.
  const Candidate& best_of_free() const {
    const auto free_first = [](const Candidate& a, const Candidate& b) {
      return std::pair(!a.moves.empty(), a.step) < std::pair(!b.moves.empty(), b.step);
    };
    return *std::min_element(candidates_.begin(), candidates_.end(), free_first);
  }

  // False for moves that make a step hardly shorter than the best plan without moves.
  bool may_be_chosen(const Candidate& one) const {
    if (one.moves.empty()) return true;
    const Duration without = best_of_free().step;
    const double least = std::max(1.0, terms_.least_gain * static_cast<double>(without.count()));
    return static_cast<double>((without - one.step).count()) >= least;
  }

  int32_t most_swaps(const Plan& plan) const {
    int64_t ops = 1;
    for (const auto& list : plan.schedule.lists) ops += std::ssize(list);
    return static_cast<int32_t>(std::clamp(kSwappedOps / ops, kFewestSwaps, kMostSwaps));
  }

  // Adds a plan that costs nothing but its steps, if it runs and is not there already.
  void add_free(const char* name, std::shared_ptr<const Plan> plan, std::string reason = {}) {
    for (const Candidate& known : candidates_) {
      if (*known.plan == *plan) return;
    }
    const auto step = whole_step_time(*plan, model_, now_);
    if (!step.ok() || !check(*plan).ok()) return;
    if (reason.empty()) {
      reason = cat(name, ": a whole step takes ", milliseconds(step.value()));
      if (before_) reason += cat(" instead of ", milliseconds(*before_));
    }
    add({name, std::move(reason), std::move(plan), {}, step.value(), {}});
  }

  // adapt(), which needs a stage for each worker: a plan with a stage for each layer is changed to
  // one and back.
  Result<Adapted> adapted_of(const Plan& plan, bool routes) const {
    const bool divided = is_fine(plan) && !holds_apart(plan);
    const std::optional<Plan> coarse = divided ? with_coarse_stages(plan) : std::nullopt;
    AdaptOptions options;
    options.price.update = false;
    options.price.staggered = plan.update.staggered;
    options.routing = routes;
    options.steps_in_turn = true;
    options.least_gain = terms_.least_gain;
    // Under ready dispatch a gradient that comes a moment earlier would run between two layers of a
    // forward, and delay all that waits for its result. So the plan runs in list order while all
    // workers live. After a death it runs under ready dispatch, because then moves of layers were
    // found to gain less, or nothing, with fixed lists.
    const bool all_live = std::all_of(now_.workers.begin(), now_.workers.end(),
                                      [](const Worker& worker) { return worker.alive; });
    if (coarse && all_live) options.dispatch = Dispatch::Listed;
    auto adapted = adapt(coarse ? *coarse : plan, model_, now_, options);
    if (!adapted.ok() || !coarse || !adapted.value().changed) return adapted;
    auto fine = with_fine_stages(adapted.value().plan);
    if (!fine.ok()) return fine.error();
    adapted.value().plan = std::move(fine).value();
    return adapted;
  }

  // Of some layouts, weighs the one with the least total and the one with the shortest step, each
  // with the best order and routes for it.
  template <class Name>
  void weigh_best(std::vector<LayerLayout> layouts, const Name& name_of) {
    std::vector<Candidate> all;
    for (LayerLayout& layout : layouts) {
      std::string name = name_of(layout);
      all.push_back({std::move(name), "", std::make_shared<const Plan>(std::move(layout.plan)),
                     std::move(layout.moves), layout.step, layout.cost});
      Candidate& one = all.back();
      one.outlay = pricer_.outlay(*one.plan, one.step, one.change);
    }
    if (all.empty()) return;
    const auto least =
        std::min_element(all.begin(), all.end(), [&](const Candidate& a, const Candidate& b) {
          return std::pair(!may_be_chosen(a), total_of(a)) <
                 std::pair(!may_be_chosen(b), total_of(b));
        });
    const auto shortest =
        std::min_element(all.begin(), all.end(),
                         [](const Candidate& a, const Candidate& b) { return a.step < b.step; });
    weigh(improved(*least));
    if (shortest != least) weigh(improved(*shortest));
  }

  Candidate improved(Candidate one) const {
    auto adapted = adapted_of(*one.plan, terms_.routes);
    if (!adapted.ok() || !adapted.value().changed) return one;
    const auto step = whole_step_time(adapted.value().plan, model_, now_);
    if (!step.ok() || step.value() >= one.step || !check(adapted.value().plan).ok()) return one;
    one.step = step.value();
    one.plan = std::make_shared<const Plan>(std::move(adapted.value().plan));
    return one;
  }

  // Adds a candidate with moves; if it does not pay yet, remembers when it would.
  void weigh(Candidate one) {
    const Duration without = best_of_free().step;
    one.reason = cat("with ", one.name, " a whole step takes ", milliseconds(one.step),
                     " instead of ", milliseconds(before_.value_or(without)),
                     "; the cluster has been as it is for ", terms_.troubles.lasted,
                     " steps, and the change costs ", milliseconds(one.change), " once");
    one.outlay = pricer_.outlay(*one.plan, one.step, one.change);
    if (may_be_chosen(one)) remember(one, without);
    candidates_.push_back(std::move(one));
  }

  // If this one does not pay yet: after how many steps in the same state it would, if that is
  // sooner than the others.
  void remember(const Candidate& one, Duration without) {
    const Outlay& kept = best_of_free().outlay;
    if (pricer_.total(one.outlay) < pricer_.total(kept)) return;
    const auto pays = [&](int64_t ahead) {
      return pricer_.total(one.outlay, ahead) < pricer_.total(kept, ahead);
    };
    int64_t before = 0;  // it does not pay then
    for (int64_t then = 1; then < terms_.left; before = then, then += 1 + then / 20) {
      if (!pays(then)) continue;
      while (then - before > 1) {
        const int64_t middle = before + (then - before) / 2;
        (pays(middle) ? then : before) = middle;
      }
      const int64_t after = terms_.troubles.lasted + then;
      if (pays_after_ >= 0 && after >= pays_after_) return;
      pays_after_ = after;
      later_ = cat(one.name, " would shorten a step of ", milliseconds(without), " to ",
                   milliseconds(one.step), ", but the change costs ", milliseconds(one.change),
                   " once: it pays after ", after, " steps in this state of the cluster");
      return;
    }
  }

  const Model& model_;
  const Cluster& now_;
  const RemedyTerms& terms_;
  OutlayPricer pricer_;
  std::optional<Duration> before_;
  std::vector<Candidate> candidates_;  // the present plan first, if it can run
  std::string kept_reason_, later_;
  int64_t pays_after_ = -1;
};

}  // namespace

Result<RemedyChoice> choose_remedy(const Plan& present, const Model& model, const Cluster& now,
                                   const RemedyTerms& terms,
                                   std::shared_ptr<const Plan> made_ahead) {
  Decider decider(present, model, now, terms);
  decider.add_even(present);
  const bool known = made_ahead != nullptr && decider.add_made_ahead(std::move(made_ahead));
  if (!known && decider.present_runs()) {
    const Status ordered = decider.add_adapted(present, false);
    if (!ordered.ok()) return ordered.error();
  }
  if (!known && (terms.routes || !decider.present_runs())) {
    const Status routed = decider.add_adapted(present, terms.routes);
    if (!routed.ok()) return routed.error();
  }
  if (!decider.has_candidates()) {
    return Error{Code::Infeasible, Reach::Job, "no plan was found that runs on the live workers"};
  }
  if (terms.layers) {
    decider.add_way_home(present);
    decider.add_moves();
  }
  return decider.choose();
}

}  // namespace tenuto
