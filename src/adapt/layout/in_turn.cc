#include "adapt/layout/in_turn.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "adapt/adapt.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "sim/price.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// How many layouts are begun with, and how many plans are priced while cuts move.
constexpr size_t kLayouts = 12, kImproved = 3;
constexpr int64_t kMostPriced = 600;
// A step of more ops is priced only a few times.
constexpr double kMostOps = 40e6;

// A layout whose plan has been priced.
struct Candidate {
  Layout layout;
  Plan plan;
  Duration step = kLongestTime;
};

class InTurnSearch {
 public:
  InTurnSearch(const Model& model, const Cluster& cluster, const InTurnSettings& settings,
               Watch* watch)
      : model_(model),
        cluster_(cluster),
        settings_(settings),
        problem_(model, cluster, settings.layout),
        watch_(watch) {
    for (const Worker& worker : cluster.workers) speed_.push_back(worker.speed);
  }

  Result<InTurnPlan> run(const std::vector<Layout>& layouts) {
    begin_part(watch_, "pricing plans");
    for (const Layout& layout : layouts) {
      if (kept_.size() >= kLayouts || (best() && is_over(watch_))) break;
      if (auto candidate = priced(layout)) kept_.push_back(std::move(*candidate));
    }
    if (kept_.empty()) {
      return Error{Code::Infeasible, Reach::Job,
                   "no plan that gives each holder whole micro-batches fits: ask for more "
                   "micro-batches, or give the devices more memory"};
    }
    order();
    if (kept_.size() > kImproved) kept_.resize(kImproved);
    for (Candidate& candidate : kept_) {
      move_cuts(candidate);
      change_recomputation(candidate);
    }
    order();
    const Status adapted = adapt_best();
    if (!adapted.ok()) return adapted.error();
    InTurnPlan made;
    made.plan = std::move(kept_.front().plan);
    made.step = kept_.front().step;
    made.lower_bound = std::min(lower_bound(), made.step);
    made.how = how_;
    made.priced = priced_;
    return made;
  }

 private:
  const Candidate* best() const { return kept_.empty() ? nullptr : &kept_.front(); }

  void order() {
    std::stable_sort(kept_.begin(), kept_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.step < b.step; });
  }

  // The times of a stage's holders for a whole micro-batch, and how often one can end.
  struct Pace {
    double forward = 0, backward = 0;  // by the slowest holder
    double period = 0;                 // of all holders together
  };
  Pace pace_of(const Stage& stage) const {
    const Layers layers{stage.layer_first, stage.layer_end};
    double slowest = speed_[at(stage.holders.front().value)], all = 0;
    for (const WorkerId holder : stage.holders) {
      slowest = std::min(slowest, speed_[at(holder.value)]);
      all += speed_[at(holder.value)];
    }
    const double forward = problem_.forward(layers), backward = backward_of(problem_, stage);
    return {forward / slowest, backward / slowest, (forward + backward) / all};
  }

  // The time of one transfer over a boundary, by its slowest link.
  double transfer(const Stage& from, const Stage& to) const {
    const double bytes = problem_.cut(to.layer_first);
    double longest = 0;
    for (const WorkerId one : from.holders) {
      for (const WorkerId other : to.holders) {
        const Link link = cluster_.link(one, other);
        const double rate = problem_.rate(problem_.device(one), problem_.device(other));
        longest = std::max(longest, static_cast<double>(link.latency.count()) + bytes / rate);
      }
    }
    return longest;
  }

  // How many micro-batches each stage has in flight, and the stages that have too little memory for
  // those that they want.
  struct Flight {
    std::vector<int32_t> count;
    std::vector<size_t> tight;
    bool fits = true;  // each holder has memory for one
  };

  // A stage wants so many micro-batches in flight that none waits: its round trip over the period,
  // and `more` for each holder, so that the next one is there when a holder is free.
  Flight in_flight(const Layout& layout, int32_t more) const {
    const size_t count = layout.size();
    std::vector<Pace> paces;
    double period = 0;
    for (const Stage& stage : layout) {
      paces.push_back(pace_of(stage));
      period = std::max(period, paces.back().period);
    }
    Flight flight;
    flight.count.resize(count);
    double trip = 0;
    for (size_t n = count; n-- > 0;) {
      if (n + 1 < count) trip += 2 * transfer(layout[n], layout[n + 1]);
      trip += paces[n].forward + paces[n].backward;
      const auto holders = static_cast<int32_t>(layout[n].holders.size());
      const double needed = period > 0 ? std::ceil(trip / period - 1e-9) : 1;
      const auto wanted =
          static_cast<int32_t>(std::min(1e6, needed)) + (n + 1 < count ? more * holders : 0);
      const int32_t fitting = fitting_micros(layout[n]);
      const int32_t most = std::min(wanted, settings_.layout.micros);
      if (fitting < most) flight.tight.push_back(n);
      flight.fits = flight.fits && fitting > 0;
      flight.count[n] = std::max(holders, std::min(most, fitting));
    }
    return flight;
  }

  // How many micro-batches all holders of a stage together have memory for.
  int32_t fitting_micros(const Stage& stage) const {
    const HeldBytes held = held_bytes(problem_, stage);
    double least = 1e9;  // of one holder
    for (const WorkerId holder : stage.holders) {
      const double left = problem_.memory(problem_.device(holder)) - held.state - held.once;
      if (left < held.each) return 0;
      if (held.each > 0) least = std::min(least, std::floor(left / held.each));
    }
    return static_cast<int32_t>(std::min(1e9, least * static_cast<double>(stage.holders.size())));
  }

  // The best plan of a layout, in which the stages that are short of memory may recompute; nothing
  // when neither fits.
  std::optional<Candidate> priced(const Layout& layout) {
    std::optional<Candidate> plain = priced_as_is(layout);
    Layout frugal = layout;
    for (const size_t n : in_flight(layout, 0).tight) {
      frugal[n].recompute = true;
      if (fitting_micros(frugal[n]) <= fitting_micros(layout[n])) frugal[n] = layout[n];
    }
    if (frugal == layout || (plain && spent())) return plain;
    std::optional<Candidate> other = priced_as_is(frugal);
    if (!plain || (other && other->step < plain->step)) return other;
    return plain;
  }

  // The best plan of a layout; nothing when it does not fit.
  std::optional<Candidate> priced_as_is(const Layout& layout) {
    Candidate best;
    for (const int32_t more : {0, 1, 2}) {
      Flight flight = in_flight(layout, more);
      if (!flight.fits) return std::nullopt;
      StageShape shape;
      shape.workers = static_cast<int32_t>(cluster_.workers.size());
      shape.micros = settings_.layout.micros;
      shape.split_backward = settings_.split_backward;
      shape.tied = settings_.tied;
      shape.all_reduce = settings_.all_reduce;
      shape.evaluation_micros = settings_.evaluation_micros;
      shape.in_flight = std::move(flight.count);
      shape.speed = speed_;
      auto plan = make_stage_plan(layout, shape);
      if (!plan.ok()) return std::nullopt;
      const auto timeline = price(plan.value(), model_, cluster_, pricing());
      if (!timeline.ok()) return std::nullopt;
      ++priced_;
      ops_ += static_cast<double>(timeline.value().ops);
      count_item(watch_);
      if (timeline.value().makespan >= best.step) continue;
      best = {layout, std::move(plan).value(), timeline.value().makespan};
    }
    return best;
  }

  bool spent() const { return priced_ >= kMostPriced || ops_ >= kMostOps || is_over(watch_); }

  // Moves cuts by one or more layers while this shortens the step.
  void move_cuts(Candidate& candidate) {
    bool better = true;
    while (better && !spent()) {
      better = false;
      for (size_t n = 0; n + 1 < candidate.layout.size() && !spent(); ++n) {
        for (const int32_t by : {-1, 1, -3, 3}) {
          Layout moved = candidate.layout;
          const int32_t cut = moved[n].layer_end + by;
          if (cut <= moved[n].layer_first || cut >= moved[n + 1].layer_end) continue;
          moved[n].layer_end = moved[n + 1].layer_first = cut;
          auto found = priced(moved);
          if (!found || found->step >= candidate.step) continue;
          candidate = std::move(*found);
          better = true;
          how_ = "cuts moved";
        }
      }
    }
  }

  // Lets single stages recompute, or not recompute, while this shortens the step.
  void change_recomputation(Candidate& candidate) {
    bool better = problem_.memory_is_limited();
    while (better && !spent()) {
      better = false;
      for (size_t n = 0; n < candidate.layout.size() && !spent(); ++n) {
        Layout changed = candidate.layout;
        changed[n].recompute = !changed[n].recompute;
        auto found = priced_as_is(changed);
        if (!found || found->step >= candidate.step) continue;
        candidate = std::move(*found);
        better = true;
      }
    }
  }

  // Lets adapt() look for another order of ops and another routing of the best plan.
  Status adapt_best() {
    if (is_over(watch_)) return ok();
    AdaptOptions options;
    options.price = pricing();
    options.least_gain = 0;
    options.watch = watch_;
    Candidate& candidate = kept_.front();
    auto adapted = adapt(candidate.plan, model_, cluster_, options);
    if (!adapted.ok()) return adapted.error();
    if (adapted.value().price >= candidate.step) return ok();
    candidate.plan = std::move(adapted.value().plan);
    candidate.step = adapted.value().price;
    how_ += cat(how_.empty() ? "" : "; ", "another order of ops");
    return ok();
  }

  // All work on all devices, and the way of one micro-batch on the fastest.
  Duration lower_bound() const {
    const Layers all{0, problem_.layer_count()};
    const double work = problem_.forward(all) + problem_.backward(all);
    double fastest = 0, together = 0;
    for (const Worker& worker : cluster_.workers) {
      if (!worker.alive) continue;
      fastest = std::max(fastest, worker.speed);
      together += worker.speed;
    }
    return from_nanoseconds(
        std::floor(std::max(settings_.layout.micros * work / together, work / fastest)));
  }

  PriceOptions pricing() const {
    PriceOptions options;
    options.lower_bound = false;
    options.half_duplex = settings_.layout.half_duplex;
    return options;
  }

  const Model& model_;
  const Cluster& cluster_;
  const InTurnSettings& settings_;
  const LayoutProblem problem_;
  Watch* watch_;
  std::vector<double> speed_;
  std::vector<Candidate> kept_;
  std::string how_;
  int64_t priced_ = 0;
  double ops_ = 0;
};

}  // namespace

Result<InTurnPlan> plan_in_turn(const Model& model, const Cluster& cluster,
                                const InTurnSettings& settings, const std::vector<Layout>& layouts,
                                Watch* watch) {
  return InTurnSearch(model, cluster, settings, watch).run(layouts);
}

}  // namespace tenuto
