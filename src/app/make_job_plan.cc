#include "app/make_job_plan.h"

#include <algorithm>
#include <vector>

#include "adapt/adapt.h"
#include "adapt/mesh.h"
#include "adapt/sums.h"
#include "app/plan_file.h"
#include "base/contains.h"
#include "base/text.h"
#include "ir/check.h"
#include "ir/effect.h"
#include "plan/copies.h"
#include "plan/fine_stages.h"
#include "plan/given_plan.h"
#include "plan/lower.h"
#include "plan/make_plan.h"
#include "plan/routed.h"
#include "sim/price.h"
#include "world/fault.h"
#include "world/fit.h"
#include "world/job_model.h"
#include "world/plan_settings.h"

namespace tenuto {
namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Relative cost of each layer: multiplications per target.
std::vector<double> layer_costs(const Job& job) {
  const ModelSettings& model = job.model;
  const double width = model.width;
  std::vector<double> costs;
  if (model.kind == "gpt") {
    costs.push_back(width);  // embedding: a look-up and an addition
    const double block = 12 * width * width + 2.0 * model.sequence * width;
    costs.insert(costs.end(), static_cast<size_t>(model.layers), block);
    costs.push_back(256 * width);  // head
  }
  return costs;
}

// How many layers there are to divide among the stages.
int32_t layers_of(const Job& job) {
  const int32_t layers = cut_layers(job);
  if (job.device.layers != nullptr) return layers;
  // A paced stage only lasts a given time, so there may be more stages than the model has layers.
  const OrderCard* card = find_card(job.parallel.order);
  const int32_t chunks = job.parallel.chunks > 0 ? job.parallel.chunks
                         : card != nullptr       ? card->chunks
                                                 : 1;
  if (job.device.kind != "paced") return layers;
  const int32_t stages = job.parallel.stages * chunks;
  if (!has_fine_stages(job)) return std::max(layers, stages);
  return (std::max(layers, 2 * stages) + stages - 1) / stages * stages;  // equally many on each
}

// The lists of a file, laid out for the job.
Result<Plan> make_plan_of_file(const Job& job, Shape shape) {
  const auto file = lists_from_file(job.parallel.schedule);
  if (!file.ok()) return file.error();
  const int32_t stages = file.value().lists.schedule.stage_count;
  if (job.device.kind == "paced" && job.device.layers == nullptr && shape.layers < stages) {
    shape.layers = stages;
    shape.layer_cost.clear();
  }
  shape.order = file.value().order;
  auto plan = make_given_plan(file.value().lists, shape);
  if (plan.ok()) return plan;
  Error error = plan.error();
  error.message = cat(job.parallel.schedule, ": ", error.message);
  return error;
}

// The plan of the job's plan file, with the held-out pass, the update and the all-reduces that the
// job asks for.
Result<Plan> make_plan_of_plan_file(const Job& job, const Shape& shape) {
  auto read = read_plan_of_job(job);
  if (!read.ok()) return read;
  Plan plan = std::move(read).value();
  // Idle workers behind the last holder have no place in the run.
  const size_t workers = at(job.worker_count());
  plan.schedule.lists.resize(std::min(plan.schedule.lists.size(), workers));
  plan.evaluation.lists.resize(std::min(plan.evaluation.lists.size(), workers));
  plan.limits.resize(std::min(plan.limits.size(), workers));
  const std::string& path = job.parallel.plan;
  const int32_t layers = plan.stages.back().layer_end;
  if (job.device.layers != nullptr && layers != shape.layers) {
    return Error{Code::Infeasible, Reach::Job,
                 cat(path, " is the plan of a model with ", layers, " layers, and ",
                     job.device.profile, " has ", shape.layers, ": make a plan for this model")};
  }
  if (job.device.kind != "paced" && layers != shape.layers) {
    return Error{Code::Infeasible, Reach::Job,
                 cat(path, " is the plan of a model with ", layers,
                     " layers, but the job's model has ", shape.layers,
                     job.model.kind == "gpt"   ? " (embedding, blocks and head)"
                     : job.model.kind == "mlp" ? " (hidden layers and head)"
                                               : " (modules of the script)",
                     ": make a plan for this model")};
  }
  if (plan.update.tied != shape.tied && plan.stages.size() > 1) {
    return Error{Code::Infeasible, Reach::Job,
                 cat(path,
                     plan.update.tied ? " sums a weight that first and last stage share"
                                      : " sums no weight that first and last stage share",
                     ", and the job has model.tied = ", shape.tied ? "true" : "false",
                     ": make a plan for this model")};
  }
  if (plan.update.staggered != shape.staggered) plan = with_update(plan, shape.staggered);
  if (plan.schedule.all_reduce != shape.all_reduce) {
    plan = with_all_reduce(std::move(plan), shape.all_reduce);
  }
  return with_evaluation(std::move(plan), shape.evaluation_micros);
}

// True when a worker that is not alive has ops.
bool needs_the_dead(const Plan& plan, const std::vector<bool>& alive) {
  for (size_t w = 0; w < plan.schedule.lists.size(); ++w) {
    if (!alive[w] && !plan.schedule.lists[w].empty()) return true;
  }
  return false;
}

Cluster cluster_with(const Job& job, const std::vector<bool>& alive) {
  Cluster cluster = cluster_of(job);
  for (size_t w = 0; w < alive.size(); ++w) cluster.workers[w].alive = alive[w];
  return cluster;
}

// What is known of op times before the first step: all for paced devices, only the proportions for
// others.
Model assumed_model(const Job& job, const Plan& plan) {
  if (job.device.kind == "paced") return job_model(job, plan);
  const std::vector<double> costs = layer_costs(job);
  const double most = costs.empty() ? 1 : *std::max_element(costs.begin(), costs.end());
  Model model;
  for (int32_t i = 0; i < plan.stages.back().layer_end; ++i) {
    const double share = at(i) < costs.size() ? costs[at(i)] / most : 1;
    Layer& layer = model.layers.emplace_back();
    layer.forward = layer.backward_input = layer.backward_weight = from_milliseconds(share);
  }
  return model;
}

// The plan without the dead workers; their peers run their micro-batches. Where too few peers are
// left, workers of other stages move there.
Result<Plan> without_the_dead(const Job& job, const Plan& plan, const std::vector<bool>& alive) {
  if (!holds_apart(plan)) return without_workers(plan, alive);
  const Cluster cluster = cluster_with(job, alive);
  PriceOptions pricing;
  pricing.update = false;
  const auto moves =
      find_moves(plan, assumed_model(job, plan), cluster, pricing, AdaptOptions().move_gain);
  if (!moves.ok()) return moves.error();
  return with_moves(plan, cluster, moves.value());
}

// To compare plans, each message is delayed by the shortest op divided by this number. Such delays
// are normal in a healthy cluster; the predicted period shows which plan suffers less from them.
constexpr int32_t kLateShare = 50;
// Listed dispatch is chosen only if its period is shorter by more than this share, because ready
// dispatch suffers less from uneven ops.
constexpr double kListedGain = 0.01;

// The least time of an op that takes any time; zero when no op does.
Duration shortest_op(const Plan& plan, const Model& model) {
  Duration least{};
  for (const Stage& stage : plan.stages) {
    const StageCost cost = stage_cost(model, stage);
    for (const Duration time : {cost.forward, cost.backward_input, cost.backward_weight}) {
      if (time.count() > 0 && (least.count() == 0 || time < least)) least = time;
    }
  }
  return least;
}

// The predicted period when every message is a little late.
Result<Duration> period_when_late(const Job& job, const Plan& plan) {
  const Model model = assumed_model(job, plan);
  Cluster cluster = cluster_of(job);
  const Duration late = shortest_op(plan, model) / kLateShare;
  if (cluster.between.empty()) cluster.between = {{Link{}}};
  for (std::vector<Link>& row : cluster.between) {
    for (Link& link : row) link.latency += late;
  }
  for (auto& [ends, link] : cluster.exceptions) link.latency += late;
  PriceOptions pricing;
  pricing.lower_bound = false;
  pricing.staggered = plan.update.staggered;
  const auto timeline = price(plan, model, cluster, pricing);
  if (!timeline.ok()) return timeline.error();
  return timeline.value().period;
}

// The plan under ready dispatch, or under listed dispatch where that is shorter.
Result<Plan> make_plan_of_either(const Job& job, Shape shape) {
  shape.dispatch = Dispatch::Listed;
  auto listed = make_plan(shape);
  if (!listed.ok()) return listed;
  shape.dispatch = Dispatch::Ready;
  auto ready = make_plan(shape);
  if (!ready.ok()) return ready;
  const auto listed_period = period_when_late(job, listed.value());
  if (!listed_period.ok()) return listed_period.error();
  const auto ready_period = period_when_late(job, ready.value());
  if (!ready_period.ok()) return ready_period.error();
  const double shorter = kListedGain * static_cast<double>(listed_period.value().count());
  const Duration more = ready_period.value() - listed_period.value();
  return static_cast<double>(more.count()) > shorter ? std::move(listed) : std::move(ready);
}

// The plan with all workers. But if the job leaves the order open and has paced devices, the plan
// is already routed around the dead.
Result<Plan> make_whole_plan(const Job& job, const std::vector<bool>& alive, Watch* watch) {
  Shape shape;
  shape.stages = job.parallel.stages;
  shape.chunks = job.parallel.chunks;
  shape.pipelines = job.parallel.pipelines;
  shape.micros = job.parallel.micros;
  shape.layers = layers_of(job);
  shape.order = job.parallel.order;
  const bool open = job.parallel.order == kAutoOrder;
  const bool listed = job.parallel.dispatch == "listed" || job.network.send == "blocking";
  shape.dispatch = listed && !open ? Dispatch::Listed : Dispatch::Ready;
  shape.split_backward = job.parallel.split_backward;
  shape.recompute = job.parallel.recompute == "all";
  shape.memory = job.parallel.memory;
  shape.tied = job.model.kind != "mlp" && job.model.tied && job.device.kind != "paced";
  shape.staggered = job.parallel.optimizer == "staggered";
  shape.all_reduce = job.parallel.all_reduce;
  shape.evaluation_micros = job.validate_micros;
  const bool alike =
      job.device.layers != nullptr || (job.device.kind == "paced" && has_fine_stages(job));
  if (shape.layers == cut_layers(job.model) && !alike) shape.layer_cost = layer_costs(job);
  if (!job.parallel.plan.empty()) return make_plan_of_plan_file(job, shape);
  if (!job.parallel.schedule.empty()) return make_plan_of_file(job, shape);
  const bool either = job.parallel.dispatch == "auto" && !listed && !open;
  auto plan = either ? make_plan_of_either(job, shape) : make_plan(shape);
  // Only paced devices have known op times; for others the coordinator measures them.
  if (!plan.ok() || !open || job.device.kind != "paced") return plan;
  AdaptOptions options;
  options.least_gain = 0;
  options.price.staggered = plan.value().update.staggered;
  options.moves = true;
  options.watch = watch;
  if (listed) options.dispatch = Dispatch::Listed;
  const Cluster cluster = cluster_with(job, alive);
  auto adapted = adapt(plan.value(), job_model(job, plan.value()), cluster, options);
  if (!adapted.ok()) return adapted.error();
  return std::move(adapted).value().plan;
}

// The holders of `first`, and workers that are not `alive` where holders are missing.
std::vector<std::vector<WorkerId>> holders_of_all(const Plan& whole, const Plan& first,
                                                  const std::vector<bool>& alive) {
  std::vector<std::vector<WorkerId>> holders;
  for (const Stage& stage : first.stages) holders.push_back(stage.holders);
  std::vector<WorkerId> elsewhere;  // workers whose own places others have taken
  const auto missing = [&](size_t s) { return holders[s].size() < whole.stages[s].holders.size(); };
  for (size_t w = 0; w < alive.size(); ++w) {
    const WorkerId worker{static_cast<int32_t>(w)};
    for (size_t s = 0; s < holders.size(); ++s) {
      if (alive[w] || !holds(whole.stages[s], worker)) continue;
      if (missing(s)) {
        holders[s].push_back(worker);
      } else {
        elsewhere.push_back(worker);
      }
    }
  }
  for (const WorkerId worker : elsewhere) {
    for (size_t s = 0; s < holders.size(); ++s) {
      if (!missing(s)) continue;
      holders[s].push_back(worker);
      break;
    }
  }
  for (std::vector<WorkerId>& of : holders) std::sort(of.begin(), of.end());
  return holders;
}

Result<Plan> with_chosen_copies(const Job& job, Plan plan) {
  if (!holds_apart(plan) || plan.update.staggered) {
    return Error{Code::Infeasible, Reach::Job,
                 cat("resilience.copies = ", job.resilience.copies, " needs ",
                     holds_apart(plan) ? "parallel.optimizer = \"barrier\": a copy is of a version "
                                         "that is final"
                                       : "workers that hold one stage each: take another order")};
  }
  const auto copies = choose_copies(plan, cluster_of(job).place);
  if (!copies.ok()) return copies.error();
  return with_copies(std::move(plan), copies.value());
}

// Makes each layer a stage of its own if the job lets layers move; else keeps the plan.
Result<Plan> with_layers(const Job& job, Result<Plan> plan) {
  if (!plan.ok() || !has_fine_stages(job)) return plan;
  if (!holds_apart(plan.value())) {
    return Error{Code::Infeasible, Reach::Job,
                 cat("resilience.layers = \"", job.resilience.layers,
                     "\" needs workers that hold one stage each: take another parallel.order")};
  }
  return with_fine_stages(plan.value());
}

// The plan with the all-reduces that are best for the cluster of the job, where the job leaves that
// open. Only paced devices have known op times to choose by.
Result<Plan> with_first_sums(const Job& job, const std::vector<bool>& alive, Result<Plan> plan) {
  if (!plan.ok() || !sums_follow_cluster(plan.value().schedule) || job.device.kind != "paced" ||
      job.network.send == "blocking") {
    return plan;
  }
  auto chosen = choose_sums(plan.value(), job_model(job, plan.value()), cluster_with(job, alive),
                            options_of_run(plan.value()), AdaptOptions().least_gain);
  if (!chosen.ok()) return chosen.error();
  return std::move(chosen).value().plan;
}

}  // namespace

std::optional<Plan> make_plan_of_all(const Job& job, const Plan& begun) {
  const std::vector<bool> alive = alive_at(job.faults, 0, job.seats(), job.worker_count());
  if (!contains(alive, false)) return std::nullopt;
  Result<Plan> whole =
      with_layers(job, make_whole_plan(job, std::vector<bool>(alive.size(), true), nullptr));
  if (!whole.ok()) return std::nullopt;
  const Plan first = without_copies(begun);
  auto holders = holders_of_all(whole.value(), first, alive);
  Plan made = std::move(whole).value();
  for (size_t s = 0; s < holders.size(); ++s) {
    if (holders[s] == made.stages[s].holders) continue;
    made = with_holders(made, std::move(holders));
    break;
  }
  made = with_copies(std::move(made), copies_in(begun));
  auto summed = with_first_sums(job, std::vector<bool>(alive.size(), true), std::move(made));
  if (!summed.ok() || !check(summed.value()).ok()) return std::nullopt;
  return std::move(summed).value();
}

Result<Plan> make_job_plan(const Job& job, Watch* watch) {
  const std::vector<bool> alive = alive_at(job.faults, 0, job.seats(), job.worker_count());
  auto plan = make_whole_plan(job, alive, watch);
  if (plan.ok() && needs_the_dead(plan.value(), alive)) {
    plan = without_the_dead(job, plan.value(), alive);
  }
  if (plan.ok() && job.resilience.copies > 0) {
    plan = with_chosen_copies(job, std::move(plan).value());
  }
  return with_first_sums(job, alive, with_layers(job, std::move(plan)));
}

}  // namespace tenuto
