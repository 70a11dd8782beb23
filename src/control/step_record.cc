#include "control/step_record.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "control/query.h"

namespace tenuto {
namespace {

double mean(const std::map<int32_t, double>& losses) {
  double sum = 0;
  for (const auto& [micro, loss] : losses) sum += loss;
  return losses.empty() ? 0 : sum / static_cast<double>(losses.size());
}

// From the start of a step's first op to the end of its last weight gradient, over all workers.
struct DeviceTime {
  size_t workers = 0;  // that have reported it
  Duration first = Duration::max(), last{};
  void add(const StepSummary& summary) {
    if (summary.device_finish_ns == 0) return;
    ++workers;
    first = std::min(first, Duration(summary.device_start_ns));
    last = std::max(last, Duration(summary.device_finish_ns));
  }
};

// How many workers have something to compute in a step.
size_t busy_workers(const State& state, const Plan* plan) {
  size_t count = 0;
  for (size_t w = 0; w < state.members.size(); ++w) {
    if (state.members[w].absent) continue;
    const auto computes = [](const Op& op) { return op.kind == OpKind::Forward; };
    if (plan == nullptr || w >= plan->schedule.lists.size()) {
      ++count;
      continue;
    }
    const std::vector<Op>& list = plan->schedule.lists[w];
    count += std::any_of(list.begin(), list.end(), computes) ? 1 : 0;
  }
  return count;
}

}  // namespace

StepRecord record_of(const State& state, int64_t step) {
  StepRecord record;
  record.step = step;
  record.epoch = state.epoch;
  record.plan = plan_of(state.planning, step);
  record.events.resize(state.members.size());
  std::map<int32_t, double> losses, evaluation, accuracy;
  bool broken_off = false;
  DeviceTime device;
  for (size_t worker = 0; worker < state.members.size(); ++worker) {
    for (const StepSummary& summary : state.members[worker].report.steps) {
      if (summary.step != step) continue;
      for (const MicroLoss& of : summary.losses) losses[of.micro.value] = of.loss;
      for (const MicroLoss& of : summary.evaluation) {
        evaluation[of.micro.value] = of.loss;
        if (of.accuracy) accuracy[of.micro.value] = *of.accuracy;
      }
      broken_off = broken_off || summary.broken_off;
      if (!summary.losses.empty() || record.learning_rate == 0) {
        record.gradient_norm = summary.gradient_norm;
        record.learning_rate = summary.learning_rate;
      }
      record.duration = std::max(record.duration, Duration(summary.finish_ns - summary.start_ns));
      device.add(summary);
      record.lag = std::max(record.lag, Duration(summary.lag_p99_ns));
      record.lag_valid = record.lag_valid && summary.lag_valid;
      record.to_host = std::max(record.to_host, Duration(summary.to_host_ns));
      record.to_device = std::max(record.to_device, Duration(summary.to_device_ns));
      record.staged_messages += summary.staged_messages;
      record.direct_messages += summary.direct_messages;
      record.events[worker] = summary.events;
    }
  }
  const bool whole = static_cast<int32_t>(evaluation.size()) == state.rules.evaluation_count;
  const bool none_due = evaluation.empty() && !state.rules.evaluates;
  record.validated = !broken_off && (none_due || whole);
  record.losses = static_cast<int32_t>(losses.size());
  record.complete = record.losses == state.rules.micro_count;
  record.only_evaluated = state.rules.evaluates;
  record.loss = mean(losses);
  const auto& rest = state.recovery.rest;
  const bool resumed = rest && rest->epoch == state.epoch && rest->step == step;
  if (resumed) {  // workers that run only the rest of a step do not report when it began
    record.iteration_end = device.last;
  } else if (device.workers == busy_workers(state, record.plan.get())) {
    record.iteration = device.last - device.first;
    record.iteration_end = device.last;
  }
  if (!evaluation.empty() && record.validated) {
    record.validation_loss = mean(evaluation);
    if (accuracy.size() == evaluation.size()) record.validation_accuracy = mean(accuracy);
  }
  return record;
}

bool is_known(const StepRecord& step) { return step.complete && step.validated; }

std::string unknown_part_of(const State& state, const StepRecord& step) {
  if (step.complete) return "its validation was not finished";
  const int32_t all = state.rules.micro_count;
  return cat("the losses of ", all - step.losses, " of its ", all, " micro-batches are lost");
}

}  // namespace tenuto
