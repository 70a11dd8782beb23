#include "world/memory_need.h"

#include <algorithm>

#include "base/memory_left.h"
#include "base/text.h"
#include "world/held_bytes.h"
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
  if (job.model.kind == "module") return 0;  // only the script knows them
  // The width of a classifier's data is not known here: its first and last layer count as small.
  double count = 0;
  for (const ParameterCard& card :
       parameters_of(job.model, {1, 1}, stage.layer_first, stage.layer_end)) {
    count += static_cast<double>(card.count());
  }
  return count;
}

// The bytes of an activation that one stage sends to the next.
double activation_of(const Job& job) {
  if (job.model.kind == "module") return static_cast<double>(job.device.message_bytes);
  const double rows = job.parallel.micro_rows;
  return rows * (job.model.kind == "gpt" ? job.model.sequence : 1) * job.model.width * kFloat;
}

// The bytes that a stage's backward of one micro-batch reads.
double stash_of(const Job& job, const Stage& stage) {
  const double wide = activation_of(job);
  if (job.model.kind != "gpt") return wide * (stage.layer_end - stage.layer_first);
  const int32_t blocks =
      std::min(stage.layer_end, job.model.layers + 1) - std::max(stage.layer_first, 1);
  return kKeptOfBlock * wide * std::max(0, blocks);
}

// The least number of micro-batches of a stage that the worker holds at its peak. Listed dispatch:
// the most between forward and input gradient. Ready: those of the warm-up. 0 = it runs none.
int32_t held_of(const Plan& plan, WorkerId worker, int32_t stage) {
  const auto w = static_cast<size_t>(worker.value);
  const bool listed = plan.dispatch == Dispatch::Listed;
  const int32_t warm_up = w < plan.limits.size() ? std::max(1, plan.limits[w].warm_up) : 1;
  int32_t forwards = 0, held = 0, most = 0;
  for (const Op& op : plan.schedule.lists[w]) {
    if (op.kind == OpKind::Forward) ++forwards;
    if (op.stage.value != stage) continue;
    if (op.kind == OpKind::Forward) ++held;
    if (op.kind == OpKind::BackwardInput) --held;
    if (listed || forwards <= warm_up || most == 0) most = std::max(most, held);
  }
  return most;
}

// The bytes that a worker keeps for the backwards of stage `s` with `held` micro-batches.
double kept_of(const Job& job, const Plan& plan, int32_t s, int32_t held) {
  if (job.device.kind == "paced") return static_cast<double>(job.device.message_bytes);
  const Stage& stage = plan.stages[static_cast<size_t>(s)];
  const double stash = stash_of(job, stage);
  return held_bytes(0, stash, s > 0 ? activation_of(job) : 0, stage.recompute).bytes(held);
}

}  // namespace

double moments_of(const Job& job) {
  // A script alone knows its parameters and the tensors of its optimizer.
  if (job.device.kind == "paced" || job.optimizer.kind == "torch") return 0;
  return job.optimizer.kind == "adamw" ? 2 : job.optimizer.momentum > 0 ? 1 : 0;
}

double memory_of(const Job& job, const Plan& plan, const std::vector<WorkerId>& workers) {
  const bool torch = job.device.kind != "paced";
  double bytes = static_cast<double>(workers.size()) * (torch ? kTorchProcess : kProcess);
  if (job.device.kind == "cuda") return bytes;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const double parameters = parameters_of(job, stage);
    for (const WorkerId holder : stage.holders) {
      if (!std::binary_search(workers.begin(), workers.end(), holder)) continue;
      // Any holder may be the one that saves the stage, and then keeps a copy of its state.
      const double copies = job.checkpoint_asynchronous ? 2 : 1;
      bytes += parameters * kFloat * (1 + moments_of(job)) * copies;
      const int32_t held = held_of(plan, holder, static_cast<int32_t>(s));
      if (held == 0) continue;
      bytes += parameters * kFloat + kept_of(job, plan, static_cast<int32_t>(s), held);
    }
  }
  return bytes;
}

Status check_memory_of(const Job& job, const Plan& plan, const std::vector<WorkerId>& workers) {
  const std::string size =
      job.device.kind == "paced" ? cat("messages of ", job.device.message_bytes, " bytes")
      : job.model.kind == "module"
          ? cat("a model of ", job.model.layers, " modules and ", job.parallel.micro_rows,
                " rows a micro-batch")
          : cat("a model of ", job.model.layers, " layers of width ", job.model.width, " and ",
                job.parallel.micro_rows, " rows a micro-batch");
  return check_memory(cat(workers.size(), workers.size() == 1 ? " worker" : " workers",
                          " on this host, with ", size, ","),
                      memory_of(job, plan, workers));
}

}  // namespace tenuto
