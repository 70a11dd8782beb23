#include "world/memory_need.h"

#include <algorithm>

#include "base/memory_left.h"
#include "base/text.h"
#include "world/parameters.h"

namespace tenuto {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kFloat = 4;
// A process's own pages once it has connected, whatever its stage. Measured with two workers: 5 MiB
// and, with torch, 94 MiB.
constexpr double kProcess = 4 * kMebibyte;
constexpr double kTorchProcess = 64 * kMebibyte;
// A transformer block's backward reads 16 activations as wide as the model: the inputs of both
// norms and of the linear layers, queries, keys, values and the activation function's input. Every
// implementation keeps at least 10 of them.
constexpr double kKeptOfBlock = 10;

double parameters_of(const Job& job, const Stage& stage) {
  if (job.device.kind == "paced") return static_cast<double>(job.device.parameter_bytes) / kFloat;
  // The width of a classifier's data is not known here: its first and last layer count as small.
  double count = 0;
  for (const ParameterCard& card :
       parameters_of(job.model, {1, 1}, stage.layer_first, stage.layer_end)) {
    count += static_cast<double>(card.count());
  }
  return count;
}

// What the optimizer keeps of a parameter beside its value.
double moments_of(const Job& job) {
  if (job.device.kind == "paced") return 0;
  return job.optimizer.kind == "adamw" ? 2 : job.optimizer.momentum > 0 ? 1 : 0;
}

// What one micro-batch leaves for its backward.
double stash_of(const Job& job, const Stage& stage) {
  if (job.device.kind == "paced") return static_cast<double>(job.device.message_bytes);
  const ModelSettings& model = job.model;
  const double rows = job.parallel.micro_rows;
  const double wide = rows * model.width * kFloat;
  if (model.kind != "gpt") return wide * (stage.layer_end - stage.layer_first);
  const int32_t blocks =
      std::min(stage.layer_end, model.layers + 1) - std::max(stage.layer_first, 1);
  return kKeptOfBlock * wide * model.sequence * std::max(0, blocks);
}

bool runs(const Plan& plan, WorkerId worker, int32_t stage) {
  const auto& list = plan.schedule.lists[static_cast<size_t>(worker.value)];
  return std::any_of(list.begin(), list.end(), [&](const Op& op) {
    return op.kind == OpKind::Forward && op.stage.value == stage;
  });
}

}  // namespace

double memory_of(const Job& job, const Plan& plan, const std::vector<WorkerId>& workers) {
  const bool torch = job.device.kind != "paced";
  double bytes = static_cast<double>(workers.size()) * (torch ? kTorchProcess : kProcess);
  if (job.device.kind == "cuda") return bytes;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const double parameters = parameters_of(job, stage);
    const double stash = stash_of(job, stage);
    for (const WorkerId holder : stage.holders) {
      if (!std::binary_search(workers.begin(), workers.end(), holder)) continue;
      bytes += parameters * kFloat * (1 + moments_of(job));
      if (runs(plan, holder, static_cast<int32_t>(s))) bytes += parameters * kFloat + stash;
    }
  }
  return bytes;
}

Status check_memory_of(const Job& job, const Plan& plan, const std::vector<WorkerId>& workers) {
  const std::string size =
      job.device.kind == "paced"
          ? cat("messages of ", job.device.message_bytes, " bytes")
          : cat("a model of ", job.model.layers, " layers of width ", job.model.width, " and ",
                job.parallel.micro_rows, " rows a micro-batch");
  return check_memory(cat(workers.size(), workers.size() == 1 ? " worker" : " workers",
                          " on this host, with ", size, ","),
                      memory_of(job, plan, workers));
}

}  // namespace tenuto
