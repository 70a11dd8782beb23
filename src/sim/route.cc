#include "sim/route.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

bool is_forward(const Op& op) { return op.kind == OpKind::Forward || op.kind == OpKind::Evaluate; }

class Surveyor {
 public:
  Surveyor(const Plan& plan, const Schedule& schedule, const Model& model, const Cluster& cluster,
           const PriceOptions& options)
      : plan_(plan),
        schedule_(schedule),
        model_(model),
        cluster_(cluster),
        options_(options),
        sizes_(sizes_of(model, plan.stages)) {
    for (const Stage& stage : plan.stages) costs_.push_back(stage_cost(model, stage));
  }

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
  Duration time(OpKind kind, WorkerId worker, int32_t stage) const {
    Op op;
    op.kind = kind;
    op.stage = {stage};
    const double speed = cluster_.workers[at(worker.value)].speed;
    return at_speed(op_time(op, plan_, costs_, model_), speed) + options_.per_op;
  }
  // Latency and time on the link of one message; none inside a worker.
  std::pair<Duration, Duration> way(WorkerId from, WorkerId to, ValueKind kind,
                                    int32_t stage) const {
    if (from == to) return {};
    const Link link = cluster_.link(from, to);
    return {link.latency,
            transfer_time(sizes_.of[at(stage)][at(int(kind))], link.bytes_per_second)};
  }

  std::vector<Leg> legs_of(const std::vector<WorkerId>& workers, bool trains) const {
    std::vector<Leg> legs(workers.size());
    for (int32_t s = 0; s < schedule_.stage_count; ++s) {
      Leg& leg = legs[at(s)];
      const WorkerId worker = workers[at(s)];
      leg.forward = time(OpKind::Forward, worker, s);
      if (trains) {
        leg.backward = time(OpKind::BackwardInput, worker, s);
        leg.weight = time(OpKind::BackwardWeight, worker, s);
      }
      if (s + 1 < schedule_.stage_count) {
        std::tie(leg.down, leg.down_busy) =
            way(worker, workers[at(s) + 1], ValueKind::Activation, s);
      }
      if (s > 0) {
        std::tie(leg.up, leg.up_busy) = way(worker, workers[at(s) - 1], ValueKind::Gradient, s);
      }
      if (at(worker.value) < plan_.limits.size()) leg.room = plan_.limits[at(worker.value)].room;
    }
    return legs;
  }

  const Plan& plan_;
  const Schedule& schedule_;
  const Model& model_;
  const Cluster& cluster_;
  const PriceOptions& options_;
  Sizes sizes_;
  std::vector<StageCost> costs_;
};

}  // namespace

int32_t Leg::in_flight(int32_t micros) const {
  if (room.most == 0 || room.whole == 0) return micros;
  return static_cast<int32_t>(std::min<int64_t>(micros, room.most / room.whole));
}

std::vector<Route> routes_of(const Plan& plan, const Schedule& schedule, const Model& model,
                             const Cluster& cluster, const PriceOptions& options) {
  return Surveyor(plan, schedule, model, cluster, options).routes();
}

}  // namespace tenuto
