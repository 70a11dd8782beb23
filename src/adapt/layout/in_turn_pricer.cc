#include "adapt/layout/in_turn_pricer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/longest_time.h"
#include "plan/looped_plan.h"
#include "plan/stage_plan.h"
#include "sim/price.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr int32_t kMostAhead = 2;
// A number of micro-batches that no step has.
constexpr int32_t kMost = 1'000'000'000;
// near_form() tries other forms only if the step is at most this multiple of the step to beat.
constexpr double kNear = 1.04;

std::vector<bool> splits_of(const Model& model, const InTurnSettings& settings) {
  if (settings.split_backward) return {*settings.split_backward};
  const bool apart = std::any_of(model.layers.begin(), model.layers.end(), [](const Layer& layer) {
    return layer.backward_weight.count() > 0;
  });
  return apart ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

}  // namespace

InTurnPricer::InTurnPricer(const Model& model, const Cluster& cluster,
                           const InTurnSettings& settings, Watch* watch)
    : model_(model),
      cluster_(cluster),
      settings_(settings),
      problem_(model, cluster, settings.layout),
      watch_(watch),
      splits_(splits_of(model, settings)) {
  for (const Worker& worker : cluster.workers) speed_.push_back(worker.speed);
}

// A stage's times for a whole micro-batch on its slowest holder, and its time per micro-batch.
InTurnPricer::Pace InTurnPricer::pace_of(const Stage& stage) const {
  const Layers layers{stage.layer_first, stage.layer_end};
  double slowest = speed_[at(stage.holders.front().value)], all = 0;
  for (const WorkerId holder : stage.holders) {
    slowest = std::min(slowest, speed_[at(holder.value)]);
    all += speed_[at(holder.value)];
  }
  const StageWork work = stage_work(problem_, layers, stage.recompute, 1);
  return {work.forward / slowest, work.backward / slowest, work.both() / all};
}

// The time of one transfer between two stages over the slowest link between their holders.
double InTurnPricer::transfer(const Stage& from, const Stage& to) const {
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

// How many micro-batches each stage has in flight. To keep all stages busy, a stage needs its round
// trip time divided by the period. `ahead` adds more for each holder, so that the next micro-batch
// is there when a holder becomes free. The memory of the holders limits the number.
InTurnPricer::Flight InTurnPricer::in_flight(const Layout& layout, int32_t ahead) const {
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
        static_cast<int32_t>(std::min(1e6, needed)) + (n + 1 < count ? ahead * holders : 0);
    const int32_t fitting = fitting_micros(layout[n]);
    const int32_t most = std::min(wanted, settings_.layout.micros);
    if (fitting < most) flight.tight.push_back(n);
    flight.fits = flight.fits && fitting > 0;
    flight.count[n] = std::max(holders, std::min(most, fitting));
  }
  return flight;
}

// How many micro-batches each worker has memory for; 0 for a worker that holds no stage.
std::vector<int32_t> InTurnPricer::fitting_by_worker(const Layout& layout) const {
  std::vector<int32_t> fitting(cluster_.workers.size(), 0);
  for (const Stage& stage : layout) {
    const HeldBytes held = held_bytes(problem_, stage);
    for (const WorkerId holder : stage.holders) {
      const double memory = problem_.memory(problem_.device(holder));
      fitting[at(holder.value)] = held.most_in_flight(memory, kMost);
    }
  }
  return fitting;
}

// How many micro-batches all holders of a stage together have memory for.
int32_t InTurnPricer::fitting_micros(const Stage& stage) const {
  const int64_t least =  // of one holder
      held_bytes(problem_, stage).most_in_flight(least_memory(problem_, stage), kMost);
  return static_cast<int32_t>(
      std::min<int64_t>(kMost, least * static_cast<int64_t>(stage.holders.size())));
}

// The layout after turning on recomputation in the stages that are short of memory, where this
// allows more micro-batches in flight.
Layout InTurnPricer::frugal(const Layout& layout) const {
  Layout changed = layout;
  for (const size_t n : in_flight(layout, 0).tight) {
    changed[n].recompute = true;
    if (fitting_micros(changed[n]) <= fitting_micros(layout[n])) changed[n] = layout[n];
  }
  return changed;
}

// Whether all chunks of every worker fit into its memory together.
bool InTurnPricer::chunks_fit(const Plan& plan, const Layout& layout) const {
  const std::vector<HeldBytes> all = held_by_workers(problem_, layout, plan.schedule.lists.size());
  for (const Stage& stage : layout) {
    for (const WorkerId holder : stage.holders) {
      const size_t worker = at(holder.value);
      const double need = all[worker].bytes(plan.limits[worker].micros);
      if (need > problem_.memory(problem_.device(holder))) return false;
    }
  }
  return true;
}

std::optional<InTurnCandidate> InTurnPricer::priced_as(const Layout& layout,
                                                       const InTurnForm& form) {
  StageShape shape;
  shape.workers = static_cast<int32_t>(cluster_.workers.size());
  shape.micros = settings_.layout.micros;
  shape.split_backward = form.split_backward;
  shape.tied = settings_.tied;
  shape.all_reduce = settings_.all_reduce;
  shape.evaluation_micros = settings_.evaluation_micros;
  if (form.chunks == 0) {
    Flight flight = in_flight(layout, form.ahead);
    if (!flight.fits) return std::nullopt;
    shape.in_flight = std::move(flight.count);
    shape.fitting = fitting_by_worker(layout);
    shape.speed = speed_;
  }
  auto plan = form.chunks == 0
                  ? make_stage_plan(layout, shape)
                  : make_looped_plan(layout, form.chunks,
                                     form.listed ? Dispatch::Listed : Dispatch::Ready, shape);
  if (!plan.ok() || (form.chunks > 0 && !chunks_fit(plan.value(), layout))) return std::nullopt;
  const auto timeline = price(plan.value(), model_, cluster_, pricing());
  if (!timeline.ok()) return std::nullopt;
  ++priced_;
  ops_ += static_cast<double>(timeline.value().ops);
  count_item(watch_);
  return InTurnCandidate{layout, form, std::move(plan).value(), timeline.value().makespan};
}

// All forms with this number of chunks.
std::vector<InTurnForm> InTurnPricer::forms(int32_t chunks) const {
  std::vector<InTurnForm> all;
  for (const bool split : splits_) {
    for (int32_t ahead = 0; chunks == 0 && ahead <= kMostAhead; ++ahead) {
      all.push_back({split, ahead, false, 0});
    }
    if (chunks == 0) continue;
    if (!settings_.pipelines) all.push_back({split, 0, false, chunks});
    all.push_back({split, 0, true, chunks});
  }
  return all;
}

std::optional<InTurnCandidate> InTurnPricer::best_of(const Layout& layout) {
  return near_form(layout, {splits_.front(), 0, false, 0}, kLongestTime);
}

std::optional<InTurnCandidate> InTurnPricer::near_form(const Layout& layout, InTurnForm form,
                                                       Duration near) {
  std::optional<InTurnCandidate> best = near_form_as_is(layout, form, near);
  if (form.chunks > 0) return best;
  const Layout changed = frugal(layout);
  if (changed == layout) return best;
  std::optional<InTurnCandidate> other =
      near_form_as_is(changed, form, best ? std::min(best->step, near) : near);
  return !best || (other && other->step < best->step) ? other : best;
}

// near_form() without changes to which stages recompute.
std::optional<InTurnCandidate> InTurnPricer::near_form_as_is(const Layout& layout, InTurnForm form,
                                                             Duration near) {
  std::optional<InTurnCandidate> best = priced_as(layout, form);
  if (!best || to_milliseconds(best->step) > kNear * to_milliseconds(near)) return best;
  for (const InTurnForm& other_form : forms(form.chunks)) {
    if (other_form == form) continue;
    auto other = priced_as(layout, other_form);
    if (other && other->step < best->step) best = std::move(other);
  }
  return best;
}

Duration InTurnPricer::least_step(const Layout& layout) const {
  const double micros = settings_.layout.micros;
  // With a split backward, a micro-batch need not wait for whole backwards on its way back.
  const bool back = !splits_.back();
  double least = 0, before = 0;
  for (const Stage& stage : layout) {
    const Layers layers{stage.layer_first, stage.layer_end};
    const auto [forward, backward] = stage_work(problem_, layers, stage.recompute, 1);
    double fastest = 0, all = 0;
    for (const WorkerId holder : stage.holders) {
      fastest = std::max(fastest, speed_[at(holder.value)]);
      all += speed_[at(holder.value)];
    }
    const double whole = std::ceil(micros / static_cast<double>(stage.holders.size()) - 1e-9);
    const double work = (forward + backward) * std::max(micros / all, whole / fastest);
    least = std::max(least, before + work);
    before += (forward + (back ? backward : 0)) / fastest;
  }
  return from_nanoseconds(std::floor(least));
}

// The larger of two times: all work on all devices, and one micro-batch on the fastest device.
Duration InTurnPricer::lower_bound() const {
  const Layers all{0, problem_.layer_count()};
  // A micro-batch passes through at least one stage.
  const double work = stage_work(problem_, all, false, 1).both();
  double fastest = 0, together = 0;
  for (const Worker& worker : cluster_.workers) {
    if (!worker.alive) continue;
    fastest = std::max(fastest, worker.speed);
    together += worker.speed;
  }
  return from_nanoseconds(
      std::floor(std::max(settings_.layout.micros * work / together, work / fastest)));
}

PriceOptions InTurnPricer::pricing() const {
  PriceOptions options;
  options.lower_bound = false;
  return options;
}

}  // namespace tenuto
