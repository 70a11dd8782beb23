#include "adapt/report/mapping.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/text.h"
#include "sim/price.h"
#include "sim/reduction_price.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

std::vector<int32_t> devices_of(const LayoutProblem& problem, const Stage& stage) {
  std::vector<int32_t> devices;
  for (const WorkerId holder : stage.holders) devices.push_back(problem.device(holder));
  std::sort(devices.begin(), devices.end());
  return devices;
}

std::string times_text(double least, double most) {
  const std::string first = ms_text(least), last = ms_text(most);
  return first == last ? cat(first, " ms each way") : cat(first, " to ", last, " ms");
}

// The messages between two neighbouring stages.
struct Traffic {
  double least = 0, most = 0;  // time of a message, in nanoseconds
  double busy = 0;             // of the busiest direction of a link between two workers
  WorkerId from, to;           // devices of the slowest message, in the direction of activations
  bool any() const { return from.value >= 0; }
};

// The figures of a plan whose holders take whole micro-batches in turn.
class InTurnFigures {
 public:
  InTurnFigures(const PlanReport& report, const InTurnPlan& plan)
      : report_(report), plan_(plan.plan), step_(static_cast<double>(plan.step.count())) {
    for (const Stage& stage : plan_.stages) costs_.push_back(stage_cost(report.chain.model, stage));
    const size_t workers = plan_.schedule.lists.size(), stages = plan_.stages.size();
    compute_.resize(workers);
    state_.resize(workers);
    forwards_.resize(stages);
    traffic_.resize(stages);
    for (size_t w = 0; w < workers; ++w) count_ops(WorkerId{static_cast<int32_t>(w)});
    for (const Stage& stage : plan_.stages) {
      const double state = held_bytes(report.problem, stage).state;
      for (const WorkerId holder : stage.holders) state_[at(holder.value)] += state;
    }
    PriceOptions options;
    options.lower_bound = false;
    options.bytes = true;
    auto priced = price(plan_, report.chain.model, *report.cluster, options);
    if (priced.ok()) price_ = std::move(priced).value();
  }

  MappedStage stage(size_t n) const {
    const Stage& stage = plan_.stages[n];
    MappedStage it;
    it.layers = layers_text(report_.chain.names, stage);
    it.devices = devices_of(report_.problem, stage);
    double memory = 0, held = 0;  // of the holder with the most
    for (const WorkerId holder : stage.holders) {
      const size_t w = at(holder.value);
      it.busy = std::max(it.busy, share_of(compute_[w], step_));
      if (w < price_.peak_bytes.size()) {
        memory = std::max(memory, state_[w] + static_cast<double>(price_.peak_bytes[w].count));
        held = std::max(held, price_.peak_micros[w]);
      }
    }
    if (memory > 0) {
      it.facts.push_back(cat("memory ", bytes_text(memory)));
    }
    it.facts.push_back(
        cat(micros_text(n), held > 0 ? cat(", ", fixed(held, 1), " in flight") : ""));
    if (const std::string sum = sum_text(n); !sum.empty()) it.facts.push_back(sum);
    if (stage.recompute) it.facts.push_back("recomputes");
    return it;
  }

  MappedLink link(size_t n) const {
    const Traffic& traffic = traffic_[n];
    MappedLink it;
    it.bytes = report_.problem.cut(plan_.stages[n].layer_end);
    it.time = traffic.any() ? times_text(traffic.least, traffic.most) : "on one device";
    if (traffic.any()) {
      it.from = report_.problem.device(traffic.from);
      it.to = report_.problem.device(traffic.to);
    }
    it.busy = share_of(traffic.busy, step_);
    return it;
  }

 private:
  // Adds up the ops of a worker.
  void count_ops(WorkerId worker) {
    std::map<std::tuple<int32_t, WorkerId, bool>, int64_t> sent;  // by boundary, receiver, and
                                                                  // true for activations
    for (const Op& op : plan_.schedule.lists[at(worker.value)]) {
      if (op.kind == OpKind::Send) {
        const bool ahead = op.moved == ValueKind::Activation;
        if (ahead || op.moved == ValueKind::Gradient) {
          ++sent[{op.stage.value - (ahead ? 0 : 1), op.peer, ahead}];
        }
        continue;
      }
      if (op.kind == OpKind::Forward) ++forwards_[at(op.stage.value)][worker.value];
      if (op.kind == OpKind::Forward || op.kind == OpKind::BackwardInput ||
          op.kind == OpKind::BackwardWeight) {
        const double speed = report_.cluster->workers[at(worker.value)].speed;
        compute_[at(worker.value)] +=
            static_cast<double>(at_speed(op_time(op, plan_, costs_), speed).count());
      }
    }
    for (const auto& [way, count] : sent) {
      const auto [boundary, peer, ahead] = way;
      const Link link = report_.cluster->link(worker, peer);
      const double bytes = report_.problem.cut(plan_.stages[at(boundary)].layer_end);
      const double busy = link.bytes_per_second > 0 ? bytes / link.bytes_per_second * 1e9 : 0;
      const double time = busy + static_cast<double>(link.latency.count());
      Traffic& all = traffic_[at(boundary)];
      all.least = all.any() ? std::min(all.least, time) : time;
      // With half duplex, the messages of both directions share the link, and both take as long.
      const double ways = report_.problem.half_duplex() ? 2 : 1;
      all.busy = std::max(all.busy, ways * busy * static_cast<double>(count));
      if (all.any() && time <= all.most) continue;
      all.most = time;
      all.from = ahead ? worker : peer;
      all.to = ahead ? peer : worker;
    }
  }

  // "3 to 5 micro-batches each".
  std::string micros_text(size_t n) const {
    int64_t least = plan_.schedule.micro_count, most = 0;
    for (const WorkerId holder : plan_.stages[n].holders) {
      const auto found = forwards_[n].find(holder.value);
      const int64_t count = found == forwards_[n].end() ? 0 : found->second;
      least = std::min(least, count);
      most = std::max(most, count);
    }
    const char* what = most == 1 ? " micro-batch" : " micro-batches";
    return cat(least == most ? std::string() : cat(least, " to "), most, what,
               plan_.stages[n].holders.size() > 1 ? " each" : "");
  }

  // "reduction 3.000 ms" of the gradients of a stage with several holders.
  std::string sum_text(size_t n) const {
    double time = 0;
    for (const Group& group : plan_.schedule.groups) {
      if (group.stages.size() != 1 || at(group.stages[0].value) != n || group.members.size() < 2) {
        continue;
      }
      const Collective& way = plan_.schedule.collectives[at(group.collective.value)];
      const std::vector<Duration> ends = reduction_finish(
          way, std::vector<Duration>(way.members.size()), costs_[n].parameters, *report_.cluster);
      for (const Duration end : ends) time = std::max(time, static_cast<double>(end.count()));
    }
    return time > 0 ? cat("reduction ", ms_text(time), " ms") : std::string();
  }

  const PlanReport& report_;
  const Plan& plan_;
  double step_ = 0;
  std::vector<StageCost> costs_;
  std::vector<double> compute_, state_;               // of each worker
  std::vector<std::map<int32_t, int64_t>> forwards_;  // of each stage, by worker
  std::vector<Traffic> traffic_;                      // of each boundary
  Timeline price_;
};

std::vector<int32_t> workers_of(const PlanReport& report, const std::vector<int32_t>& devices) {
  std::vector<int32_t> workers;
  for (const int32_t device : devices) workers.push_back(report.problem.worker(device).value);
  return workers;
}

}  // namespace

Mapping rows_split_mapping(const PlanReport& report) {
  const PricedLayout& best = report.search.best;
  const Busy most = busiest(best.loads);
  const double step = best.schedule.makespan;
  Mapping mapping;
  for (size_t n = 0; n < best.layout.size(); ++n) {
    const Stage& stage = best.layout[n];
    const StageLoad& load = best.loads.stages[n];
    const int32_t in_flight = best.schedule.in_flight[n];
    MappedStage it{layers_text(report.chain.names, stage),
                   devices_of(report.problem, stage),
                   share_of(busy_time(best.loads, load), step),
                   !most.link && most.index == n,
                   {}};
    it.facts.push_back(cat("memory ", bytes_text(stage_memory(report.problem, stage, in_flight)),
                           ", ", in_flight, " in flight"));
    it.facts.push_back(
        cat("forward ", ms_text(load.forward), ", backward ", ms_text(load.backward), " ms"));
    if (load.reduction > 0) it.facts.push_back(cat("reduction ", ms_text(load.reduction), " ms"));
    if (stage.recompute) it.facts.push_back("recomputes");
    mapping.stages.push_back(std::move(it));
  }
  for (size_t n = 0; n < best.loads.links.size(); ++n) {
    const LinkLoad& load = best.loads.links[n];
    mapping.links.push_back(
        {report.problem.cut(best.layout[n].layer_end),
         times_text(std::min(load.forward, load.backward), std::max(load.forward, load.backward)),
         share_of(busy_time(best.loads, load), step), most.link && most.index == n, -1, -1});
  }
  return mapping;
}

Mapping in_turn_mapping(const PlanReport& report, const InTurnPlan& plan) {
  const InTurnFigures figures(report, plan);
  Mapping mapping;
  size_t busiest = 0;
  for (size_t n = 0; n < plan.plan.stages.size(); ++n) {
    mapping.stages.push_back(figures.stage(n));
    if (mapping.stages[n].busy > mapping.stages[busiest].busy) busiest = n;
    if (n > 0) mapping.links.push_back(figures.link(n - 1));
  }
  mapping.stages[busiest].busiest = true;
  return mapping;
}

TextRows mapped_stage_rows(const PlanReport& report, const Mapping& mapping) {
  TextRows rows = {{"stage", "devices", "layers", "busy", "figures"}};
  for (size_t n = 0; n < mapping.stages.size(); ++n) {
    const MappedStage& stage = mapping.stages[n];
    std::string facts;
    for (const std::string& fact : stage.facts) facts += cat(facts.empty() ? "" : "; ", fact);
    rows.push_back({cat(n), ranges_text(workers_of(report, stage.devices)), stage.layers,
                    cat(percent(stage.busy), stage.busiest ? ", bottleneck" : ""), facts});
  }
  return rows;
}

TextRows mapped_link_rows(const Mapping& mapping) {
  TextRows rows = {{"link", "bytes of a micro-batch", "time", "busy"}};
  for (size_t n = 0; n < mapping.links.size(); ++n) {
    const MappedLink& link = mapping.links[n];
    rows.push_back({cat(n, "-", n + 1), bytes_text(link.bytes), link.time,
                    cat(percent(link.busy), link.busiest ? ", bottleneck" : "")});
  }
  return rows;
}

}  // namespace tenuto
