#include "worker/part_compute.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "base/unit.h"

namespace tenuto {
namespace {

// The plan without its update. Its micro-batches get the numbers that they have among those of all
// replicas, because data and dropout follow these numbers.
Plan without_update(Plan plan, ReplicaId replica, int32_t replicas) {
  for (std::vector<Op>& list : plan.schedule.lists) {
    std::erase_if(list, is_update);
    for (Op& op : list) op.micro = {op.micro.value * replicas + replica.value};
  }
  plan.schedule.micro_count *= replicas;
  plan.schedule.groups.clear();
  plan.schedule.collectives.clear();
  plan.evaluation = {};
  plan.update = {};
  return plan;
}

Status check_part(const Job& job, const Plan& plan, const PartPlace& place) {
  const auto stages = static_cast<int32_t>(plan.stages.size());
  if (place.stage.value < 0 || place.stage.value >= stages) {
    return invalid(cat("stage ", place.stage, " is not one of the plan's ", stages));
  }
  const int32_t replicas = job.parallel.pipelines;
  if (place.replica.value < 0 || place.replica.value >= replicas) {
    return invalid(cat("replica ", place.replica, " is not one of the job's ", replicas,
                       ", one for each pipeline"));
  }
  if (plan.schedule.micro_count != job.parallel.micros) {
    return invalid(cat("the plan has ", plan.schedule.micro_count,
                       " micro-batches, and one pipeline of the job has ", job.parallel.micros,
                       ": give the plan of one pipeline"));
  }
  for (const Stage& stage : plan.stages) {
    if (stage.holders.size() == 1 && stages_of(plan.stages, stage.holders.front()).size() == 1) {
      continue;
    }
    return invalid(
        "each worker of the plan must hold one stage, and each stage must have one holder: give "
        "the plan of one pipeline, without chunks");
  }
  if (plan.update.tied) {
    return invalid(
        "two stages of the plan share a tied weight, and a part has only its own share of that "
        "weight's gradient: set model.tied = false, or train with one stage");
  }
  return ok();
}

}  // namespace

std::vector<float> PartGradient::mean() const {
  std::vector<float> divided = sum;
  for (float& element : divided) element /= static_cast<float>(mass.micros);
  return divided;
}

Result<PartCompute> PartCompute::make(const Job& job, const Plan& plan, const PartPlace& place,
                                      const PartMachine& machine) {
  CHECK(machine.device != nullptr, "a part has a device");
  if (Status right = check_part(job, plan, place); !right.ok()) return right.error();
  if (machine.device->given_parameters() == nullptr) {
    return invalid(cat("the device of stage ", place.stage,
                       " computes no gradients of given parameters: take device.kind = \"cpu\" or "
                       "\"cuda\""));
  }
  const Duration silence = from_milliseconds(job.network.silence_seconds * 1000);
  const WorkerId self = plan.stages[static_cast<size_t>(place.stage.value)].holders.front();
  return PartCompute(without_update(plan, place.replica, job.parallel.pipelines), place.stage, self,
                     {plan.schedule.micro_count}, {.silence = silence, .retire = silence}, machine);
}

PartCompute::PartCompute(Plan plan, StageId stage, WorkerId self, Mass mass, StepLimits limits,
                         const PartMachine& machine)
    : plan_(std::move(plan)),
      stage_(stage),
      self_(self),
      mass_(mass),
      limits_(limits),
      epoch_(machine.epoch),
      device_(machine.device),
      runner_(Machine{machine.transport, machine.device, machine.device, machine.mailbox,
                      machine.clock}) {}

Result<PartGradient> PartCompute::run(Iteration iteration, std::span<const float> parameters) {
  GivenParameters& given = *device_->given_parameters();
  if (Status set = given.set_parameters(stage_, parameters); !set.ok()) return set.error();
  StepInput input;
  input.plan = &plan_;
  input.self = self_;
  input.epoch = epoch_;
  input.step = iteration.value;
  input.limits = limits_;
  const Result<std::vector<Event>> events = runner_.run_step(input);
  if (!events.ok()) return events.error();
  PartGradient made;
  made.mass = mass_;
  made.sum.resize(parameters.size());
  if (Status there = given.read_gradients(stage_, made.sum); !there.ok()) return there.error();
  const StepOutcome outcome = device_->outcome();
  if (outcome.losses.empty()) return made;
  double losses = 0;
  for (const MicroLoss& one : outcome.losses) losses += one.loss;
  made.loss = losses / static_cast<double>(outcome.losses.size());
  return made;
}

}  // namespace tenuto
