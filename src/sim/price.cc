#include "sim/price.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/longest_time.h"
#include "base/memory_left.h"
#include "base/text.h"
#include "ir/text.h"
#include "sim/blocking.h"
#include "sim/bound.h"
#include "sim/causes.h"
#include "sim/clockwork.h"
#include "sim/listed.h"
#include "sim/longest.h"

namespace tenuto {

namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

// The most ops that are priced over all steps together: a large plan is priced for fewer steps.
constexpr int64_t kMostInstances = 50'000'000;

// A priced plan: its program, and when everything happened.
struct Priced {
  const Plan& plan;
  const Schedule& schedule;
  const Program& program;
  const Outcome& outcome;
  int32_t steps = 1;
};

Error stuck(const Priced& it) {
  std::string waits;
  std::vector<Mark> marks;
  for (const auto& [worker, index] : it.outcome.waiting) {
    const Op& op = it.schedule.lists[at(worker.value)][at(index)];
    if (marks.size() < 4) {
      waits += cat(marks.empty() ? "" : ", ", "worker ", worker, " at ", to_text(op));
    }
    marks.push_back({worker, index});
  }
  return {Code::Infeasible, Reach::Job,
          cat("nothing can move after ", it.outcome.ended, " of ", it.program.kept() * it.steps,
              " ops; waiting: ", waits, "\n", table(it.schedule, marks))};
}

// The end of a step's last op; zero if there is none, as in the rest of a finished step.
Duration end_of(const Priced& it, int32_t step) {
  if (it.program.size() == 0) return {};
  const auto first = it.outcome.finish.begin() + int64_t{step} * it.program.size();
  return *std::max_element(first, first + it.program.size());
}

// The time of one step among many: the mean over the later half of those priced.
Duration period_of(const Priced& it) {
  if (it.steps < 2) return end_of(it, 0);
  const int32_t from = (it.steps - 1) / 2, to = it.steps - 1;
  return (end_of(it, to) - end_of(it, from)) / (to - from);
}

// Time that all compute lanes together work in the first step, in nanoseconds.
double busy_of(const Priced& it) {
  if (it.outcome.busy < kLongestTime) return static_cast<double>(it.outcome.busy.count());
  double busy = 0;
  for (int32_t op = 0; op < it.program.size(); ++op) {
    const int32_t lane = it.program.lane(op);
    if (lane < 0 || it.program.lanes()[at(lane)].kind != LaneKind::Compute) continue;
    busy += static_cast<double>((it.outcome.finish[at(op)] - it.outcome.start[at(op)]).count());
  }
  return busy;
}

double bubble_of(const Priced& it, Duration period) {
  int64_t workers = 0;
  for (const auto& list : it.schedule.lists) workers += list.empty() ? 0 : 1;
  if (period.count() == 0) return 0;
  return 1.0 - busy_of(it) / (static_cast<double>(workers) * static_cast<double>(period.count()));
}

// A worker that holds V stages counts a chunk as 1/V of a micro-batch.
void count_whole_micros(const Plan& plan, std::vector<double>& peak) {
  std::vector<int32_t> stages(peak.size(), 0);
  for (const Stage& stage : plan.stages) {
    for (const WorkerId holder : stage.holders) {
      if (at(holder.value) < stages.size()) ++stages[at(holder.value)];
    }
  }
  for (size_t w = 0; w < peak.size(); ++w) {
    if (stages[w] > 1) peak[w] /= stages[w];
  }
}

Status check_options(const PriceOptions& options, const Cluster& cluster) {
  const bool resumed = options.stores != nullptr && !options.stores->empty();
  CHECK(!resumed || (!options.lower_bound && !options.staggered && !options.evaluation),
        "what is left of a step has no bound, no period and no held-out pass");
  if (options.sending == Sending::Offloaded) return ok();
  if (steps_overlap(options)) {
    return invalid("blocking messages cannot be priced with steps that overlap: take one");
  }
  if (options.update) {
    return invalid(
        "blocking messages are priced to the last weight gradient: leave the update out");
  }
  if (!cluster.ports.empty()) {
    return invalid(cat("blocking messages cannot be priced over ports, and the cluster has ",
                       cluster.ports.size(), ": take offloaded messages, or leave the ports out"));
  }
  return ok();
}

// Bytes are counted up to 4 EiB, see note_bytes.
Status check_bytes(const Outcome& outcome) {
  for (size_t w = 0; w < outcome.peak_bytes.size(); ++w) {
    if (outcome.peak_bytes[w] < kMostBytes) continue;
    return invalid(cat("worker ", w, " would hold more than 4 EiB of activations and messages, ",
                       "more than is counted: ask for smaller messages or fewer micro-batches"));
  }
  return ok();
}

// Refuses a price whose estimated memory beside the plan is too much.
Status check_price_memory(const Schedule& schedule) {
  constexpr double kBytesOfOp = 80;
  size_t ops = 0;
  for (const auto& list : schedule.lists) ops += list.size();
  return check_memory(cat("the price of ", ops, " ops"), kBytesOfOp * static_cast<double>(ops));
}

// Steps to run one behind the other.
int32_t steps_of(const PriceOptions& options, const Program& program) {
  if (!steps_overlap(options)) return 1;
  const int64_t most = std::max<int64_t>(2, kMostInstances / std::max(program.size(), 1));
  const int32_t wanted = options.steps > 0 ? std::max(options.steps, 2) : kStaggeredSteps;
  return static_cast<int32_t>(std::min<int64_t>(wanted, most));
}

Status check_cluster(const Schedule& schedule, const Cluster& cluster) {
  CHECK(cluster.workers.size() >= schedule.lists.size(), "the cluster has too few workers");
  for (size_t w = 0; w < schedule.lists.size(); ++w) {
    const Worker& worker = cluster.workers[w];
    if (schedule.lists[w].empty()) continue;
    if (worker.alive && std::isfinite(worker.speed) && worker.speed > 0) continue;
    return Error{Code::Infeasible, Reach::Worker,
                 cat("worker ", w,
                     worker.alive ? cat(" has speed ", worker.speed, ": expected more than 0")
                                  : std::string(" is not alive and the plan gives it ops"))};
  }
  return ok();
}

}  // namespace

Duration op_time(const Op& op, const Plan& plan, const std::vector<StageCost>& costs) {
  const StageCost& cost = costs[at(op.stage.value)];
  switch (op.kind) {
    case OpKind::Forward:
    case OpKind::Evaluate:
      return cost.forward;
    case OpKind::BackwardInput:
      return plan.split_backward ? cost.backward_input
                                 : plus(cost.backward_input, cost.backward_weight);
    case OpKind::BackwardWeight:
      return plan.split_backward ? cost.backward_weight : Duration{};
    case OpKind::Step:
    case OpKind::StepAhead:
      return cost.update;
    default:
      return {};
  }
}

PriceOptions options_of_run(const Plan& plan) {
  PriceOptions options;
  options.lower_bound = false;
  options.staggered = plan.update.staggered;
  options.in_turn = !options.staggered;
  if (options.in_turn) options.steps = kRunSteps;
  return options;
}

Result<Duration> whole_step_time(const Plan& plan, const Model& model, const Cluster& cluster) {
  const auto priced = price(plan, model, cluster, options_of_run(plan));
  if (!priced.ok()) return priced.error();
  return priced.value().period;
}

Result<Timeline> price(const Plan& plan, const Model& model, const Cluster& cluster,
                       const PriceOptions& options) {
  const Schedule& schedule = options.evaluation ? plan.evaluation : plan.schedule;
  if (const Status status = check_cluster(schedule, cluster); !status.ok()) return status.error();
  if (const Status status = check_options(options, cluster); !status.ok()) return status.error();
  if (const Status fits = check_price_memory(schedule); !fits.ok()) return fits.error();
  auto program = Program::make(schedule, keep_of(plan, options), options.stores);
  if (!program.ok()) return program.error();
  const Tariff tariff(program.value(), plan, model, cluster, options);
  PriceOptions exact = options;
  exact.steps = steps_of(options, program.value());
  const bool blocking = options.sending == Sending::Blocking;
  const bool in_list_order = !blocking && options.stores == nullptr &&
                             can_run_listed(program.value(), plan, tariff, options);
  const auto run = blocking ? run_blocking : in_list_order ? run_listed : run_clockwork;
  const Outcome outcome = run(program.value(), plan, schedule, tariff, exact);
  const Priced it{plan, schedule, program.value(), outcome, exact.steps};
  if (outcome.ended < program.value().kept() * it.steps) return stuck(it);
  if (end_of(it, 0) == kLongestTime || end_of(it, it.steps - 1) == kLongestTime) {
    return too_long(plan, schedule, model, cluster, options);
  }
  if (const Status held = check_bytes(outcome); !held.ok()) return held.error();
  Timeline result;
  result.ops = program.value().kept();
  result.makespan = end_of(it, 0);
  result.period = period_of(it);
  result.peak_micros = outcome.peak_micros;
  count_whole_micros(plan, result.peak_micros);
  result.peak_bytes = outcome.peak_bytes;
  result.bubble_fraction = bubble_of(it, result.period);
  if (options.spans) result.spans = spans_with_causes(program.value(), schedule, outcome);
  if (options.lower_bound) {
    result.lower_bound = lower_bound(plan, schedule, model, cluster, options);
  }
  return result;
}

}  // namespace tenuto
