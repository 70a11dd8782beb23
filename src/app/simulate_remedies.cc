#include "app/simulate_remedies.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "adapt/adapt.h"
#include "plan/fine_stages.h"
#include "remedy/forecast.h"
#include "sim/bound.h"

namespace tenuto {
namespace {

// The workers that a "kill" has ended and no "start" has brought back.
void leave_out_killed(Cluster& cluster, const std::vector<Fault>& faults, int64_t step,
                      const Seats& seats) {
  for (size_t w = 0; w < cluster.workers.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    int64_t newest = -1;
    for (const Fault& fault : faults) {
      const bool counts = fault.kind == "kill" || fault.kind == "start";
      if (!counts || fault.at_step > step || fault.at_step < newest) continue;
      if (worker_of(fault, seats) != worker) continue;
      newest = fault.at_step;
      cluster.workers[w].alive = fault.kind == "start";
    }
    if (cluster.workers[w].alive) continue;
    cluster.workers[w].speed = 1;
    std::erase_if(cluster.exceptions, [&](const auto& link) {
      return link.first.first == worker || link.first.second == worker;
    });
  }
}

// A lower bound on a step of a plan, over all orders and routes. The step ends as the plan's does:
// under a staggered update steps overlap.
Result<Duration> bound_of(const Plan& plan, const Model& model, const Cluster& cluster) {
  const std::optional<Plan> coarse = with_coarse_stages(plan);
  const Plan& divided = coarse ? *coarse : plan;
  PriceOptions options;
  options.update = false;
  options.staggered = plan.update.staggered;
  const auto routed = bound_of_routings(divided, model, cluster, options);
  if (!routed.ok()) return routed.error();
  if (routed.value()) return *routed.value();
  return lower_bound(plan, plan.schedule, model, cluster, options);
}

Result<RehearsedJob> with_bounds(Rehearsed run, const Rehearsal& rehearsal) {
  RehearsedJob job;
  size_t episode = 0;
  int64_t end = rehearsal.episodes.front().steps;  // of the episode
  for (const RehearsedSteps& part : run.parts) {
    while (part.first >= end) end += rehearsal.episodes[++episode].steps;
    const auto bound = bound_of(part.plan, rehearsal.model, rehearsal.episodes[episode].cluster);
    if (!bound.ok()) return bound.error();
    job.bounds.push_back(bound.value());
    job.bound_ms += static_cast<double>(part.end - part.first) * to_milliseconds(bound.value());
  }
  job.run = std::move(run);
  return job;
}

}  // namespace

Result<std::optional<RehearsedJob>> rehearse_job(const SimulationCase& it, int64_t iterations) {
  if (!it.remedies || !it.remedies->order) return std::optional<RehearsedJob>();
  std::vector<int64_t> moments = {0, iterations};
  for (const int64_t step : change_steps(it.faults)) moments.push_back(step);
  for (const Fault& fault : it.faults) {
    if (fault.kind == "kill" || fault.kind == "start") moments.push_back(fault.at_step);
  }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  Rehearsal rehearsal;
  rehearsal.plan = it.plan;
  rehearsal.model = it.model;
  rehearsal.healthy = it.cluster;
  rehearsal.order = it.remedies->order;
  rehearsal.routes = it.remedies->routes;
  rehearsal.layers = it.remedies->layers;
  bool changes = false;
  for (size_t i = 0; i + 1 < moments.size() && moments[i] < iterations; ++i) {
    Cluster cluster = with_faults(it.cluster, it.faults, moments[i], it.seats);
    leave_out_killed(cluster, it.faults, moments[i], it.seats);
    changes = changes || !same_situation(cluster, it.cluster);
    rehearsal.episodes.push_back(
        {std::move(cluster), std::min(moments[i + 1], iterations) - moments[i]});
  }
  if (!changes) return std::optional<RehearsedJob>();
  auto rehearsed = rehearse(rehearsal);
  if (!rehearsed.ok()) return rehearsed.error();
  auto job = with_bounds(std::move(rehearsed).value(), rehearsal);
  if (!job.ok()) return job.error();
  return std::optional<RehearsedJob>(std::move(job).value());
}

}  // namespace tenuto
