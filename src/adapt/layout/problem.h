// What a search for a layout knows: a chain of layers, the live devices, the rates between them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ir/plan.h"
#include "world/cluster.h"
#include "world/held_bytes.h"
#include "world/model.h"

namespace tenuto {

// Which layers and which devices each stage of a pipeline has, the input side first. A stage's
// holders are its replicas. A device that no stage has is idle.
using Layout = std::vector<Stage>;

// How a layout is used.
struct LayoutSettings {
  int32_t micros = 1;      // micro-batches of a step
  double state_share = 4;  // bytes of weights, gradient and optimizer state that a device keeps,
                           // for each byte of parameters (Adam in float32: 4); for layers
                           // without a value in `optimizer`
  std::vector<std::optional<Bytes>> optimizer = {};  // see LayerChain; empty, or for each layer
};

// Half-open range of layers.
struct Layers {
  int32_t first = 0, end = 0;
};

// A rate between a device and another one that is not that of their classes.
struct RateException {
  int32_t other = 0;
  double rate = 0;
};

// A model, a cluster and the settings in the form that searches need. Times are in nanoseconds,
// sizes in bytes, rates in bytes per nanosecond; all are doubles, because layouts divide them.
// Devices are the live workers, numbered from 0 in the order of their worker numbers.
class LayoutProblem {
 public:
  // Requires: at least one layer and one live worker; settings.micros >= 1; settings.optimizer is
  //           empty or has as many entries as there are layers
  LayoutProblem(const Model& model, const Cluster& cluster, const LayoutSettings& settings);

  // How many layers the model has.
  int32_t layer_count() const { return static_cast<int32_t>(forward_.size()) - 1; }
  // How many devices there are.
  int32_t device_count() const { return static_cast<int32_t>(workers_.size()); }
  // How the layout will be used.
  const LayoutSettings& settings() const { return settings_; }
  // Both directions of a link share its rate.
  bool half_duplex() const { return half_duplex_; }

  // The time of each forward and each backward of a stage besides that of its layers, on a device
  // of speed 1. Each replica takes it in full, also with split rows.
  double pass() const { return pass_; }
  // The time of the update of a stage with these layers, once a step, on a device of speed 1.
  double update(Layers layers) const { return step_ + between(update_, layers); }
  // False when pass() and the update() of all layers are 0.
  bool has_constants() const { return has_constants_; }
  // Whether update() depends on the layers.
  bool layers_have_updates() const { return update_.back() > 0; }

  // Of a whole micro-batch on one device of speed 1, without pass().
  double forward(Layers layers) const { return between(forward_, layers); }
  double backward(Layers layers) const { return between(backward_, layers); }
  double parameters(Layers layers) const { return between(parameters_, layers); }
  double stash(Layers layers) const { return between(stash_, layers); }
  // Bytes of weights, gradients and optimizer state on each device that has these layers.
  double state(Layers layers) const { return between(state_, layers); }
  // Bytes of a micro-batch that cross the cut before layer `layer`, in one direction; 0 at both
  // ends of the model.
  double cut(int32_t layer) const { return cut_[static_cast<size_t>(layer)]; }

  // The worker of a device.
  WorkerId worker(int32_t device) const { return workers_[static_cast<size_t>(device)]; }
  // The device of a live worker.
  int32_t device(WorkerId worker) const { return devices_[static_cast<size_t>(worker.value)]; }
  // Of a device, relative to the one that the model was measured on.
  double speed(int32_t device) const { return speed_[static_cast<size_t>(device)]; }
  // Infinite when unlimited.
  double memory(int32_t device) const { return memory_[static_cast<size_t>(device)]; }
  // Between two different devices: of the slower direction, at most that of each port on the way;
  // infinite when unlimited. That several pairs of devices share a port is not in it.
  double rate(int32_t one, int32_t other) const {
    const size_t row = class_[static_cast<size_t>(one)],
                 column = class_[static_cast<size_t>(other)];
    const double rate = rates_[row * class_count_ + column];
    return exceptions_.empty() ? rate : rate_with_exceptions(one, other, rate);
  }
  // Devices are in classes. The rate between two of them is that of their classes, or of the same
  // class, if it is not an exception.
  size_t class_count() const { return class_count_; }
  // The class of a device.
  size_t class_of(int32_t device) const { return class_[static_cast<size_t>(device)]; }
  // Between devices of two classes, apart from exceptions.
  double class_rate(size_t one, size_t other) const { return rates_[one * class_count_ + other]; }
  // The exceptions of a device, by the other device, ascending.
  std::span<const RateException> exceptions(int32_t device) const {
    if (exceptions_.empty()) return {};
    const size_t first = first_exception_[static_cast<size_t>(device)];
    return std::span(exceptions_)
        .subspan(first, first_exception_[static_cast<size_t>(device) + 1] - first);
  }
  // Sets row[other] to rate(device, other) for all other devices.
  void rates_from(int32_t device, std::vector<double>& row) const;
  // True when some device's memory is limited.
  bool memory_is_limited() const { return memory_is_limited_; }

 private:
  using Sums = std::vector<double>;  // [i] = of the first i layers
  static double between(const Sums& sums, Layers layers) {
    return sums[static_cast<size_t>(layers.end)] - sums[static_cast<size_t>(layers.first)];
  }
  void take_classes(const Cluster& cluster);
  void take_exceptions(const Cluster& cluster);
  double rate_with_exceptions(int32_t one, int32_t other, double rate) const;

  LayoutSettings settings_;
  bool half_duplex_ = false;
  double step_ = 0, pass_ = 0;
  bool has_constants_ = false;
  Sums forward_, backward_, update_, parameters_, stash_, state_;
  std::vector<double> cut_;
  std::vector<WorkerId> workers_;
  std::vector<int32_t> devices_;  // of each worker; -1 = not alive
  std::vector<double> speed_, memory_;
  std::vector<size_t> class_;  // of each device
  size_t class_count_ = 0;
  std::vector<double> rates_;              // between two classes
  std::vector<RateException> exceptions_;  // of device 0, then of device 1, ...
  std::vector<size_t> first_exception_;    // of each device, and behind the last one
  bool memory_is_limited_ = false;
};

// The slowest rate between two different devices of these; infinite when there are none.
//
// Cost: linear in the devices and their exceptions, and quadratic in their classes
double slowest_inside(const LayoutProblem& problem, const std::vector<int32_t>& devices);

// The slowest rate between a device of `from` and one of `to`, which have no device in common.
// Cost: as slowest_inside()
double slowest_between(const LayoutProblem& problem, const std::vector<int32_t>& from,
                       const std::vector<int32_t>& to);

// A stage's share of the work, in nanoseconds.
struct StageLoad {
  double forward = 0, backward = 0;  // of a micro-batch
  double reduction = 0;              // once a step: all-reduce of the gradients, and the update
  // Forward and backward.
  double both() const { return forward + backward; }
};

// The time of a micro-batch's forward and backward in a stage, added up over the replicas that
// share its rows, on devices of speed 1.
struct StageWork {
  double forward = 0, backward = 0;
  // Forward and backward.
  double both() const { return forward + backward; }
};

// The work of a stage with these layers. If the stage recomputes, its backward includes the forward
// that it runs again.
inline StageWork stage_work(const LayoutProblem& problem, Layers layers, bool recompute,
                            double replicas) {
  const double pass = replicas * problem.pass();
  const double forward = problem.forward(layers) + pass;
  return {forward, problem.backward(layers) + pass + (recompute ? forward : 0)};
}

// The devices of a stage, as far as they decide its load when rows are split over them.
struct ReplicaTerms {
  double replicas = 0;  // how many there are
  double speed = 0;     // of the slowest
  double inside = 0;    // rate of the slowest pair
};

// The load of a stage with these layers and devices, with rows split over the devices. Each device
// updates the parameters of the whole stage.
inline StageLoad split_load(const LayoutProblem& problem, Layers layers, const ReplicaTerms& terms,
                            bool recompute = false) {
  const double forward = problem.forward(layers), speeds = terms.replicas * terms.speed;
  StageLoad load{
      forward / speeds, (problem.backward(layers) + (recompute ? forward : 0)) / speeds,
      2 * (terms.replicas - 1) / terms.replicas * problem.parameters(layers) / terms.inside};
  if (!problem.has_constants()) return load;
  const double pass = problem.pass() / terms.speed;
  load.forward += pass;
  load.backward += recompute ? 2 * pass : pass;
  load.reduction += problem.update(layers) / terms.speed;
  return load;
}

// What a boundary between two stages carries for each micro-batch, in nanoseconds.
struct LinkLoad {
  double forward = 0, backward = 0;
  // Both ways.
  double both() const { return forward + backward; }
};

// The loads of a layout, from which its schedule is made.
struct LayoutLoads {
  std::vector<StageLoad> stages;
  std::vector<LinkLoad> links;  // one fewer than stages; links[n] joins stages n and n + 1
  int32_t micros = 1;
  bool half_duplex = false;
};

// The loads when every micro-batch is cut into equal rows, one share for each replica of a stage.
// A replica sends a part of its rows to each replica of the next stage; the slowest pair determines
// the time. Gradients are summed by a ring, whose slowest pair determines the time.
//
// Source: Luo et al., "Efficient Pipeline Planning for Expedited Distributed DNN Training",
//         INFOCOM 2022 (rows split over the replicas of a stage)
LayoutLoads row_split_loads(const LayoutProblem& problem, const Layout& layout);

// The load of the busiest stage or link during a step, W in the literature: for a stage its
// micro-batches and its reduction, for a link all transfers of both directions. With half-duplex
// links no schedule is shorter.
double bottleneck(const LayoutLoads& loads);

// No schedule of these loads is shorter. Cost: linear in the number of stages.
double least_makespan(const LayoutLoads& loads);

// The bytes that a stage with these layers needs.
inline HeldBytes held_bytes(const LayoutProblem& problem, Layers layers, bool recompute = false) {
  return held_bytes(problem.state(layers), problem.stash(layers), problem.cut(layers.first),
                    recompute);
}
// The same for a stage of a layout.
inline HeldBytes held_bytes(const LayoutProblem& problem, const Stage& stage) {
  return held_bytes(problem, {stage.layer_first, stage.layer_end}, stage.recompute);
}

// The least number of micro-batches in flight with which a pipeline is kept busy, on a stage with
// so many stages behind it.
inline int32_t least_in_flight(const LayoutSettings& settings, int32_t behind) {
  return std::min(settings.micros, behind + 1);
}

// The memory that each replica of a stage needs when `in_flight` micro-batches are between the
// start of their forward and the end of their backward, with rows split over the replicas.
double stage_memory(const LayoutProblem& problem, const Stage& stage, int32_t in_flight);

// The memory of the device with the least of all that have this stage.
double least_memory(const LayoutProblem& problem, const Stage& stage);

// For each stage, the largest number of micro-batches in flight that fits into memory. Empty when
// memory is unlimited.
std::vector<int32_t> most_in_flight(const LayoutProblem& problem, const Layout& layout);

// What each worker keeps that takes whole micro-batches and may have several stages: the state of
// all of them. Each of its micro-batches in flight counts as much as in the stage where it is
// largest; one that two of its stages hold counts twice.
std::vector<HeldBytes> held_by_workers(const LayoutProblem& problem, const Layout& layout,
                                       size_t workers);

// A layout in which some stage needs more memory than one of its devices has.
struct MemoryShortage {
  int32_t stage = -1;  // -1 = every stage fits
  int32_t device = -1;
  double missing = 0;  // bytes
};

// The first stage that does not fit with so many micro-batches in flight on each stage.
MemoryShortage memory_shortage(const LayoutProblem& problem, const Layout& layout,
                               const std::vector<int32_t>& in_flight);
// The first stage that does not fit with least_in_flight().
MemoryShortage memory_shortage(const LayoutProblem& problem, const Layout& layout);

}  // namespace tenuto
