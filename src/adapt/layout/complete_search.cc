#include "adapt/layout/complete_search.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tenuto {

namespace {

constexpr double kBelow = 1 - 1e-12;  // a better draft is shorter by more than rounding
constexpr double kNodeBlocks = 4;     // a partly made draft costs about as much as so many blocks

size_t at(int32_t index) { return static_cast<size_t>(index); }

double choose(int32_t all, int32_t some) {
  double ways = 1;
  for (int32_t i = 0; i < some; ++i) ways = ways * (all - i) / (i + 1);
  return ways;
}

// Makes drafts stage by stage from the input side.
class AllDrafts {
 public:
  AllDrafts(const DraftTable& table, DraftPricer& pricer)
      : table_(table), problem_(table.problem()), pricer_(pricer) {
    const DeviceKinds& kinds = table.kinds();
    for (int32_t kind = 0; kind < kinds.count(); ++kind) {
      left_.push_back(static_cast<int32_t>(kinds.devices(kind).size()));
      for (int32_t other = 0; other < kinds.count(); ++other) {
        if (other == kind && kinds.devices(kind).size() < 2) continue;
        fastest_ = std::max(fastest_, kinds.rate(kind, other));
      }
    }
  }

  void run() {
    next_stage(0);
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& one, const Found& other) { return one.least < other.least; });
    for (const Found& found : found_) {
      if (found.least >= limit()) break;
      pricer_.price(table_.draft(layout_of(found.stages)), limit(), "all layouts");
    }
  }

 private:
  struct Made {
    Layers layers;
    std::vector<KindCount> devices;
  };
  struct Found {
    double least = 0;
    std::vector<Made> stages;
  };

  double limit() const { return pricer_.best().makespan * kBelow; }

  // All ways to make the stage that begins at `layer`.
  void next_stage(int32_t layer) {
    made_.push_back({{layer, layer}, {}});
    choose_devices(0);
    made_.pop_back();
  }

  // Chooses devices of this and all later kinds for the last stage.
  void choose_devices(int32_t kind) {
    if (kind == table_.kinds().count()) {
      if (!made_.back().devices.empty()) choose_layers();
      return;
    }
    const int32_t most = left_[at(kind)];
    choose_devices(kind + 1);
    for (int32_t count = 1; count <= most; ++count) {
      made_.back().devices.push_back({kind, count});
      left_[at(kind)] -= count;
      choose_devices(kind + 1);
      left_[at(kind)] += count;
      made_.back().devices.pop_back();
    }
  }

  void choose_layers() {
    const double speeds = speeds_left();
    const int32_t layers = problem_.layer_count();
    for (int32_t end = made_.back().layers.first + 1; end <= layers; ++end) {
      if (end < layers && speeds == 0) continue;
      made_.back().layers.end = end;
      const LayoutLoads loads = loads_of_made(end, speeds);
      pricer_.charge(kNodeBlocks);
      const double least = least_makespan(loads);
      if (least >= limit()) {
        // A longer stage has more work, but the stages behind it less. So only a stage that is
        // itself beyond the limit ends the loop.
        const StageLoad& own = loads.stages[made_.size() - 1];
        if (loads.micros * own.both() + own.reduction >= limit()) break;
        continue;
      }
      if (end == layers) {
        found_.push_back({least, made_});
      } else {
        next_stage(end);
      }
    }
    made_.back().layers.end = made_.back().layers.first;
  }

  double speeds_left() const {
    double speeds = 0;
    for (size_t kind = 0; kind < left_.size(); ++kind) {
      speeds += table_.kinds().speed(static_cast<int32_t>(kind)) * left_[kind];
    }
    return speeds;
  }

  // The loads of the stages made so far, and of a single stage behind them that has all layers from
  // `end` on and is faster than every choice of stages: it has all devices that are left, no
  // reduction, and the fastest rates. In a pipeline of several stages no stage has more than the
  // work that its devices do, so a bound for this stage is one for them.
  LayoutLoads loads_of_made(int32_t end, double speeds) {
    const size_t known = made_.size();
    layout_.resize(known);
    fill(layout_, made_);
    LayoutLoads loads = row_split_loads(problem_, layout_);
    const Layers rest{end, problem_.layer_count()};
    if (rest.first == rest.end) return loads;
    double devices = 0;
    for (const int32_t left : left_) devices += left;
    const double pairs = devices * static_cast<double>(layout_.back().holders.size());
    const double time = problem_.cut(end) / (pairs * fastest_);
    loads.links.push_back({time, time});
    loads.stages.push_back({problem_.forward(rest) / speeds, problem_.backward(rest) / speeds, 0});
    return loads;
  }

  // Writes stages as a layout. A partly made draft uses the lowest devices of its kinds, too.
  void fill(Layout& layout, const std::vector<Made>& stages) const {
    std::vector<size_t> used(left_.size(), 0);
    for (size_t n = 0; n < stages.size(); ++n) {
      Stage& stage = layout[n];
      stage.layer_first = stages[n].layers.first;
      stage.layer_end = stages[n].layers.end;
      stage.holders.clear();
      for (const KindCount& some : stages[n].devices) {
        const std::vector<int32_t>& all = table_.kinds().devices(some.kind);
        for (int32_t i = 0; i < some.count; ++i) {
          stage.holders.push_back(problem_.worker(all[used[at(some.kind)]++]));
        }
      }
    }
  }
  Layout layout_of(const std::vector<Made>& stages) const {
    Layout layout(stages.size());
    fill(layout, stages);
    return layout;
  }

  const DraftTable& table_;
  const LayoutProblem& problem_;
  DraftPricer& pricer_;
  double fastest_ = 0;
  std::vector<int32_t> left_;  // devices of each kind
  std::vector<Made> made_;
  Layout layout_;
  std::vector<Found> found_;
};

}  // namespace

double draft_count(const DraftTable& table, double most) {
  const DeviceKinds& kinds = table.kinds();
  const int32_t layers = table.problem().layer_count();
  const int32_t deepest = std::min(layers, table.problem().device_count());
  double count = 0;
  for (int32_t stages = 1; stages <= deepest && count <= most; ++stages) {
    double sets = 0;  // ways to give all stages devices
    for (int32_t empty = 0; empty <= stages; ++empty) {
      double ways = choose(stages, empty);
      for (int32_t kind = 0; kind < kinds.count(); ++kind) {
        const auto size = static_cast<int32_t>(kinds.devices(kind).size());
        ways *= choose(size + stages - empty, size);
      }
      sets += empty % 2 == 0 ? ways : -ways;
    }
    count += choose(layers - 1, stages - 1) * sets;
  }
  return count;
}

void search_all_drafts(const DraftTable& table, DraftPricer& pricer) {
  AllDrafts(table, pricer).run();
}

}  // namespace tenuto
