#include "run/planner.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "ir/effect.h"
#include "plan/lower.h"
#include "plan/routed.h"
#include "sim/price.h"

namespace tenuto {
namespace {

constexpr int kPoliteness = 10;  // niceness of the thread that makes plans ahead

AdaptOptions options_of(const PlanRequest& request) {
  AdaptOptions options;
  options.price.update = false;
  options.price.staggered = request.plan->update.staggered;
  options.routing = request.routing;
  options.steps_in_turn = true;
  return options;
}

// The time of a step under the plan; nothing when it cannot run.
std::optional<Duration> price_of(const Plan& plan, const PlanRequest& request) {
  PriceOptions options = options_of(request).price;
  options.lower_bound = false;
  // Leave the update out of the price where it is the same in all plans.
  options.update = sums_follow_cluster(plan.schedule);
  const auto priced = price(plan, request.model, request.cluster, options);
  return priced.ok() ? std::optional(priced.value().period) : std::nullopt;
}

// A clause with the predicted time of a whole step, with reductions, norm and update, to compare
// with measured steps.
std::string promise_of(const Plan& plan, const PlanRequest& request) {
  PriceOptions whole;
  whole.lower_bound = false;
  whole.staggered = plan.update.staggered;
  const auto step = price(plan, request.model, request.cluster, whole);
  if (!step.ok()) return {};
  return cat("; a whole step, with its update: ", fixed(to_milliseconds(step.value().period), 1),
             " ms");
}

// Whether the plan would be faster with steps ahead of the norm. A clipped step is run twice, which
// costs at most one whole step.
Planned weigh_update(const PlanRequest& request) {
  constexpr double kLeastGain = 0.02;
  Planned answer{request.request, nullptr, {}, 0};
  PriceOptions pricing;
  pricing.lower_bound = false;
  pricing.in_turn = true;
  const auto barrier = price(*request.plan, request.model, request.cluster, pricing);
  auto plan = std::make_shared<const Plan>(with_update(*request.plan, true));
  pricing.in_turn = false;
  pricing.staggered = true;
  const auto ahead = price(*plan, request.model, request.cluster, pricing);
  if (!barrier.ok() || !ahead.ok() || !plan->update.staggered) return answer;
  const double before = to_milliseconds(barrier.value().period);
  const double after = to_milliseconds(ahead.value().period);
  const double gain = before > 0 ? (before - after) / before : 0;
  if (gain < kLeastGain) return answer;
  answer.plan = std::move(plan);
  answer.bearable = gain;
  answer.reason = cat("steps without waiting for the norm: ", fixed(after, 3), " ms instead of ",
                      fixed(before, 3), " ms, faster while at most ", fixed(100 * gain, 1),
                      " % of them are clipped");
  return answer;
}

// The request that the coordinator would make if this worker died too; nothing when the others
// could not go on or the worker is dead already.
std::optional<PlanRequest> without(const PlanRequest& situation, int32_t worker) {
  PlanRequest request = situation;
  auto& workers = request.cluster.workers;
  if (!workers[static_cast<size_t>(worker)].alive) return std::nullopt;
  workers[static_cast<size_t>(worker)].alive = false;
  std::erase_if(request.cluster.exceptions, [&](const auto& link) {
    return link.first.first.value == worker || link.first.second.value == worker;
  });
  std::vector<bool> alive;
  for (const Worker& each : workers) alive.push_back(each.alive);
  auto plan = without_workers(*situation.plan, alive);
  if (!plan.ok()) return std::nullopt;
  request.plan = std::make_shared<const Plan>(std::move(plan).value());
  return request;
}

}  // namespace

Planner::Planner(std::function<void()> wake)
    : wake_(std::move(wake)),
      thread_([this] { answer_requests(); }),
      ahead_thread_([this] { work_ahead(); }) {}

Planner::~Planner() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
  ahead_thread_.join();
}

void Planner::ask(PlanRequest request) {
  {
    const std::lock_guard lock(mutex_);
    asked_ = std::move(request);
  }
  changed_.notify_all();
}

std::vector<Planned> Planner::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answers_, {});
}

void Planner::make_ahead(PlanRequest situation) {
  {
    const std::lock_guard lock(mutex_);
    ahead_ = Ahead{std::move(situation), 0};
  }
  changed_.notify_all();
}

int32_t Planner::made_ahead() const {
  const std::lock_guard lock(mutex_);
  return ahead_ ? ahead_->next : 0;
}

void Planner::keep(const PlanRequest& request, const Plan& plan) {
  auto kept = std::make_shared<const Plan>(plan);
  const std::lock_guard lock(mutex_);
  cache_.keep(request, std::move(kept));
}

Planned Planner::answer(const PlanRequest& request) {
  if (request.update) return weigh_update(request);
  Planned answered = answer_without_moves(request);
  if (!request.layers) return answered;
  // Layers move only if that gains something beyond the best plan in which they stay.
  const Plan& plan = answered.plan ? *answered.plan : *request.plan;
  auto found = find_layer_moves(plan, request.model, request.cluster, *request.layers);
  if (!found.ok()) return answered;
  LayerMoves& moves = found.value();
  answered.pays_after = moves.pays_after;
  if (moves.moves.empty()) {
    if (moves.pays_after >= 0) answered.reason += cat("; ", moves.reason);
    return answered;
  }
  answered.plan = std::make_shared<const Plan>(std::move(moves.plan));
  answered.moves = std::move(moves.moves);
  answered.reason = std::move(moves.reason);
  return answered;
}

Planned Planner::answer_without_moves(const PlanRequest& request) {
  const Duration begun = monotonic_clock().now();
  std::shared_ptr<const Plan> kept;
  {
    const std::lock_guard lock(mutex_);
    kept = cache_.find(request);
  }
  const auto took = [&](const char* how) {
    return cat(" (", how, " in ", fixed(to_milliseconds(monotonic_clock().now() - begun), 1),
               " ms)");
  };
  const auto price = kept ? price_of(*kept, request) : std::nullopt;
  if (price) {
    const AdaptOptions options;
    const auto present = price_of(*request.plan, request);
    const bool pays =
        !present || static_cast<double>(price->count()) <=
                        (1 - options.least_gain) * static_cast<double>(present->count());
    if (!pays) {
      return {request.request, nullptr,
              cat("the plan ", request.plan->order, " stays: one made ahead is not ",
                  fixed(100 * options.least_gain, 0), " % faster", took("found"))};
    }
    return {request.request, kept,
            cat("made ahead: ", fixed(to_milliseconds(*price), 3), " ms",
                present ? cat(" instead of ", fixed(to_milliseconds(*present), 3), " ms")
                        : std::string(),
                promise_of(*kept, request), took("found"))};
  }
  const Result<Adapted> adapted =
      adapt(*request.plan, request.model, request.cluster, options_of(request));
  if (!adapted.ok()) return {request.request, nullptr, adapted.error().message};
  const Adapted& found = adapted.value();
  if (request.routing) keep(request, found.plan);
  return {request.request, found.changed ? std::make_shared<const Plan>(found.plan) : nullptr,
          found.reason + promise_of(found.plan, request) + took("planned")};
}

void Planner::answer_requests() {
  for (;;) {
    std::optional<PlanRequest> request;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return leaving_ || asked_; });
      if (leaving_) return;
      request = std::exchange(asked_, std::nullopt);
    }
    Planned answered = answer(*request);
    {
      const std::lock_guard lock(mutex_);
      answers_.push_back(std::move(answered));
    }
    wake_();
  }
}

void Planner::work_ahead() {
  (void)nice(kPoliteness);  // of this thread alone, on Linux
  for (;;) {
    PlanRequest situation;
    int32_t worker = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] {
        return leaving_ || (ahead_ && ahead_->next < static_cast<int32_t>(
                                                         ahead_->situation.cluster.workers.size()));
      });
      if (leaving_) return;
      situation = ahead_->situation;
      worker = ahead_->next;
    }
    const auto request = without(situation, worker);
    if (request) {
      const auto adapted =
          adapt(*request->plan, request->model, request->cluster, options_of(*request));
      if (adapted.ok()) keep(*request, adapted.value().plan);
    }
    const std::lock_guard lock(mutex_);
    // A newer situation that has come meanwhile begins with its own first worker.
    if (ahead_->situation.request == situation.request && ahead_->next == worker) ++ahead_->next;
  }
}

}  // namespace tenuto
