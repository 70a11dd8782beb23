#include "adapt/layout/exact_layout.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "adapt/layout/exact_blocks.h"
#include "base/check.h"

namespace tenuto {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Bytes over the slowest connection between two different workers of the two sets; the slower
// direction counts. 0 when there is no such pair.
double slowest_transfer(const Cluster& cluster, double bytes, const std::vector<WorkerId>& from,
                        const std::vector<WorkerId>& to) {
  double slowest = 0;
  for (const WorkerId one : from) {
    for (const WorkerId other : to) {
      if (one == other) continue;
      for (const Link& link : {cluster.link(one, other), cluster.link(other, one)}) {
        const double rate = link.bytes_per_second == 0 ? kInfinity : link.bytes_per_second;
        slowest = std::max(slowest, bytes / rate * 1e9);
      }
    }
  }
  return slowest;
}

StageLoad load_of(const Model& model, const Cluster& cluster, const Stage& stage) {
  const auto replicas = static_cast<double>(stage.holders.size());
  double speed = kInfinity, parameters = 0;
  for (const WorkerId holder : stage.holders) {
    speed = std::min(speed, cluster.workers[static_cast<size_t>(holder.value)].speed);
  }
  StageLoad load;
  double update = static_cast<double>(model.step.count());
  for (int32_t l = stage.layer_first; l < stage.layer_end; ++l) {
    const Layer& layer = model.layers[static_cast<size_t>(l)];
    const Duration backward = layer.backward_input + layer.backward_weight;
    load.forward += static_cast<double>(layer.forward.count()) / (replicas * speed);
    load.backward += static_cast<double>(backward.count()) / (replicas * speed);
    parameters += static_cast<double>(layer.parameters.count);
    update += static_cast<double>(layer.update.count());
  }
  load.forward += static_cast<double>(model.op.count()) / speed;
  load.backward += static_cast<double>(model.op.count()) / speed;
  const double once = slowest_transfer(cluster, parameters, stage.holders, stage.holders);
  load.reduction = 2 * (replicas - 1) / replicas * once + update / speed;
  return load;
}

LinkLoad load_between(const Model& model, const Cluster& cluster, const Stage& stage,
                      const Stage& next) {
  const Layer& last = model.layers[static_cast<size_t>(stage.layer_end - 1)];
  const auto pairs = static_cast<double>(stage.holders.size() * next.holders.size());
  const double part = static_cast<double>(last.activation.count) / pairs;
  const double time = slowest_transfer(cluster, part, stage.holders, next.holders);
  return {time, time};
}

// A layout with its loads, and a time that no schedule of it can be below.
struct Candidate {
  Layout layout;
  LayoutLoads loads;
  double bound = 0;
};

// Every resource has to do all its work between the first micro-batch's way to it and the last
// one's way back from it.
double simple_bound(const LayoutLoads& loads) {
  const double micros = loads.micros;
  double there = 0, back = 0, bound = 0;
  for (size_t n = 0; n < loads.stages.size(); ++n) {
    const StageLoad& stage = loads.stages[n];
    bound = std::max(bound, there + micros * stage.both() + std::max(back, stage.reduction));
    if (n == loads.links.size()) break;
    const LinkLoad& link = loads.links[n];
    there += stage.forward;
    back += stage.backward;
    bound =
        std::max(bound, there + back +
                            (loads.half_duplex ? micros * link.both()
                                               : micros * std::max(link.forward, link.backward)));
    there += link.forward;
    back += link.backward;
  }
  return bound;
}

// Lists all layouts.
class Listing {
 public:
  Listing(const Model& model, const Cluster& cluster, const LayoutSettings& settings)
      : model_(model), cluster_(cluster), settings_(settings) {
    for (size_t w = 0; w < cluster.workers.size(); ++w) {
      const Worker& worker = cluster.workers[w];
      CHECK(worker.memory.count == 0, "the best layout is searched for unlimited memory");
      if (worker.alive) alive_.push_back(WorkerId{static_cast<int32_t>(w)});
    }
    CHECK(alive_.size() <= 4 && settings.micros <= 4, "small enough for all layouts");
  }

  std::vector<Candidate> list() {
    add_stage(0);
    return std::move(candidates_);
  }

 private:
  // Adds every stage that can begin with this layer, and all that can follow.
  void add_stage(int32_t first) {
    const auto end = static_cast<int32_t>(model_.layers.size());
    if (first == end) return assign_devices(0);
    if (layout_.size() == alive_.size()) return;
    for (int32_t next = first + 1; next <= end; ++next) {
      layout_.push_back({first, next, {}});
      add_stage(next);
      layout_.pop_back();
    }
  }

  // Gives this device and all later ones to the stages, or to none, in every way.
  void assign_devices(size_t device) {
    if (device == alive_.size()) return add_candidate();
    assign_devices(device + 1);
    for (Stage& stage : layout_) {
      stage.holders.push_back(alive_[device]);
      assign_devices(device + 1);
      stage.holders.pop_back();
    }
  }

  void add_candidate() {
    for (const Stage& stage : layout_) {
      if (stage.holders.empty()) return;
    }
    Candidate candidate;
    candidate.layout = layout_;
    candidate.loads.micros = settings_.micros;
    candidate.loads.half_duplex = cluster_.half_duplex;
    for (size_t n = 0; n < layout_.size(); ++n) {
      candidate.loads.stages.push_back(load_of(model_, cluster_, layout_[n]));
      if (n > 0) {
        candidate.loads.links.push_back(load_between(model_, cluster_, layout_[n - 1], layout_[n]));
      }
    }
    candidate.bound = simple_bound(candidate.loads);
    candidates_.push_back(std::move(candidate));
  }

  const Model& model_;
  const Cluster& cluster_;
  const LayoutSettings settings_;
  std::vector<WorkerId> alive_;
  Layout layout_;
  std::vector<Candidate> candidates_;
};

ExactLayout best_of(std::vector<Candidate> candidates, bool prune) {
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& one, const Candidate& other) { return one.bound < other.bound; });
  ExactLayout best;
  best.makespan = kInfinity;
  best.layouts = static_cast<int64_t>(candidates.size());
  for (const Candidate& candidate : candidates) {
    if (prune && candidate.bound >= best.makespan) break;
    ++best.scheduled;
    const double makespan = exact_makespan(candidate.loads);
    if (makespan >= best.makespan) continue;
    best.makespan = makespan;
    best.layout = candidate.layout;
  }
  return best;
}

}  // namespace

ExactLayout exact_layout(const Model& model, const Cluster& cluster,
                         const LayoutSettings& settings) {
  return best_of(Listing(model, cluster, settings).list(), true);
}

ExactLayout exhaustive_layout(const Model& model, const Cluster& cluster,
                              const LayoutSettings& settings) {
  return best_of(Listing(model, cluster, settings).list(), false);
}

}  // namespace tenuto
