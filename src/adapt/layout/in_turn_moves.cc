#include "adapt/layout/in_turn_moves.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace tenuto {

namespace {

constexpr size_t kAllPairs = 16;     // stages
constexpr int32_t kMostShifts = 64;  // shifts of cuts after one change

class Changes {
 public:
  Changes(const InTurnPricer& pricer, const DeviceKinds& kinds, const Layout& layout,
          const TakeLayout& take)
      : pricer_(pricer), kinds_(kinds), layout_(layout), take_(take) {
    std::set<WorkerId> used;
    for (const Stage& stage : layout) used.insert(stage.holders.begin(), stage.holders.end());
    std::vector<WorkerId> idle;
    for (int32_t device = 0; device < pricer.problem().device_count(); ++device) {
      const WorkerId worker = pricer.problem().worker(device);
      if (!used.contains(worker)) idle.push_back(worker);
    }
    idle_ = one_of_each(idle);
  }

  void run() {
    for (size_t to = 0; going_ && to < layout_.size(); ++to) {
      for (const WorkerId worker : idle_) give(kNobody, to, worker);
      for (size_t from = 0; going_ && from < layout_.size(); ++from) {
        if (from == to || !near(from, to)) continue;
        for (const WorkerId worker : one_of_each(layout_[from].holders)) give(from, to, worker);
      }
    }
    for (size_t one = 0; going_ && one < layout_.size(); ++one) {
      for (size_t other = one + 1; going_ && other < layout_.size(); ++other) {
        if (near(one, other)) swap(one, other);
      }
      swap_with_idle(one);
    }
    for (size_t n = 0; going_ && n < layout_.size(); ++n) {
      if (n + 1 < layout_.size()) merge(n);
      divide(n);
      for (const WorkerId worker : one_of_each(layout_[n].holders)) give(n, kNobody, worker);
    }
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  bool near(size_t one, size_t other) const {
    return layout_.size() <= kAllPairs || one + 1 == other || other + 1 == one;
  }

  int32_t kind_of(WorkerId worker) const { return kinds_.kind(pricer_.problem().device(worker)); }

  // The first of these workers of each kind of device.
  std::vector<WorkerId> one_of_each(const std::vector<WorkerId>& workers) const {
    std::set<int32_t> kinds;
    std::vector<WorkerId> some;
    for (const WorkerId worker : workers) {
      if (kinds.insert(kind_of(worker)).second) some.push_back(worker);
    }
    return some;
  }

  static void remove(std::vector<WorkerId>& holders, WorkerId worker) {
    holders.erase(std::find(holders.begin(), holders.end(), worker));
  }
  static void add(std::vector<WorkerId>& holders, WorkerId worker) {
    holders.insert(std::lower_bound(holders.begin(), holders.end(), worker), worker);
  }

  void take(Layout layout) {
    const auto most = static_cast<size_t>(pricer_.problem().settings().micros);
    for (const Stage& stage : layout) {
      if (stage.holders.empty() || stage.holders.size() > most) return;
    }
    if (going_) going_ = take_(with_lower_cuts(pricer_, std::move(layout)));
  }

  void give(size_t from, size_t to, WorkerId worker) {
    Layout changed = layout_;
    if (from != kNobody) remove(changed[from].holders, worker);
    if (to != kNobody) add(changed[to].holders, worker);
    take(std::move(changed));
  }

  void swap(size_t one, size_t other) {
    for (const WorkerId here : one_of_each(layout_[one].holders)) {
      for (const WorkerId there : one_of_each(layout_[other].holders)) {
        if (kind_of(here) == kind_of(there)) continue;
        Layout changed = layout_;
        remove(changed[one].holders, here);
        remove(changed[other].holders, there);
        add(changed[one].holders, there);
        add(changed[other].holders, here);
        take(std::move(changed));
      }
    }
  }

  void swap_with_idle(size_t stage) {
    for (const WorkerId here : one_of_each(layout_[stage].holders)) {
      for (const WorkerId there : idle_) {
        if (kind_of(here) == kind_of(there)) continue;
        Layout changed = layout_;
        remove(changed[stage].holders, here);
        add(changed[stage].holders, there);
        take(std::move(changed));
      }
    }
  }

  void merge(size_t first) {
    Layout changed = layout_;
    const Stage& second = changed[first + 1];
    changed[first].layer_end = second.layer_end;
    for (const WorkerId worker : second.holders) add(changed[first].holders, worker);
    changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(first) + 1);
    take(std::move(changed));
  }

  // Divides the layers and the workers of a stage in halves, and tries both ways to assign them. If
  // the stage has one worker, an idle worker joins it.
  void divide(size_t stage) {
    const Stage& whole = layout_[stage];
    if (whole.layer_end - whole.layer_first < 2) return;
    std::vector<WorkerId> workers = whole.holders;
    if (workers.size() < 2) {
      if (idle_.empty()) return;
      workers.push_back(idle_.front());
    }
    for (const bool turned : {false, true}) {
      Layout changed = layout_;
      const auto half = workers.begin() + static_cast<std::ptrdiff_t>(workers.size() / 2);
      std::vector<WorkerId> one(workers.begin(), half), other(half, workers.end());
      std::sort(other.begin(), other.end());
      if (turned) std::swap(one, other);
      const int32_t middle = (whole.layer_first + whole.layer_end) / 2;
      changed[stage] = {whole.layer_first, middle, std::move(one)};
      changed.insert(changed.begin() + static_cast<std::ptrdiff_t>(stage) + 1,
                     Stage{middle, whole.layer_end, std::move(other)});
      take(std::move(changed));
    }
  }

  const InTurnPricer& pricer_;
  const DeviceKinds& kinds_;
  const Layout& layout_;
  const TakeLayout& take_;
  std::vector<WorkerId> idle_;  // one of each kind of device
  bool going_ = true;
};

}  // namespace

Layout with_lower_cuts(const InTurnPricer& pricer, Layout layout) {
  Duration least = pricer.least_step(layout);
  bool lower = true;
  for (int32_t shifts = 0; lower && shifts < kMostShifts;) {
    lower = false;
    for (size_t n = 0; n + 1 < layout.size(); ++n) {
      for (const int32_t by : {-1, 1}) {
        const int32_t before = layout[n].layer_end, cut = before + by;
        if (cut <= layout[n].layer_first || cut >= layout[n + 1].layer_end) continue;
        layout[n].layer_end = layout[n + 1].layer_first = cut;
        const Duration now = pricer.least_step(layout);
        if (now < least) {
          least = now;
          lower = true;
          ++shifts;
        } else {
          layout[n].layer_end = layout[n + 1].layer_first = before;
        }
      }
    }
  }
  return layout;
}

void each_change(const InTurnPricer& pricer, const DeviceKinds& kinds, const Layout& layout,
                 const TakeLayout& take) {
  Changes(pricer, kinds, layout, take).run();
}

}  // namespace tenuto
