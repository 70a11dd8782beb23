#include "sim/route.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/longest_time.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

bool is_forward(const Op& op) { return op.kind == OpKind::Forward || op.kind == OpKind::Evaluate; }

class Surveyor {
 public:
  Surveyor(const Plan& plan, const Schedule& schedule, const Model& model, const Cluster& cluster,
           const PriceOptions& options)
      : plan_(plan), schedule_(schedule), costs_(plan, model, cluster, options) {}

  std::vector<Route> routes() {
    bool trains = false;
    int32_t first_micro = INT32_MAX;
    for (const auto& list : schedule_.lists) {
      for (const Op& op : list) {
        if (!is_forward(op)) continue;
        trains = op.kind == OpKind::Forward;
        first_micro = std::min(first_micro, op.micro.value);
      }
    }
    std::vector<std::vector<WorkerId>> owners(at(schedule_.micro_count));
    for (auto& owner : owners) owner.resize(at(schedule_.stage_count));
    for (size_t w = 0; w < schedule_.lists.size(); ++w) {
      for (const Op& op : schedule_.lists[w]) {
        if (!is_forward(op)) continue;
        owners[at(op.micro.value - first_micro)][at(op.stage.value)] = {static_cast<int32_t>(w)};
      }
    }
    std::map<std::vector<WorkerId>, std::vector<MicroId>> micros;
    for (size_t k = 0; k < owners.size(); ++k) {
      micros[std::move(owners[k])].push_back({first_micro + static_cast<int32_t>(k)});
    }
    std::vector<Route> all;
    for (auto& [workers, numbers] : micros) {
      all.push_back({workers, std::move(numbers), legs_of(workers, trains), trains});
    }
    return all;
  }

 private:
  std::vector<Leg> legs_of(const std::vector<WorkerId>& workers, bool trains) const {
    std::vector<Leg> legs(workers.size());
    for (int32_t s = 0; s < schedule_.stage_count; ++s) {
      Leg& leg = legs[at(s)];
      const WorkerId worker = workers[at(s)];
      leg.forward = costs_.op(OpKind::Forward, worker, {s});
      if (trains) {
        leg.backward = costs_.op(OpKind::BackwardInput, worker, {s});
        leg.weight = costs_.op(OpKind::BackwardWeight, worker, {s});
      }
      if (s + 1 < schedule_.stage_count) {
        const Transit down = costs_.transit(worker, workers[at(s) + 1], ValueKind::Activation, {s});
        leg.down = down.latency;
        leg.down_busy = down.busy;
      }
      if (s > 0) {
        const Transit up = costs_.transit(worker, workers[at(s) - 1], ValueKind::Gradient, {s});
        leg.up = up.latency;
        leg.up_busy = up.busy;
      }
      if (at(worker.value) < plan_.limits.size())
        leg.memory = plan_.limits[at(worker.value)].memory;
    }
    return legs;
  }

  const Plan& plan_;
  const Schedule& schedule_;
  const Costs costs_;
};

}  // namespace

Costs::Costs(const Plan& plan, const Model& model, const Cluster& cluster,
             const PriceOptions& options)
    : plan_(plan),
      cluster_(cluster),
      per_op_(options.per_op),
      sizes_(sizes_of(model, plan.stages)) {
  for (const Stage& stage : plan.stages) stages_.push_back(stage_cost(model, stage));
}

Duration Costs::op(OpKind kind, WorkerId worker, StageId stage) const {
  Op op;
  op.kind = kind;
  op.stage = stage;
  const double speed = cluster_.workers[at(worker.value)].speed;
  return plus(at_speed(op_time(op, plan_, stages_), speed), per_op_);
}

Transit Costs::transit(WorkerId from, WorkerId to, ValueKind kind, StageId stage) const {
  if (from == to) return {};
  const Link link = cluster_.link(from, to);
  return {link.latency,
          transfer_time(sizes_.of[at(stage.value)][at(int(kind))], link.bytes_per_second)};
}

std::vector<Route> routes_of(const Plan& plan, const Schedule& schedule, const Model& model,
                             const Cluster& cluster, const PriceOptions& options) {
  return Surveyor(plan, schedule, model, cluster, options).routes();
}

}  // namespace tenuto
