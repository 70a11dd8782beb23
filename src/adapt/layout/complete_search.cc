#include "adapt/layout/complete_search.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace tenuto {

namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr double kBelow = 1 - 1e-12;  // a better draft is shorter by more than rounding
constexpr double kNodeBlocks = 40;    // a partly made draft costs about as much as so many blocks

size_t at(int32_t index) { return static_cast<size_t>(index); }

double choose(int32_t all, int32_t some) {
  double ways = 1;
  for (int32_t i = 0; i < some; ++i) ways = ways * (all - i) / (i + 1);
  return ways;
}

// Makes drafts stage by stage from the input side.
class AllDrafts {
 public:
  AllDrafts(const DraftTable& table, DraftPricer& pricer, int64_t most)
      : table_(table),
        kinds_(table.kinds()),
        problem_(table.problem()),
        pricer_(pricer),
        left_to_make_(most) {
    loads_.micros = problem_.settings().micros;
    loads_.half_duplex = problem_.half_duplex();
    for (int32_t kind = 0; kind < kinds_.count(); ++kind) {
      left_.push_back(static_cast<int32_t>(kinds_.devices(kind).size()));
      for (int32_t other = 0; other < kinds_.count(); ++other) {
        if (other == kind && kinds_.devices(kind).size() < 2) continue;
        fastest_ = std::max(fastest_, kinds_.rate(kind, other));
      }
      alike_.push_back(-1);
      for (int32_t other = 0; other < kind; ++other) {
        if (exchangeable(kind, other)) alike_.back() = other;
      }
    }
  }

  bool run() {
    next_stage(0);
    if (left_to_make_ <= 0) return false;
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& one, const Found& other) { return one.least < other.least; });
    for (const Found& found : found_) {
      if (found.least >= limit()) break;
      pricer_.price(table_.draft(layout_of(found.stages)), limit(), "all layouts");
      if (pricer_.is_over()) return false;
    }
    return true;
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

  // True when all devices of one kind can be exchanged for all of the other, as those of two equal
  // nodes can.
  bool exchangeable(int32_t one, int32_t other) const {
    if (kinds_.devices(one).size() != kinds_.devices(other).size()) return false;
    if (kinds_.speed(one) != kinds_.speed(other)) return false;
    if (kinds_.memory(one) != kinds_.memory(other)) return false;
    if (kinds_.rate(one, one) != kinds_.rate(other, other)) return false;
    for (int32_t third = 0; third < kinds_.count(); ++third) {
      if (third == one || third == other) continue;
      if (kinds_.rate(one, third) != kinds_.rate(other, third)) return false;
    }
    return true;
  }

  // How many devices of a kind stage n has.
  int32_t count_of(size_t n, int32_t kind) const {
    for (const KindCount& some : made_[n].devices) {
      if (some.kind == kind) return some.count;
    }
    return 0;
  }

  // How many devices of a kind the last stage may have. Of two exchangeable kinds that all stages
  // before have equally many of, it has no more of the second one: the other way round, layouts
  // would be the same.
  int32_t most_of(int32_t kind) const {
    const int32_t other = alike_[at(kind)];
    if (other < 0) return left_[at(kind)];
    for (size_t n = 0; n + 1 < made_.size(); ++n) {
      if (count_of(n, kind) != count_of(n, other)) return left_[at(kind)];
    }
    return std::min(left_[at(kind)], count_of(made_.size() - 1, other));
  }

  // All ways to make the stage that begins at `layer`.
  void next_stage(int32_t layer) {
    made_.push_back({{layer, layer}, {}});
    choose_devices(0);
    made_.pop_back();
  }

  // Chooses devices of this and all later kinds for the last stage.
  void choose_devices(int32_t kind) {
    if (kind == kinds_.count()) {
      if (!made_.back().devices.empty()) choose_layers();
      return;
    }
    const int32_t most = most_of(kind);
    choose_devices(kind + 1);
    for (int32_t count = 1; count <= most && left_to_make_ > 0; ++count) {
      made_.back().devices.push_back({kind, count});
      left_[at(kind)] -= count;
      choose_devices(kind + 1);
      left_[at(kind)] += count;
      made_.back().devices.pop_back();
    }
  }

  // Chooses the last layer of the last stage.
  void choose_layers() {
    const size_t number = made_.size();
    terms_.push_back(terms_of(made_.back()));
    const Rest rest = rest_of();
    const int32_t layers = problem_.layer_count();
    for (int32_t end = made_.back().layers.first + 1; end <= layers; ++end) {
      if (end < layers && rest.speeds == 0) continue;
      if (--left_to_make_ <= 0) break;
      pricer_.charge(kNodeBlocks);
      made_.back().layers.end = end;
      set_loads(rest);
      const double least = least_makespan(loads_);
      if (least >= limit()) {
        // A longer stage has more work, but the stages behind it less. So only a stage that is
        // itself beyond the limit ends the loop.
        const StageLoad& load = loads_.stages[number - 1];
        if (loads_.micros * load.both() + load.reduction >= limit()) break;
        continue;
      }
      if (end == layers) {
        found_.push_back({least, made_});
      } else {
        next_stage(end);
      }
    }
    terms_.pop_back();
    made_.back().layers.end = made_.back().layers.first;
  }

  // What follows from the devices of a stage.
  struct Terms {
    ReplicaTerms stage{0, kUnlimited, kUnlimited};
    double between = kUnlimited;  // the slowest rate to the stage before
  };
  Terms terms_of(const Made& stage) const {
    Terms terms;
    for (const KindCount& some : stage.devices) {
      terms.stage.replicas += some.count;
      terms.stage.speed = std::min(terms.stage.speed, kinds_.speed(some.kind));
      for (const KindCount& other : stage.devices) {
        if (other.kind == some.kind && some.count < 2) continue;
        terms.stage.inside = std::min(terms.stage.inside, kinds_.rate(some.kind, other.kind));
      }
      if (made_.size() < 2) continue;
      for (const KindCount& other : made_[made_.size() - 2].devices) {
        terms.between = std::min(terms.between, kinds_.rate(some.kind, other.kind));
      }
    }
    return terms;
  }

  // The devices that are left.
  struct Rest {
    double devices = 0, speeds = 0, fastest = 0;
  };
  Rest rest_of() const {
    Rest rest;
    for (size_t kind = 0; kind < left_.size(); ++kind) {
      rest.devices += left_[kind];
      const double speed = kinds_.speed(static_cast<int32_t>(kind));
      rest.speeds += speed * left_[kind];
      if (left_[kind] > 0) rest.fastest = std::max(rest.fastest, speed);
    }
    return rest;
  }

  // The loads of the stages made so far, and of a single stage behind them that has all other
  // layers and is faster than every choice of stages: it has all devices that are left, the fastest
  // rates, and neither a reduction nor updates of layers. In a pipeline of several stages some
  // stage has at least as much work for its devices as this one, so a bound with this stage is a
  // bound for all of them.
  void set_loads(const Rest& rest) {
    const size_t known = made_.size();
    loads_.stages.resize(known);
    loads_.links.resize(known - 1);
    for (size_t n = 0; n < known; ++n) {
      const Layers layers = made_[n].layers;
      const Terms& terms = terms_[n];
      loads_.stages[n] = split_load(problem_, layers, terms.stage);
      if (n == 0) continue;
      const double time = problem_.cut(layers.first) /
                          (terms_[n - 1].stage.replicas * terms.stage.replicas * terms.between);
      loads_.links[n - 1] = {time, time};
    }
    const Layers others{made_.back().layers.end, problem_.layer_count()};
    if (others.first == others.end) return;
    const double time =
        problem_.cut(others.first) / (rest.devices * terms_.back().stage.replicas * fastest_);
    loads_.links.push_back({time, time});
    const double pass = problem_.pass() / rest.fastest;  // the rest has at least one stage
    loads_.stages.push_back({problem_.forward(others) / rest.speeds + pass,
                             problem_.backward(others) / rest.speeds + pass,
                             problem_.update({others.end, others.end}) / rest.fastest});
  }

  // The layout with the lowest devices of each kind.
  Layout layout_of(const std::vector<Made>& stages) const {
    std::vector<size_t> used(left_.size(), 0);
    Layout layout;
    for (const Made& made : stages) {
      Stage& stage = layout.emplace_back();
      stage.layer_first = made.layers.first;
      stage.layer_end = made.layers.end;
      for (const KindCount& some : made.devices) {
        const std::vector<int32_t>& all = kinds_.devices(some.kind);
        for (int32_t i = 0; i < some.count; ++i) {
          stage.holders.push_back(problem_.worker(all[used[at(some.kind)]++]));
        }
      }
    }
    return layout;
  }

  const DraftTable& table_;
  const DeviceKinds& kinds_;
  const LayoutProblem& problem_;
  DraftPricer& pricer_;
  int64_t left_to_make_ = 0;
  double fastest_ = 0;          // rate between two devices
  std::vector<int32_t> alike_;  // of each kind: the last exchangeable kind before it; -1 = none
  std::vector<int32_t> left_;   // devices of each kind
  std::vector<Made> made_;
  std::vector<Terms> terms_;  // of made_
  LayoutLoads loads_;
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

bool search_all_drafts(const DraftTable& table, DraftPricer& pricer, int64_t most) {
  return AllDrafts(table, pricer, most).run();
}

}  // namespace tenuto
