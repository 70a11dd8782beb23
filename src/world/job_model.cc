#include "world/job_model.h"

#include <map>
#include <utility>
#include <vector>

#include "world/fit.h"
#include "world/model_profile.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Repeats a single number for each worker of a pipeline; keeps a longer list.
std::vector<double> spread(const std::vector<double>& times, int32_t workers) {
  return times.size() == 1 ? std::vector<double>(at(workers), times[0]) : times;
}

Bytes message_of(const Job& job) {
  if (job.device.kind == "paced" || job.model.kind == "module") return {job.device.message_bytes};
  constexpr int64_t kFloat = 4;
  const int64_t rows =
      int64_t{job.parallel.micro_rows} * (job.model.kind == "gpt" ? job.model.sequence : 1);
  return {rows * job.model.width * kFloat};
}

// The model of a plan. A stage takes its share of the time of its worker.
Model model_of(const Plan& plan, const WorkerTimes& times, const std::vector<TimeShare>& shares) {
  Model model;
  model.layers.resize(at(plan.stages.back().layer_end));
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    const TimeShare& share = shares[s];
    const auto part = [&](const std::vector<double>& of) {
      return from_milliseconds(of[at(share.place)] / share.chunks);
    };
    Layer& layer = model.layers[at(stage.layer_first)];
    layer.forward = part(times.forward);
    layer.backward_input = part(times.backward_input);
    layer.backward_weight = part(times.backward_weight);
    layer.parameters = times.parameters;
    model.layers[at(stage.layer_end) - 1].activation = times.message;
  }
  return model;
}

// The times and bytes of the layers, for job_model().
Model costs_of(const Job& job, const Plan& plan) {
  if (job.device.layers != nullptr) {
    return model_at(*job.device.layers, job.parallel.micro_rows);
  }
  const int32_t workers = job.parallel.stages;
  WorkerTimes times;
  times.message = message_of(job);
  times.parameters = {job.device.parameter_bytes};
  if (job.device.kind != "paced") {
    times.forward = times.backward_input = times.backward_weight =
        std::vector<double>(at(workers), 0.0);
    return model_of(plan, times);
  }
  times.forward = spread(job.device.forward_ms, workers);
  times.backward_input = spread(job.device.backward_input_ms, workers);
  times.backward_weight = spread(job.device.backward_weight_ms, workers);
  if (!has_fine_stages(job)) return model_of(plan, times);
  std::vector<TimeShare> shares;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    shares.push_back(time_share_of(job, plan.stages, {static_cast<int32_t>(s)}));
  }
  return model_of(plan, times, shares);
}

}  // namespace

Model model_of(const Plan& plan, const WorkerTimes& times) {
  const auto workers = static_cast<int32_t>(times.forward.size());
  std::map<WorkerId, TimeShare> by_holder;  // the first holder; all its stages have one share
  std::vector<TimeShare> shares;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const WorkerId holder = plan.stages[s].holders.front();
    if (by_holder.count(holder) == 0) {
      by_holder[holder] = time_share_of(plan.stages, workers, {static_cast<int32_t>(s)});
    }
    shares.push_back(by_holder[holder]);
  }
  return model_of(plan, times, shares);
}

bool sums_grow(const Job& job) {
  return job.device.kind == "cpu" && job.resilience.numerics == "fast";
}

Model job_model(const Job& job, const Plan& plan) {
  Model model = costs_of(job, plan);
  model.sums_grow = sums_grow(job);
  return model;
}

}  // namespace tenuto
