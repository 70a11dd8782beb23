#include "worker/part_compute.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/contains.h"
#include "base/text.h"
#include "base/unit.h"
#include "runtime/step_observer.h"

namespace tenuto {
namespace {

// The plan without its update.
Plan without_update(Plan plan) {
  for (std::vector<Op>& list : plan.schedule.lists) std::erase_if(list, is_update);
  plan.schedule.groups.clear();
  plan.schedule.collectives.clear();
  plan.update = {};
  return plan;
}

// The plan with those micro-batches of its held-out pass that this one of `replicas` replicas has.
Plan with_own_evaluation(Plan plan, ReplicaId replica, int32_t replicas) {
  const int32_t first = plan.schedule.micro_count;
  for (std::vector<Op>& list : plan.evaluation.lists) {
    std::erase_if(
        list, [&](const Op& op) { return (op.micro.value - first) % replicas != replica.value; });
  }
  return plan;
}

// Asks a step to end early, and notes which other parts are lost.
class PartObserver : public StepObserver {
 public:
  PartObserver(const std::atomic<bool>* stop, std::set<WorkerId>& lost_peers)
      : stop_(stop), lost_(lost_peers) {}
  bool is_stopped() const { return stop_ != nullptr && stop_->load(); }
  Standing standing(int64_t step) override { return {step, is_stopped()}; }
  void lost(WorkerId peer, const Error&) override { lost_.insert(peer); }

 private:
  const std::atomic<bool>* stop_;
  std::set<WorkerId>& lost_;
};

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
  const int32_t replicas = job.parallel.pipelines;
  return PartCompute(with_own_evaluation(without_update(plan), place.replica, replicas), place,
                     replicas, {.silence = silence, .retire = silence}, machine);
}

PartCompute::PartCompute(Plan plan, const PartPlace& place, int32_t replicas, StepLimits limits,
                         const PartMachine& machine)
    : plan_(std::move(plan)),
      place_(place),
      self_(plan_.stages[static_cast<size_t>(place.stage.value)].holders.front()),
      replicas_(replicas),
      micros_(plan_.schedule.micro_count),
      limits_(limits),
      epoch_(machine.epoch),
      device_(machine.device),
      runner_(Machine{machine.transport, machine.device, machine.device, machine.mailbox,
                      machine.clock}) {}

Result<std::vector<PartCompute::Pass>> PartCompute::passes_of(
    std::span<const servers::MicroRange> micros) const {
  std::vector<Pass> passes;
  for (const servers::MicroRange& range : micros) {
    const bool is_known = range.stream.value >= 0 && range.stream.value < replicas_;
    if (!is_known || range.begin < 0 || range.end <= range.begin) {
      return invalid(cat("expected micro-batches of one of ", replicas_, " replicas, found ",
                         range.begin, " to ", range.end, " of replica ", range.stream));
    }
    for (int64_t micro = range.begin; micro < range.end; ++micro) {
      const Iteration iteration{micro / micros_};
      const auto same = std::find_if(passes.begin(), passes.end(), [&](const Pass& pass) {
        return pass.stream == range.stream && pass.iteration == iteration;
      });
      Pass& pass =
          same == passes.end() ? passes.emplace_back(Pass{range.stream, iteration, {}}) : *same;
      if (contains(pass.positions, micro % micros_)) {
        return invalid(cat("micro-batch ", micro, " of replica ", range.stream,
                           " is named twice: expected each one once"));
      }
      pass.positions.push_back(micro % micros_);
    }
  }
  if (passes.empty()) return invalid("there is no micro-batch to compute: expected at least one");
  return passes;
}

// The micro-batches get the numbers that they have among those of all replicas, because data and
// dropout follow these numbers.
Plan PartCompute::plan_of(const Pass& pass) const {
  Plan plan = plan_;
  for (std::vector<Op>& list : plan.schedule.lists) {
    std::erase_if(list, [&](const Op& op) {
      return !contains(pass.positions, static_cast<int64_t>(op.micro.value));
    });
    for (Op& op : list) op.micro = {op.micro.value * replicas_ + pass.stream.value};
  }
  plan.schedule.micro_count *= replicas_;
  return plan;
}

StepInput PartCompute::input_of(const Plan& plan) const {
  StepInput input;
  input.plan = &plan;
  input.self = self_;
  input.epoch = epoch_;
  input.limits = limits_;
  return input;
}

Status PartCompute::run_pass(const Pass& pass, const std::atomic<bool>* stop) {
  PartObserver observer(stop, lost_);
  if (observer.is_stopped()) {
    return Error{Code::Cancelled, Reach::Call,
                 cat("stage ", place_.stage, ": nobody needs this gradient any more")};
  }
  const Plan plan = plan_of(pass);
  StepInput input = input_of(plan);
  input.step = pass.iteration.value;
  input.observer = &observer;
  const Result<std::vector<Event>> events = runner_.run_step(input);
  if (!events.ok()) return events.error();
  return ok();
}

Result<PartGradient> PartCompute::run(std::span<const servers::MicroRange> micros,
                                      std::span<const float> parameters,
                                      const std::atomic<bool>* stop) {
  const Result<std::vector<Pass>> passes = passes_of(micros);
  if (!passes.ok()) return passes.error();
  GivenParameters& given = *device_->given_parameters();
  if (Status set = given.set_parameters(place_.stage, parameters); !set.ok()) return set.error();
  PartGradient made;
  std::vector<float> more;
  double losses = 0;
  size_t loss_count = 0;
  for (const Pass& pass : passes.value()) {
    if (Status ran = run_pass(pass, stop); !ran.ok()) return ran.error();
    std::vector<float>& sum = made.sum.empty() ? made.sum : more;
    sum.resize(parameters.size());
    if (Status there = given.read_gradients(place_.stage, sum); !there.ok()) return there.error();
    for (size_t i = 0; i < more.size(); ++i) made.sum[i] += more[i];
    made.mass += Mass{std::ssize(pass.positions)};
    const StepOutcome outcome = device_->outcome();
    for (const MicroLoss& one : outcome.losses) losses += one.loss;
    loss_count += outcome.losses.size();
  }
  if (loss_count > 0) made.loss = losses / static_cast<double>(loss_count);
  return made;
}

Result<PartGradient> PartCompute::run(Iteration iteration, std::span<const float> parameters) {
  const servers::MicroRange all{place_.replica, iteration.value * micros_,
                                (iteration.value + 1) * micros_};
  return run(std::span(&all, 1), parameters);
}

Result<HeldOutLoss> PartCompute::validate(std::span<const float> parameters,
                                          const std::atomic<bool>* stop) {
  const std::vector<std::vector<Op>>& lists = plan_.evaluation.lists;
  const auto own = static_cast<size_t>(self_.value);
  if (own >= lists.size() || lists[own].empty()) return HeldOutLoss{};
  PartObserver observer(stop, lost_);
  if (observer.is_stopped()) {
    return Error{Code::Cancelled, Reach::Call,
                 cat("stage ", place_.stage, ": nobody needs this validation any more")};
  }
  const Status set = device_->given_parameters()->set_parameters(place_.stage, parameters);
  if (!set.ok()) return set.error();
  StepInput input = input_of(plan_);
  input.evaluation = true;
  input.observer = &observer;
  const Result<std::vector<Event>> events = runner_.run_step(input);
  if (!events.ok()) return events.error();
  HeldOutLoss made;
  const StepOutcome outcome = device_->outcome();
  for (const MicroLoss& one : outcome.losses) {
    made.sum += one.loss;
    if (one.accuracy) made.accuracy_sum = made.accuracy_sum.value_or(0) + *one.accuracy;
  }
  made.micros = std::ssize(outcome.losses);
  return made;
}

std::vector<StageId> PartCompute::lost_stages() const {
  std::vector<StageId> stages;
  for (size_t s = 0; s < plan_.stages.size(); ++s) {
    const bool is_lost = lost_.count(plan_.stages[s].holders.front()) > 0;
    if (is_lost) stages.push_back(StageId{static_cast<int32_t>(s)});
  }
  return stages;
}

}  // namespace tenuto
