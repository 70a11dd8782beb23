#include "run/promise.h"

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "ir/plan.h"

namespace tenuto {

namespace {

// A price of so many ops takes some tens of milliseconds.
constexpr size_t kMostOps = 100'000;

}  // namespace

std::vector<Span> promised_spans(const PlanRequest& request) {
  size_t ops = 0;
  for (const std::vector<Op>& list : request.plan->schedule.lists) ops += list.size();
  if (ops == 0 || ops > kMostOps) return {};
  PriceOptions options;
  options.spans = true;
  options.lower_bound = false;
  options.staggered = request.plan->update.staggered;
  options.steps = 2;  // the spans are those of the first one
  Result<Timeline> timeline = price(*request.plan, request.model, request.cluster, options);
  if (!timeline.ok()) return {};
  return std::move(timeline).value().spans;
}

}  // namespace tenuto
