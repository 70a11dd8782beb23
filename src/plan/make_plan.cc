#include "plan/make_plan.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/memory_left.h"
#include "base/text.h"
#include "plan/lower.h"
#include "plan/order/order.h"
#include "plan/partition.h"

namespace tenuto {

namespace {

// A plan with more ops would not fit into the machine that makes it.
constexpr int64_t kMostOps = 100'000'000;
// As the keys of a job (world/keys.cc).
constexpr int32_t kMostWorkers = 16384, kMostMicros = 1'000'000, kMostChunks = 1000;
// A plan lists the messages of its sums, which grow with the square of the pipelines.
constexpr int32_t kMostPipelines = 4096;
constexpr int32_t kMostLayers = kMostWorkers * kMostChunks;

size_t at(int32_t index) { return static_cast<size_t>(index); }

// Refuses a plan whose lists certainly need too much memory: the ops with their messages, and the
// moves of the sums, which grow with the square of the number of pipelines.
Status check_plan_memory(const Shape& shape, double ops) {
  const double stages = 1.0 * shape.stages * std::max(shape.chunks, 1);
  const double others = shape.pipelines - 1.0;
  const double messages = shape.stages > 1 ? 4.0 / 3 * ops : 0;
  const double moves = others > 0 ? stages * 2 * shape.pipelines * others : 0;
  return check_memory(cat("the plan of ", shape.stages, " stages, ", shape.pipelines,
                          " pipelines and ", shape.micros, " micro-batches"),
                      (ops + messages) * sizeof(Op) + moves * sizeof(Move));
}

Status check_shape(const Shape& shape) {
  const auto within = [](std::string_view name, int32_t value, int32_t least,
                         int32_t most) -> Status {
    if (value >= least && value <= most) return ok();
    return invalid(cat(name, " is ", value, ": expected ", least, " to ", most));
  };
  for (const Status& status :
       {within("stages", shape.stages, 1, kMostWorkers),
        within("pipelines", shape.pipelines, 1, kMostPipelines),
        within("micros", shape.micros, 1, kMostMicros),
        within("layers", shape.layers, 0, kMostLayers),
        within("chunks", shape.chunks, 0, kMostChunks),
        within("memory", shape.memory, 0, kMostMicros),
        within("evaluation_micros", shape.evaluation_micros, 0, kMostMicros)}) {
    if (!status.ok()) return status;
  }
  const double all_stages = 1.0 * shape.stages * std::max(shape.chunks, 1);
  const double ops = all_stages * shape.pipelines * (3.0 * shape.micros + 1.0);
  if (ops > static_cast<double>(kMostOps) ||
      all_stages * shape.evaluation_micros > static_cast<double>(kMostOps)) {
    return invalid(
        cat("stages x pipelines x micros makes more than ", kMostOps, " ops: ask for fewer"));
  }
  if (const Status fits = check_plan_memory(shape, ops); !fits.ok()) return fits;
  if (!shape.layer_cost.empty() && shape.layer_cost.size() != at(shape.layers)) {
    return invalid(cat("layer_cost has ", shape.layer_cost.size(), " numbers for ", shape.layers,
                       " layers: give one for each, or none"));
  }
  for (const double cost : shape.layer_cost) {
    if (std::isfinite(cost) && cost >= 0) continue;
    return invalid(cat("layer_cost holds ", cost, ": expected finite numbers from 0"));
  }
  return ok();
}

Error unknown_order(const std::string& name) {
  std::vector<std::string_view> names;
  std::string all;
  for (const OrderCard& card : order_cards()) {
    names.push_back(card.name);
    all += (all.empty() ? "" : ", ") + card.name;
  }
  names.push_back(kAutoOrder);
  all += cat(" and ", kAutoOrder);
  const std::string near = nearest(name, names.data(), names.size());
  return invalid(cat("order '", name, "' is not known",
                     near.empty() ? std::string() : cat(", did you mean ", near, "?"),
                     " (known: ", all, ")"));
}

// A shape and its order, with every default filled in.
struct Layout {
  const Shape& shape;
  const NamedOrder& order;
  OrderShape own;  // of one pipeline

  int32_t stage_count() const { return own.workers * own.chunks; }
  int32_t layer_count() const { return shape.layers > 0 ? shape.layers : stage_count(); }
  int32_t stage(int32_t worker, int32_t chunk) const {
    return stage_of(order.card.placement, own, worker, chunk);
  }
  WorkerId worker(int32_t pipeline, int32_t place) const {
    return {pipeline * own.workers + place};
  }
};

Status check_chunks(const Layout& layout) {
  const OrderCard& card = layout.order.card;
  const auto refused = [&](const std::string& why) -> Status {
    return invalid(cat("order ", card.name, ": ", why));
  };
  if (card.placement != Placement::Loop && layout.own.chunks != card.chunks) {
    return refused(cat("chunks is ", layout.own.chunks, ": its workers hold ", card.chunks,
                       card.chunks == 1 ? " stage" : " stages", " each"));
  }
  if (layout.own.chunks > 1 && layout.stage_count() > layout.layer_count()) {
    return refused(cat("the model has ", layout.layer_count(), " layers and ", layout.own.workers,
                       " workers with ", layout.own.chunks, " chunks each need at least ",
                       layout.stage_count(), ": ask for fewer workers or chunks"));
  }
  const int32_t last_worker =
      card.placement == Placement::V ? 0 : (layout.stage_count() - 1) % layout.own.workers;
  if (layout.shape.tied && layout.stage_count() > 1 && last_worker == 0) {
    return refused(
        "it puts the first and the last stage on one worker, and a weight that both share is "
        "supported between two workers only: set model.tied = false or take another order");
  }
  if (card.refusal == nullptr) return ok();
  const std::string why = card.refusal(layout.own);
  return why.empty() ? ok() : refused(why);
}

Result<std::vector<Stage>> make_stages(const Layout& layout) {
  const Shape& shape = layout.shape;
  const std::vector<double> cost = shape.layer_cost.empty()
                                       ? std::vector<double>(at(layout.layer_count()), 1.0)
                                       : shape.layer_cost;
  const auto cuts = partition(cost, layout.stage_count());
  if (!cuts.ok()) return cuts.error();
  std::vector<Stage> stages;
  for (int32_t s = 0; s < layout.stage_count(); ++s) {
    stages.push_back({cuts.value()[at(s)], cuts.value()[at(s) + 1], {}, shape.recompute});
  }
  for (int32_t p = 0; p < shape.pipelines; ++p) {
    for (int32_t w = 0; w < layout.own.workers; ++w) {
      for (int32_t c = 0; c < layout.own.chunks; ++c) {
        stages[at(layout.stage(w, c))].holders.push_back(layout.worker(p, w));
      }
    }
  }
  return stages;
}

// The compute lists of all workers. Micro-batches are numbered by position, then by pipeline, so
// that a worker that runs ops of several pipelines in ascending order alternates between them.
Schedule make_compute(const Layout& layout) {
  const Shape& shape = layout.shape;
  Schedule schedule;
  schedule.stage_count = layout.stage_count();
  schedule.micro_count = shape.micros * shape.pipelines;
  schedule.lists.resize(at(shape.stages) * at(shape.pipelines));
  for (int32_t w = 0; w < shape.stages; ++w) {
    const std::vector<Slot> slots = layout.order.make(layout.own, w);
    for (int32_t p = 0; p < shape.pipelines; ++p) {
      std::vector<Op>& list = schedule.lists[at(layout.worker(p, w).value)];
      list.reserve(slots.size());
      for (const Slot& slot : slots) {
        Op op;
        op.kind = slot.kind;
        op.stage = {layout.stage(w, slot.chunk)};
        op.micro = {slot.position * shape.pipelines + p};
        list.push_back(op);
      }
    }
  }
  return schedule;
}

// The held-out pass as a wave: position k is at stage s at tick k + s; of two ops at one tick the
// one at the later stage goes first.
Schedule make_evaluation(const Layout& layout) {
  const Shape& shape = layout.shape;
  Schedule schedule;
  schedule.stage_count = layout.stage_count();
  schedule.micro_count = shape.evaluation_micros;
  schedule.lists.resize(at(shape.stages) * at(shape.pipelines));
  for (int32_t k = 0; k < shape.evaluation_micros; ++k) {
    for (int32_t w = 0; w < shape.stages; ++w) {
      for (int32_t c = 0; c < layout.own.chunks; ++c) {
        Op op;
        op.kind = OpKind::Evaluate;
        op.stage = {layout.stage(w, c)};
        op.micro = {shape.micros * shape.pipelines + k};
        schedule.lists[at(layout.worker(k % shape.pipelines, w).value)].push_back(op);
      }
    }
  }
  const auto tick = [&](const Op& op) {
    return (op.micro.value - shape.micros * shape.pipelines) / shape.pipelines + op.stage.value;
  };
  for (auto& list : schedule.lists) {
    std::sort(list.begin(), list.end(), [&](const Op& a, const Op& b) {
      return std::pair(tick(a), -a.stage.value) < std::pair(tick(b), -b.stage.value);
    });
  }
  insert_messages(schedule);
  return schedule;
}

// Checks the lists against the memory and, under ready dispatch, sets the limits that keep the
// order. One micro-batch of memory holds one forward of each chunk.
Status set_limits(const Layout& layout, Plan& plan) {
  const Shape& shape = layout.shape;
  const int32_t chunks = layout.own.chunks;
  const MemoryLimit memory = memory_limit_of(shape.memory, chunks, shape.late_share);
  const bool open = shape.order == kAutoOrder;
  int64_t least = 0;
  WorkerId where;
  std::vector<Limit> wanted;
  for (size_t worker = 0; worker < plan.schedule.lists.size(); ++worker) {
    const auto& list = plan.schedule.lists[worker];
    wanted.push_back(open ? Limit{} : limit_of(list));
    wanted.back().memory = memory;
    const int64_t peak = open ? 0 : peak_of(list, memory);
    if (peak <= least) continue;
    least = peak;
    where = {static_cast<int32_t>(worker)};
  }
  if (shape.memory > 0 && least > memory.most) {
    const int64_t whole = memory.whole * chunks;
    const int64_t micros = (least + whole - 1) / whole;
    return Error{Code::Exhausted, Reach::Worker,
                 cat("order ", shape.order, " with ", shape.stages, " stages and ", shape.micros,
                     " micro-batches a pipeline holds up to ", micros, " of them at worker ", where,
                     ", and memory allows ", shape.memory, ": raise memory to ", micros,
                     " or take another order")};
  }
  if (plan.dispatch == Dispatch::Ready) {
    plan.limits = std::move(wanted);
  } else if (shape.memory > 0) {
    plan.limits.assign(plan.schedule.lists.size(), {0, 0, memory});
  }
  return ok();
}

}  // namespace

bool splits_by_default(const std::string& order) {
  const OrderCard* card = find_card(order);
  return order == kAutoOrder || (card != nullptr && card->splits_backward);
}

Result<Plan> make_plan(const Shape& shape) {
  if (const Status status = check_shape(shape); !status.ok()) return status.error();
  if (const Status status = check_all_reduce(shape.all_reduce); !status.ok()) {
    return status.error();
  }
  const bool open = shape.order == kAutoOrder;
  const NamedOrder* order = find_order(open ? "1f1b" : shape.order);
  if (order == nullptr) return unknown_order(shape.order);
  if (open && shape.dispatch == Dispatch::Listed) {
    return invalid("order auto leaves the order to ready dispatch: take dispatch = \"ready\"");
  }
  const int32_t chunks = shape.chunks > 0 ? shape.chunks : order->card.chunks;
  const Layout layout{shape, *order, {shape.stages, shape.micros, chunks, shape.memory}};
  if (const Status status = check_chunks(layout); !status.ok()) return status.error();
  auto stages = make_stages(layout);
  if (!stages.ok()) return stages.error();
  Plan plan;
  plan.order = shape.order;
  plan.stages = std::move(stages).value();
  plan.dispatch = shape.dispatch;
  plan.split_backward = shape.split_backward;
  plan.schedule = make_compute(layout);
  if (const Status status = set_limits(layout, plan); !status.ok()) return status.error();
  insert_messages(plan.schedule);
  plan.schedule.all_reduce = shape.all_reduce;
  plan.update = {shape.tied, shape.staggered};
  append_update(plan);
  plan.evaluation = make_evaluation(layout);
  return plan;
}

}  // namespace tenuto
