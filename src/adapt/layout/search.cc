#include "adapt/layout/search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "adapt/layout/candidates.h"
#include "adapt/layout/complete_search.h"
#include "adapt/layout/draft.h"
#include "adapt/layout/draft_pricer.h"
#include "adapt/layout/frugal.h"
#include "adapt/layout/layout_bound.h"
#include "adapt/layout/local_search.h"
#include "adapt/layout/recompute.h"
#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

// Shares of the effort that are counted when a part of the search ends: candidates, changes of
// drafts with the schedules of simple rules, and changes with searched schedules.
constexpr double kCandidates = 0.25, kChanges = 0.45, kScheduled = 0.85;
// For each draft whose schedule is searched: at least so many replays, and at most.
constexpr double kLeastReplays = 20, kMostReplays = 2000;
// A schedule with at most so many ops is searched completely, with at most so many nodes.
constexpr double kSmallOps = 40;
// By its bounds, a complete search leaves out about so many layouts for each that it makes. Where
// there are more, it is not tried.
constexpr double kLeftOut = 1e7;
constexpr int64_t kNodes = 20'000;

double ops_of(const Draft& draft) {
  return 2.0 * draft.loads.micros * static_cast<double>(draft.stages.size());
}

std::vector<size_t> replicas_of(const Layout& layout) {
  std::vector<size_t> replicas;
  for (const Stage& stage : layout) replicas.push_back(stage.holders.size());
  return replicas;
}

class Search {
 public:
  Search(const LayoutProblem& problem, const LayoutEffort& effort, Watch* watch)
      : problem_(problem),
        effort_(effort),
        watch_(watch),
        blocks_(blocks_for(problem, effort)),
        table_(problem),
        pricer_(table_, blocks_, watch) {}

  Result<LayoutSearch> run() {
    found_.lower_bound = least_step(problem_);
    // All candidates are priced, though one of them may be the best: callers want others, too.
    std::optional<PricedLayout> baseline =
        price_candidates(table_, pricer_, kCandidates * blocks_, watch_);
    if (pricer_.best().makespan == kNotPriced) try_frugal();
    if (pricer_.best().makespan == kNotPriced && is_over(watch_)) {
      // The time is over and nothing has fitted yet. Go on without a limit, because the answer that
      // nothing fits may only be given when everything was tried.
      baseline = price_candidates(table_, pricer_, kCandidates * blocks_, nullptr);
    }
    pricer_.set_goal(found_.lower_bound);
    const auto layouts = static_cast<double>(effort_.layouts);
    small_ = draft_count(table_, layouts * kLeftOut) <= layouts * kLeftOut;
    begin_part(watch_, "changing layouts");
    improve(kChanges);
    begin_part(watch_, "changing layouts and their orders of ops");
    if (search_orders()) improve(kScheduled);
    if (pricer_.best().makespan == kNotPriced) {
      auto recomputing = search_recomputing(problem_, watch_);
      if (!recomputing) return shortage();
      recomputing->lower_bound = found_.lower_bound;
      recomputing->priced += pricer_.priced();
      return std::move(*recomputing);
    }
    finish(baseline);
    return std::move(found_);
  }

 private:
  // The work on a candidate grows with the number of layers.
  static double blocks_for(const LayoutProblem& problem, const LayoutEffort& effort) {
    constexpr double kLayers = 200;
    return static_cast<double>(effort.blocks) * std::max(1.0, problem.layer_count() / kLayers);
  }

  // Looks for shorter steps with the schedules of the pricer's effort.
  void improve(double share) {
    if (small_ && search_all_drafts(table_, pricer_, effort_.layouts)) return;
    if (pricer_.best().makespan == kNotPriced) return;
    LocalSearch(table_, pricer_).run(share * blocks_);
  }

  // From now on, schedules are searched; first those of the best drafts. Returns false when the
  // effort allows no more than the rules.
  bool search_orders() {
    if (pricer_.best().makespan == kNotPriced) return false;
    const double ops = ops_of(pricer_.best().draft);
    // As many drafts as there are replays for each of them.
    const double replays = std::sqrt((kScheduled - kChanges) * blocks_ / (2 * ops));
    const int64_t nodes = ops <= kSmallOps ? kNodes : 0;
    if (replays < kLeastReplays && nodes == 0) return false;
    pricer_.set_effort(static_cast<int64_t>(std::min(replays, kMostReplays)), nodes);
    for (const PricedDraft& priced : pricer_.best_of_shapes()) {
      pricer_.price(priced.draft, pricer_.best().makespan, priced.how);
    }
    return true;
  }

  void try_frugal() {
    const FrugalLayouts frugal(problem_);
    const int32_t most = std::min(problem_.layer_count(), problem_.device_count());
    for (int32_t count = 1; count <= most; count += 1 + count / 16) {
      if (pricer_.is_over()) return;
      pricer_.price(table_.draft(frugal.with_stages(count)), kNotPriced, "least memory");
    }
  }

  Error shortage() const {
    MemoryCase it;
    it.recompute = true;
    const NearestLayout nearest = FrugalLayouts(problem_).nearest(it);
    return {Code::Infeasible, Reach::Job,
            cat("no layout fits into memory, not even with stages that run their forwards again "
                "before their backwards: in the layout that lacks least, ",
                shortage_text(problem_, nearest.layout, nearest.shortage))};
  }

  // Searches the schedules of the best drafts once more and writes the result.
  void finish(const std::optional<PricedLayout>& baseline) {
    begin_part(watch_, "improving the order of ops");
    const std::vector<PricedDraft> shapes = pricer_.best_of_shapes();
    constexpr size_t kFinal = 3;
    const double left = std::max(0.0, blocks_ - pricer_.spent());
    std::vector<std::pair<PricedLayout, std::string>> all;
    for (size_t i = 0; i < std::min(kFinal, shapes.size()); ++i) {
      const Draft& draft = shapes[i].draft;
      const double replays = left / static_cast<double>(kFinal) / (2 * ops_of(draft));
      const bool over = is_over(watch_);
      const int64_t most = over ? 0 : static_cast<int64_t>(std::min(replays, kMostReplays));
      const int64_t nodes = !over && ops_of(draft) <= kSmallOps ? kNodes : 0;
      PricedLayout priced{table_.layout(draft), draft.loads, {}};
      auto schedule = pricer_.schedule(draft, most, nodes);
      CHECK(schedule.has_value(), "a draft that was priced has a schedule");
      priced.schedule = std::move(*schedule);
      all.emplace_back(std::move(priced), shapes[i].how);
    }
    if (baseline && baseline->schedule.makespan < all[0].first.schedule.makespan) {
      all.emplace_back(*baseline, "other planner");
    }
    std::stable_sort(all.begin(), all.end(), [](const auto& one, const auto& other) {
      return one.first.schedule.makespan < other.first.schedule.makespan;
    });
    found_.best = all[0].first;
    found_.how = all[0].second;
    for (size_t i = 1; i < all.size() && !found_.runner_up; ++i) {
      if (replicas_of(all[i].first.layout) == replicas_of(found_.best.layout)) continue;
      found_.runner_up = all[i].first;
    }
    found_.shapes = {found_.best.layout};
    for (const PricedDraft& shape : shapes) {
      Layout layout = table_.layout(shape.draft);
      if (replicas_of(layout) == replicas_of(found_.best.layout)) continue;
      found_.shapes.push_back(std::move(layout));
    }
    found_.priced = pricer_.priced();
  }

  const LayoutProblem& problem_;
  const LayoutEffort& effort_;
  Watch* const watch_;
  const double blocks_;
  DraftTable table_;
  DraftPricer pricer_;
  bool small_ = false;  // few enough layouts for a complete search
  LayoutSearch found_;
};

}  // namespace

Result<LayoutSearch> search_layout(const LayoutProblem& problem, const LayoutEffort& effort,
                                   Watch* watch) {
  return Search(problem, effort, watch).run();
}

}  // namespace tenuto
