#include "adapt/report/worker_memory.h"

#include <cmath>

#include "adapt/report/figures.h"
#include "base/text.h"

namespace tenuto {

std::vector<WorkerMemory> memory_of_workers(const LayoutProblem& problem, const Plan& plan,
                                            const Cluster& cluster, const Timeline& timeline) {
  const size_t count = plan.schedule.lists.size();
  const std::vector<HeldBytes> held = held_by_workers(problem, plan.stages, count);
  std::vector<int32_t> stages(count, 0);
  for (const Stage& stage : plan.stages) {
    for (const WorkerId holder : stage.holders) ++stages[static_cast<size_t>(holder.value)];
  }
  std::vector<WorkerMemory> all;
  for (size_t w = 0; w < count; ++w) {
    const Worker& worker = cluster.workers[w];
    if (stages[w] == 0 || !worker.alive || worker.memory.count == 0) continue;
    // A micro-batch in one of several stages counts as a part of one in the timeline.
    const double in_flight = timeline.peak_micros[w] * stages[w];
    all.push_back({WorkerId{static_cast<int32_t>(w)}, held[w].bytes(in_flight),
                   static_cast<double>(worker.memory.count)});
  }
  return all;
}

std::string shortage_text(const std::vector<WorkerMemory>& workers) {
  const WorkerMemory* worst = nullptr;
  size_t others = 0;
  for (const WorkerMemory& it : workers) {
    if (it.fits()) continue;
    if (worst != nullptr) ++others;
    if (worst == nullptr || it.needed - it.has > worst->needed - worst->has) worst = &it;
  }
  if (worst == nullptr) return {};
  const auto bytes = [](double number) {
    return cat(static_cast<int64_t>(std::ceil(number)), " bytes (", bytes_text(number), ")");
  };
  return cat("worker ", worst->worker, " needs ", bytes(worst->needed), " of memory and has ",
             bytes(worst->has),
             others == 0   ? std::string()
             : others == 1 ? std::string("; 1 other worker needs more than it has, too")
                           : cat("; ", others, " other workers need more than they have, too"));
}

}  // namespace tenuto
