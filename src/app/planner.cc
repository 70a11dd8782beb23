#include "app/planner.h"

#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "ir/effect.h"

namespace tenuto {
namespace {

Planned answer(const PlanRequest& request) {
  const Duration begun = monotonic_clock().now();
  AdaptOptions options;
  options.price.update = false;
  options.price.staggered = is_staggered(request.plan->schedule);
  options.routing = request.routing;
  const Result<Adapted> adapted = adapt(*request.plan, request.model, request.cluster, options);
  if (!adapted.ok()) return {request.request, nullptr, adapted.error().message};
  const std::string took =
      cat(" (planned in ", fixed(to_milliseconds(monotonic_clock().now() - begun), 1), " ms)");
  const Adapted& found = adapted.value();
  PriceOptions whole;  // with reductions, norm and update, as a step is measured
  whole.lower_bound = false;
  whole.staggered = is_staggered(found.plan.schedule);
  const auto step = price(found.plan, request.model, request.cluster, whole);
  const std::string promise = step.ok() ? cat("; a whole step, with its update: ",
                                              fixed(to_milliseconds(step.value().period), 1), " ms")
                                        : std::string();
  return {request.request, found.changed ? std::make_shared<const Plan>(found.plan) : nullptr,
          found.reason + promise + took};
}

}  // namespace

Planner::Planner(std::function<void()> wake)
    : wake_(std::move(wake)), thread_([this] { work(); }) {}

Planner::~Planner() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
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

void Planner::work() {
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

}  // namespace tenuto
