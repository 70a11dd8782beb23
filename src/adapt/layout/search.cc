#include "adapt/layout/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "adapt/layout/candidates.h"
#include "adapt/layout/complete_search.h"
#include "adapt/layout/draft.h"
#include "adapt/layout/draft_pricer.h"
#include "adapt/layout/layout_bound.h"
#include "adapt/layout/local_search.h"
#include "adapt/layout/recompute.h"
#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

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

// Layouts that need little memory: the devices with the most memory first, equally many for each
// stage; the cuts so that the stage that misses most misses as little as possible.
class FrugalLayouts {
 public:
  explicit FrugalLayouts(const LayoutProblem& problem) : problem_(problem) {
    devices_.resize(at(problem.device_count()));
    std::iota(devices_.begin(), devices_.end(), 0);
    std::stable_sort(devices_.begin(), devices_.end(), [&](int32_t one, int32_t other) {
      return problem.memory(one) > problem.memory(other);
    });
  }

  Layout with_stages(int32_t count) const {
    double low = -1e18, high = 1e18;  // bytes that the stage that misses most misses
    Layout best = within(count, high);
    for (int32_t probe = 0; probe < 64; ++probe) {
      const double middle = (low + high) / 2;
      Layout layout = within(count, middle);
      if (layout.empty()) {
        low = middle;
      } else {
        high = middle;
        best = std::move(layout);
      }
    }
    return best;
  }

 private:
  // Gives each stage as many layers as miss at most this; empty when layers are left.
  Layout within(int32_t count, double missing) const {
    Layout layout;
    const int32_t replicas = problem_.device_count() / count, layers = problem_.layer_count();
    int32_t next = 0;
    for (int32_t n = 0; n < count; ++n) {
      Stage stage;
      stage.layer_first = next;
      for (int32_t i = 0; i < replicas; ++i) {
        stage.holders.push_back(problem_.worker(devices_[at(n * replicas + i)]));
      }
      const double memory = problem_.memory(devices_[at((n + 1) * replicas - 1)]);
      const int32_t in_flight = std::min(problem_.settings().micros, count - n);
      stage.layer_end = ++next;
      // The stages behind it get a layer each.
      while (next < layers - (count - n - 1)) {
        ++stage.layer_end;
        if (stage_memory(problem_, stage, in_flight) > memory + missing) {
          --stage.layer_end;
          break;
        }
        next = stage.layer_end;
      }
      if (stage_memory(problem_, stage, in_flight) > memory + missing) return {};
      std::sort(stage.holders.begin(), stage.holders.end());
      layout.push_back(std::move(stage));
    }
    return next == layers ? layout : Layout{};
  }

  const LayoutProblem& problem_;
  std::vector<int32_t> devices_;
};

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
    const std::optional<PricedLayout> baseline =
        price_candidates(table_, pricer_, kCandidates * blocks_, watch_);
    if (pricer_.best().makespan == kNotPriced) try_frugal();
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
      pricer_.price(table_.draft(frugal.with_stages(count)), kNotPriced, "least memory");
    }
  }

  Error shortage() const {
    const MemoryShortage& shortage = pricer_.least_shortage();
    const Draft& draft = pricer_.short_draft();
    CHECK(shortage.stage >= 0, "no layout was priced");
    const Layout layout = table_.layout(draft);
    const Stage& stage = layout[at(shortage.stage)];
    WorkerId least = stage.holders.front();  // of its workers, the one with the least memory
    for (const WorkerId holder : stage.holders) {
      const double memory = problem_.memory(problem_.device(holder));
      if (memory < problem_.memory(problem_.device(least))) least = holder;
    }
    const auto bytes = static_cast<int64_t>(std::ceil(shortage.missing));
    return {Code::Infeasible, Reach::Job,
            cat("no layout fits into memory: in the one that misses least, stage ", shortage.stage,
                " of ", layout.size(), " (layers ", stage.layer_first, " to ", stage.layer_end - 1,
                " on ", stage.holders.size(), stage.holders.size() == 1 ? " worker" : " workers",
                ") needs ", bytes, " bytes more than worker ", least,
                " has; give the workers that much more memory, add workers, make the "
                "micro-batches smaller, or keep fewer bytes of state for each parameter (now ",
                problem_.settings().state_share,
                " for each byte); stages that run their forwards again before their backwards were "
                "tried, too, and do not fit either")};
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
