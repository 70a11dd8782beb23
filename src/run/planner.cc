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

// A clause with the predicted time of a whole step, with reductions, norm and update, to compare
// with measured steps.
std::string promise_of(const Plan& plan, const PlanRequest& request) {
  const auto step = whole_step_time(plan, request.model, request.cluster);
  if (!step.ok()) return {};
  return cat("; a whole step, with its update: ", fixed(to_milliseconds(step.value()), 1), " ms");
}

// Whether the plan would be faster with steps ahead of the norm. A clipped step is run twice, which
// costs at most one whole step.
Planned weigh_update(const PlanRequest& request) {
  constexpr double kLeastGain = 0.02;
  Planned answer{request.request, nullptr, {}, 0};
  const auto barrier = whole_step_time(*request.plan, request.model, request.cluster);
  auto plan = std::make_shared<const Plan>(with_update(*request.plan, true));
  const auto ahead = whole_step_time(*plan, request.model, request.cluster);
  if (!barrier.ok() || !ahead.ok() || !plan->update.staggered) return answer;
  const double before = to_milliseconds(barrier.value());
  const double after = to_milliseconds(ahead.value());
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
  const Duration begun = monotonic_clock().now();
  std::shared_ptr<const Plan> kept;
  {
    const std::lock_guard lock(mutex_);
    kept = cache_.find(request);
  }
  auto chosen = choose_remedy(*request.plan, request.model, request.cluster, request.terms, kept);
  if (!chosen.ok()) return {request.request, nullptr, chosen.error().message};
  RemedyChoice& choice = chosen.value();
  if (request.terms.routes && !kept && choice.moves.empty()) {
    keep(request, choice.plan ? *choice.plan : *request.plan);
  }
  Planned answered{request.request, choice.plan, std::move(choice.reason)};
  if (choice.moves.empty()) {
    answered.reason += promise_of(choice.plan ? *choice.plan : *request.plan, request);
  }
  answered.reason += cat(" (", kept ? "found" : "planned", " in ",
                         fixed(to_milliseconds(monotonic_clock().now() - begun), 1), " ms)");
  answered.moves = std::move(choice.moves);
  answered.pays_after = choice.pays_after;
  answered.observed = std::move(choice.observed);
  answered.alternatives = std::move(choice.alternatives);
  answered.expected_steps = choice.expected_steps;
  return answered;
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
      const auto chosen =
          choose_remedy(*request->plan, request->model, request->cluster, request->terms);
      if (chosen.ok()) keep(*request, chosen.value().plan ? *chosen.value().plan : *request->plan);
    }
    const std::lock_guard lock(mutex_);
    // A newer situation that has come meanwhile begins with its own first worker.
    if (ahead_->situation.request == situation.request && ahead_->next == worker) ++ahead_->next;
  }
}

}  // namespace tenuto
