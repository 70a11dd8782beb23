#include "adapt/layout/in_turn.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "adapt/adapt.h"
#include "adapt/layout/device_order.h"
#include "adapt/layout/draft.h"
#include "adapt/layout/frugal.h"
#include "adapt/layout/in_turn_moves.h"
#include "adapt/layout/in_turn_pricer.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "plan/partition.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// The search starts from at most kLayouts layouts and improves the best kImproved plans.
constexpr size_t kLayouts = 12, kImproved = 3;
constexpr int32_t kMostChunks = 4;
// A plan with several stages on each worker must make the step shorter by at least this share.
constexpr double kLeastGainOfChunks = 0.02;
// With more devices, the search skips equal stages, moves of single workers, and pipelines.
constexpr int32_t kChangedDevices = 512;

class InTurnSearch {
 public:
  InTurnSearch(const Model& model, const Cluster& cluster, const InTurnSettings& settings,
               Watch* watch)
      : model_(model),
        cluster_(cluster),
        settings_(settings),
        pricer_(model, cluster, settings, watch),
        watch_(watch) {}

  Result<InTurnPlan> run(const std::vector<Layout>& layouts) {
    begin_part(watch_, "pricing plans");
    begin_effort();
    for (const Layout& layout : layouts) {
      if (kept_.size() >= kLayouts || (!kept_.empty() && is_over(watch_))) break;
      if (settings_.pipelines) continue;
      if (auto candidate = pricer_.best_of(layout)) {
        kept_.push_back({std::move(*candidate), "its layout"});
      }
    }
    if (kept_.empty() && !settings_.pipelines) try_equal_stages();
    order();
    if (kept_.size() > kImproved) kept_.resize(kImproved);
    for (Found& found : kept_) {
      move_cuts(found);
      change_recomputation(found);
    }
    order();
    // adapt() is tried on this plan too: it may gain more there than on the plan changed below.
    std::optional<Found> plain;
    if (!kept_.empty()) plain = kept_.front();
    if (settings_.effort.changes || settings_.pipelines) try_changes();
    if (kept_.empty()) {
      return shortage();
    }
    Found& best = kept_.front();
    if (!settings_.pipelines) {
      const bool changed = plain && plain->it.plan != best.it.plan;
      if (const Status adapted = adapt_plan(best); !adapted.ok()) return adapted.error();
      if (changed) {
        if (const Status adapted = adapt_plan(*plain); !adapted.ok()) return adapted.error();
        if (plain->it.step < best.it.step) best = std::move(*plain);
      }
    }
    InTurnPlan made;
    made.plan = std::move(best.it.plan);
    made.step = best.it.step;
    made.lower_bound = std::min(pricer_.lower_bound(), made.step);
    made.how = std::move(best.how);
    made.priced = pricer_.priced();
    return made;
  }

 private:
  struct Found {
    InTurnCandidate it;
    std::string how;
  };

  // Why no plan was made.
  Error shortage() const {
    const LayoutProblem& problem = pricer_.problem();
    const std::string what = settings_.pipelines
                                 ? "no plan of equal pipelines"
                                 : "no plan whose replicas take whole micro-batches in turn";
    MemoryCase it;
    it.recompute = it.whole = true;
    const FrugalLayouts frugal(problem);
    if (frugal.fits(it)) {
      return {Code::Infeasible, Reach::Job,
              cat(what,
                  " that was tried fits into memory: give more micro-batches, or devices with more "
                  "memory")};
    }
    const NearestLayout nearest = frugal.nearest(it);
    return {Code::Infeasible, Reach::Job,
            cat(what,
                " fits into memory, although a layout that splits rows does: in the one that "
                "lacks least, ",
                shortage_text(problem, nearest.layout, nearest.shortage))};
  }

  void order() {
    std::stable_sort(kept_.begin(), kept_.end(),
                     [](const Found& a, const Found& b) { return a.it.step < b.it.step; });
  }

  Duration best_step() const { return kept_.empty() ? kLongestTime : kept_.front().it.step; }

  void begin_effort() {
    priced_before_ = pricer_.priced();
    ops_before_ = pricer_.ops();
  }
  bool spent() const {
    return pricer_.priced() - priced_before_ >= settings_.effort.priced ||
           pricer_.ops() - ops_before_ >= settings_.effort.ops || is_over(watch_);
  }

  // Starts from stages of similar time with equally many holders. This is needed when none of the
  // given layouts fits: they split rows, and whole micro-batches need more memory.
  void try_equal_stages() {
    const int32_t devices = pricer_.problem().device_count();
    if (devices > kChangedDevices) return;
    const int32_t most_stages = std::min(devices, pricer_.problem().layer_count());
    for (const DeviceOrder& order : orders()) {
      for (int32_t stages = most_stages; stages >= 1 && !spent(); --stages) {
        const auto layout = grid_layout(order, devices / stages, stages, stages, true);
        if (!layout) continue;
        if (auto it = pricer_.best_of(*layout)) {
          kept_.push_back({std::move(*it), "stages of similar time"});
        }
      }
    }
  }

  // Moves cuts by one or more layers while this shortens the step.
  void move_cuts(Found& found) {
    bool better = true, moved = false;
    while (better && !spent()) {
      better = false;
      for (size_t n = 0; n + 1 < found.it.layout.size() && !spent(); ++n) {
        for (const int32_t by : {-1, 1, -3, 3}) {
          Layout changed = found.it.layout;
          const int32_t cut = changed[n].layer_end + by;
          if (cut <= changed[n].layer_first || cut >= changed[n + 1].layer_end) continue;
          changed[n].layer_end = changed[n + 1].layer_first = cut;
          auto it = pricer_.near_form(changed, found.it.form, found.it.step);
          if (!it || it->step >= found.it.step) continue;
          found.it = std::move(*it);
          better = moved = true;
        }
      }
    }
    if (moved) found.how += "; cuts moved";
  }

  // Turns recomputation on or off, one stage at a time, while this shortens the step.
  void change_recomputation(Found& found) {
    bool better = pricer_.problem().memory_is_limited(), changed = false;
    while (better && !spent()) {
      better = false;
      for (size_t n = 0; n < found.it.layout.size() && !spent(); ++n) {
        Layout layout = found.it.layout;
        layout[n].recompute = !layout[n].recompute;
        auto it = pricer_.near_form(layout, found.it.form, found.it.step);
        if (!it || it->step >= found.it.step) continue;
        found.it = std::move(*it);
        better = changed = true;
      }
    }
    if (changed) found.how += "; recomputation changed";
  }

  void try_changes() {
    if (pricer_.problem().device_count() > kChangedDevices) return;
    if (!settings_.pipelines) {
      begin_part(watch_, "moving workers");
      begin_effort();
      const DeviceKinds kinds(pricer_.problem());
      for (Found& found : kept_) move_workers(kinds, found);
      order();
    }
    begin_part(watch_, "pricing pipelines");
    begin_effort();
    try_pipelines();
    order();
  }

  // Changes a plan by one worker or stage at a time while this shortens the step.
  void move_workers(const DeviceKinds& kinds, Found& found) {
    bool moved = false;
    for (bool better = true; better && !spent();) {
      better = false;
      const Layout layout = found.it.layout;
      each_change(pricer_, kinds, layout, [&](const Layout& changed) {
        if (pricer_.least_step(changed) >= found.it.step) return !spent();
        auto it = pricer_.near_form(changed, found.it.form, found.it.step);
        if (it && it->step < found.it.step) {
          found.it = std::move(*it);
          better = moved = true;
        }
        return !better && !spent();
      });
      if (better) move_cuts(found);
    }
    if (moved) found.how += "; workers moved";
  }

  // Orders of the devices. A pipeline, or a stage, takes devices that are neighbours in the order.
  std::vector<DeviceOrder> orders() const {
    const LayoutProblem& problem = pricer_.problem();
    std::vector<DeviceOrder> all{linkage_order(problem)};
    DeviceOrder fast = all.front();
    std::stable_sort(fast.begin(), fast.end(), [&](int32_t one, int32_t other) {
      return problem.speed(one) > problem.speed(other);
    });
    if (fast != all.front()) all.push_back(std::move(fast));
    return all;
  }

  // Finds the best plan of equal pipelines, with one or several stages on each worker.
  void try_pipelines() {
    const int32_t devices = pricer_.problem().device_count(), micros = settings_.layout.micros;
    std::optional<Found> best;
    for (const DeviceOrder& order : orders()) {
      for (int32_t pipelines = 1; pipelines <= std::min(devices, micros); ++pipelines) {
        if (micros % pipelines != 0) continue;
        for (int32_t workers = 1; workers * pipelines <= devices; ++workers) {
          if (best && spent()) break;
          try_grid(order, pipelines, workers, best);
        }
      }
    }
    if (!best) return;
    move_cuts(*best);
    // Such a plan must gain more: if a worker with several stages is lost, no other can replace it.
    const double least = best->it.form.chunks > 1 ? kLeastGainOfChunks : 0;
    if (to_milliseconds(best->it.step) < (1 - least) * to_milliseconds(best_step()))
      kept_.insert(kept_.begin(), std::move(*best));
  }

  void try_grid(const DeviceOrder& order, int32_t pipelines, int32_t workers,
                std::optional<Found>& best) {
    const LayoutProblem& problem = pricer_.problem();
    const Layers all{0, problem.layer_count()};
    // In each pipeline, some worker does at least an equal share of the work.
    const double share = (problem.forward(all) + problem.backward(all)) *
                         (settings_.layout.micros / pipelines) / workers;
    double fastest = 0;
    for (int32_t i = 0; i < workers * pipelines; ++i) {
      fastest = std::max(fastest, problem.speed(order[at(i)]));
    }
    const Duration beaten = best ? std::min(best->it.step, best_step()) : best_step();
    if (from_nanoseconds(share / fastest) >= beaten) return;
    // Plans with one stage on each worker were tried before, with holders that share micro-batches.
    // Only a search for pipelines alone has not tried them.
    const int32_t least = settings_.pipelines ? 1 : 2;
    for (int32_t chunks = least; chunks <= (workers > 1 ? kMostChunks : 1); ++chunks) {
      if (workers * chunks > problem.layer_count()) break;
      for (const bool apart : {false, true}) {
        if (apart && (pipelines == 1 || workers == 1)) continue;
        if (best && spent()) return;
        const auto layout = grid_layout(order, pipelines, workers * chunks, workers, apart);
        if (!layout) continue;
        auto it =
            pricer_.near_form(*layout, {pricer_.splits().front(), 0, settings_.pipelines, chunks},
                              best ? best->it.step : kLongestTime);
        if (!it || (best && it->step >= best->it.step)) continue;
        best = Found{std::move(*it), chunks > 1 ? cat(chunks, " stages for each worker")
                                                : std::string("equal pipelines")};
      }
    }
  }

  // Makes `stages` stages of similar time and deals them out in turn to the `workers` workers of
  // each pipeline. Neighbours in the order are the workers of a pipeline or, if `apart`, the
  // holders of a stage.
  std::optional<Layout> grid_layout(const DeviceOrder& order, int32_t pipelines, int32_t stages,
                                    int32_t workers, bool apart) const {
    const LayoutProblem& problem = pricer_.problem();
    std::vector<double> cost;
    for (int32_t layer = 0; layer < problem.layer_count(); ++layer) {
      cost.push_back(problem.forward({layer, layer + 1}) + problem.backward({layer, layer + 1}));
    }
    const auto cuts = partition(cost, stages);
    if (!cuts.ok()) return std::nullopt;
    Layout layout;
    for (int32_t s = 0; s < stages; ++s) {
      Stage stage{cuts.value()[at(s)], cuts.value()[at(s) + 1], {}};
      for (int32_t p = 0; p < pipelines; ++p) {
        const int32_t place = s % workers;
        const int32_t index = apart ? place * pipelines + p : p * workers + place;
        stage.holders.push_back(problem.worker(order[at(index)]));
      }
      layout.push_back(std::move(stage));
    }
    return layout;
  }

  // True when no worker holds more micro-batches than its limit in `before` allows. adapt() gives a
  // new order its own limits, which do not consider the memory of the devices.
  bool keeps_memory(const Plan& plan, const Plan& before) const {
    if (!pricer_.problem().memory_is_limited()) return true;
    PriceOptions options = pricer_.pricing();
    options.weight_share = plan.split_backward ? 1 : 0;
    const auto priced = price(plan, model_, cluster_, options);
    if (!priced.ok()) return false;
    for (size_t w = 0; w < before.limits.size(); ++w) {
      const int32_t most = before.limits[w].micros;
      if (most > 0 && priced.value().peak_micros[w] > most) return false;
    }
    return true;
  }

  // Uses the plan that adapt() finds, with another order of ops and routing, if it is faster.
  Status adapt_plan(Found& found) {
    if (is_over(watch_)) return ok();
    AdaptOptions options;
    options.price = pricer_.pricing();
    options.least_gain = 0;
    options.watch = watch_;
    auto adapted = adapt(found.it.plan, model_, cluster_, options);
    if (!adapted.ok()) return adapted.error();
    if (adapted.value().price >= found.it.step) return ok();
    if (!keeps_memory(adapted.value().plan, found.it.plan)) return ok();
    found.it.plan = std::move(adapted.value().plan);
    found.it.step = adapted.value().price;
    found.how += "; another order of ops";
    return ok();
  }

  const Model& model_;
  const Cluster& cluster_;
  const InTurnSettings& settings_;
  InTurnPricer pricer_;
  Watch* watch_;
  std::vector<Found> kept_;
  int64_t priced_before_ = 0;
  double ops_before_ = 0;
};

}  // namespace

Result<InTurnPlan> plan_in_turn(const Model& model, const Cluster& cluster,
                                const InTurnSettings& settings, const std::vector<Layout>& layouts,
                                Watch* watch) {
  if (const auto devices = std::ssize(cluster.workers);
      settings.pipelines && devices > kChangedDevices) {
    return invalid(cat("plans of equal pipelines are searched for ", kChangedDevices,
                       " devices at most, found ", devices));
  }
  return InTurnSearch(model, cluster, settings, watch).run(layouts);
}

}  // namespace tenuto
