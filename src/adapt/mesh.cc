#include "adapt/mesh.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "sim/route.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Sets the pipeline of each holder of a stage, from its worker number (base/id.h), since its place
// among the holders changes when some are lost. A holder that came from another stage takes its own
// pipeline if that has no holder here, else the first pipeline that has none.
void seat_in_pipelines(std::vector<Holder>& holders, int32_t stage, int32_t depth,
                       int32_t pipelines) {
  std::vector<bool> taken(at(pipelines), false);
  const auto at_home = [&](const Holder& it) {
    return it.worker.value % depth == stage && it.worker.value / depth < pipelines;
  };
  for (Holder& holder : holders) {
    if (!at_home(holder)) continue;
    holder.pipeline = holder.worker.value / depth;
    taken[at(holder.pipeline)] = true;
  }
  for (Holder& holder : holders) {
    if (at_home(holder)) continue;
    const int32_t own = std::min(holder.worker.value / depth, pipelines - 1);
    const auto free = std::find(taken.begin(), taken.end(), false);
    holder.pipeline =
        !taken[at(own)] || free == taken.end() ? own : static_cast<int32_t>(free - taken.begin());
    taken[at(holder.pipeline)] = true;
  }
}

Way way_of(const Costs& costs, int32_t stage, const Holder& from, const Holder& to) {
  const Transit down = costs.transit(from.worker, to.worker, ValueKind::Activation, {stage});
  const Transit up = costs.transit(to.worker, from.worker, ValueKind::Gradient, {stage + 1});
  return {down.latency, up.latency, down.busy, up.busy};
}

}  // namespace

Error too_little_memory(WorkerId worker, int32_t stage, const MemoryLimit& memory) {
  return {Code::Exhausted, Reach::Worker,
          cat("worker ", worker, " (stage ", stage, ") may hold ", memory.most,
              " and one micro-batch takes ", memory.whole, ": raise the memory limit")};
}

bool holds_apart(const Plan& plan) {
  std::set<WorkerId> seen;
  for (const Stage& stage : plan.stages) {
    for (const WorkerId holder : stage.holders) {
      if (!seen.insert(holder).second) return false;
    }
  }
  return true;
}

Result<Mesh> mesh_of(const Plan& plan, const Model& model, const Cluster& cluster,
                     const PriceOptions& options) {
  const Costs costs(plan, model, cluster, options);
  Mesh mesh;
  const auto workers = static_cast<int32_t>(plan.schedule.lists.size());
  const auto depth = static_cast<int32_t>(plan.stages.size());
  mesh.pipelines = std::max(1, workers / depth);
  mesh.micros = plan.schedule.micro_count;
  mesh.split_backward = plan.split_backward;
  if (options.staggered) mesh.pace = options.update ? Pace::Joint : Pace::Apart;
  for (int32_t s = 0; s < depth; ++s) {
    auto& holders = mesh.stages.emplace_back();
    const Duration update = stage_cost(model, plan.stages[at(s)]).update;
    for (const WorkerId id : plan.stages[at(s)].holders) {
      const Worker& worker = cluster.workers[at(id.value)];
      if (!worker.alive || worker.speed <= 0) continue;
      Holder holder;
      holder.worker = id;
      holder.forward = costs.op(OpKind::Forward, id, {s});
      holder.backward = costs.op(OpKind::BackwardInput, id, {s});
      holder.weight = costs.op(OpKind::BackwardWeight, id, {s});
      if (options.update) holder.update = at_speed(update, worker.speed);
      if (at(id.value) < plan.limits.size()) holder.memory = plan.limits[at(id.value)].memory;
      if (holder.memory.most_whole(mesh.micros) < 1) return too_little_memory(id, s, holder.memory);
      holders.push_back(holder);
    }
    seat_in_pipelines(holders, s, depth, mesh.pipelines);
    if (holders.empty()) {
      return Error{Code::Infeasible, Reach::Job,
                   cat("no live worker holds stage ", s, ": start one of its holders")};
    }
  }
  for (int32_t s = 0; s + 1 < mesh.depth(); ++s) {
    auto& ways = mesh.ways.emplace_back();
    for (const Holder& from : mesh.stages[at(s)]) {
      for (const Holder& to : mesh.stages[at(s) + 1]) ways.push_back(way_of(costs, s, from, to));
    }
  }
  return mesh;
}

}  // namespace tenuto
