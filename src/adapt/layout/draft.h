// Layouts in a form that searches change quickly: how many devices of each kind a stage has, with
// the loads kept up to date.
#pragma once

#include <cstdint>
#include <vector>

#include "adapt/layout/problem.h"

namespace tenuto {

// Some devices of a kind.
struct KindCount {
  int32_t kind = 0, count = 0;
  bool operator==(const KindCount&) const = default;
};

// Devices of one kind can be exchanged for each other without any change of a layout's loads: they
// have the same speed and memory, and the same rates to every third device. A search that counts
// devices by kind meets each of these equal layouts once.
class DeviceKinds {
 public:
  // Cost: O(V C) for V devices in C classes, beside their exceptions
  explicit DeviceKinds(const LayoutProblem& problem);

  // The number of kinds.
  // How many kinds there are.
  int32_t count() const { return static_cast<int32_t>(devices_.size()); }
  // Ascending; kinds are numbered by their first device.
  const std::vector<int32_t>& devices(int32_t kind) const {
    return devices_[static_cast<size_t>(kind)];
  }
  // The kind of a device.
  int32_t kind(int32_t device) const { return kind_[static_cast<size_t>(device)]; }
  // The lowest devices of these kinds, so many of each; and the highest ones.
  std::vector<int32_t> some(const std::vector<KindCount>& counts) const;
  std::vector<int32_t> last(const std::vector<KindCount>& counts) const;
  // Between a device of one kind and a different one of the other; infinite when there is none.
  double rate(int32_t one, int32_t other) const;
  double speed(int32_t kind) const { return problem_->speed(devices(kind).front()); }
  double memory(int32_t kind) const { return problem_->memory(devices(kind).front()); }

 private:
  const LayoutProblem* problem_;
  std::vector<std::vector<int32_t>> devices_;
  std::vector<int32_t> kind_;
};

// A stage of a draft.
struct DraftStage {
  Layers layers;
  std::vector<KindCount> devices;  // kinds ascending, counts above 0
  // What follows from the devices: their number, the slowest rate between two of them, the lowest
  // speed and the smallest memory.
  int32_t replicas = 0;
  double inside = 0, speed = 0, memory = 0;
};

// A layout by kinds of devices. DraftTable changes it.
struct Draft {
  std::vector<DraftStage> stages;
  std::vector<double> between;  // [n] = slowest rate between the devices of stages n and n + 1
  std::vector<KindCount> idle;  // devices of no stage
  LayoutLoads loads;            // equal to row_split_loads() of the layout
};

// The place of idle devices in DraftTable::move_devices().
inline constexpr int32_t kIdle = -1;

// Makes and changes drafts of a problem.
class DraftTable {
 public:
  explicit DraftTable(const LayoutProblem& problem) : problem_(&problem), kinds_(problem) {}

  // What the drafts are of.
  // The problem whose layouts these are.
  const LayoutProblem& problem() const { return *problem_; }
  // The kinds that drafts count devices by.
  // The kinds of its devices.
  const DeviceKinds& kinds() const { return kinds_; }

  // The draft of a layout of at least one stage.
  // The draft of a layout.
  Draft draft(const Layout& layout) const;
  // The layout of a draft. Each stage, the first one first, gets the lowest devices of its kinds
  // that are left.
  Layout layout(const Draft& draft) const;

  // Changes where stage `stage` ends and the next one begins; both must keep a layer.
  void set_cut(Draft& draft, int32_t stage, int32_t layer) const;
  // Moves devices of a kind from one stage (or kIdle) to another. A stage that becomes empty must
  // get devices next.
  void move_devices(Draft& draft, int32_t from, int32_t to, KindCount devices) const;
  // Exchanges all devices of two stages.
  void exchange(Draft& draft, int32_t one, int32_t other) const;
  // Divides a stage at a layer: a new stage with the given idle devices has the layers from there
  // to the stage's end (`after`), or from the stage's start to there.
  void insert(Draft& draft, int32_t stage, int32_t layer, bool after, KindCount devices) const;
  // Removes a stage. Its layers go to the stage before it or after it, its devices to the stage
  // `to` (numbered before the removal) or to kIdle.
  void remove(Draft& draft, int32_t stage, bool layers_before, int32_t to) const;

  // How many micro-batches each stage can have in flight; the step's number where memory is
  // unlimited, and 0 where even the parameters do not fit.
  std::vector<int32_t> most_in_flight(const Draft& draft) const;
  // The bytes that are missing in a stage, as in memory_shortage(); 0 when it fits.
  double missing(const Draft& draft, int32_t stage) const;
  // The stage that misses most; no stage when all fit. The device is not set.
  MemoryShortage shortage(const Draft& draft) const;

 private:
  void refresh_devices(Draft& draft, int32_t stage) const;
  void refresh_link(Draft& draft, int32_t stage) const;
  void refresh_stage_load(Draft& draft, int32_t stage) const;
  void refresh_link_load(Draft& draft, int32_t stage) const;

  const LayoutProblem* problem_;
  DeviceKinds kinds_;
};

// The same loads have the same key, and different ones almost never. Drafts with equal loads have
// equal schedules.
uint64_t key_of(const LayoutLoads& loads);

}  // namespace tenuto
