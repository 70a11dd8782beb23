#include "adapt/layout/frugal.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/bisect.h"
#include "base/text.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

constexpr double kManyBytes = 1e18;  // more than the shortage of any stage
// The number of stages to try after `count`: of large numbers, only some are tried.
int32_t next_count(int32_t count) { return count + 1 + count / 16; }

}  // namespace

std::string shortage_text(const LayoutProblem& problem, const Layout& layout,
                          const MemoryShortage& shortage) {
  const Stage& stage = layout[at(shortage.stage)];
  const int32_t first = stage.layer_first, last = stage.layer_end - 1;
  return cat("stage ", shortage.stage, " of ", layout.size(), " (",
             first == last ? cat("layer ", first) : cat("layers ", first, " to ", last), " on ",
             stage.holders.size(), stage.holders.size() == 1 ? " device" : " devices", ") needs ",
             static_cast<int64_t>(std::ceil(shortage.missing)), " bytes more than device ",
             problem.worker(shortage.device), " has");
}

FrugalLayouts::FrugalLayouts(const LayoutProblem& problem) : problem_(problem) {
  devices_.resize(at(problem.device_count()));
  std::iota(devices_.begin(), devices_.end(), 0);
  std::stable_sort(devices_.begin(), devices_.end(), [&](int32_t one, int32_t other) {
    return problem.memory(one) > problem.memory(other);
  });
}

// Micro-batches in flight on a stage that has `behind` stages behind it.
int32_t FrugalLayouts::in_flight(int32_t behind, const MemoryCase& it) const {
  if (it.whole) return 1;
  return static_cast<int32_t>(std::min(problem_.settings().micros / it.rows, behind + 1.0));
}

// The memory of device number `place`, if the additional devices come first and then devices_.
double FrugalLayouts::memory(int32_t place, const MemoryCase& it) const {
  return problem_.memory(devices_[at(std::max(0, place - it.devices))]) + it.more;
}

// The memory that a stage needs on each device (see held_bytes). More layers at the end never need
// less.
double FrugalLayouts::need(Layers layers, int32_t in_flight, double replicas,
                           const MemoryCase& it) const {
  const double weights = problem_.parameters(layers);
  const double state = weights + (problem_.state(layers) - weights) * it.optimizer;
  const double stash = problem_.stash(layers) * it.rows;
  const double input = problem_.cut(layers.first) * it.rows;
  const double sharing = it.whole ? 1 : replicas;
  const double kept = held_bytes(state, stash, input, false).bytes(in_flight, sharing);
  if (!it.recompute) return kept;
  return std::min(kept, held_bytes(state, stash, input, true).bytes(in_flight, sharing));
}

// Gives each stage as many layers as fit. Returns where the layers of each stage end, or an empty
// list if this is not possible for all layers.
std::vector<int32_t> FrugalLayouts::ends(int32_t count, const MemoryCase& it) const {
  std::vector<int32_t> ends;
  const int32_t replicas = (problem_.device_count() + it.devices) / count;
  int32_t first = 0;
  for (int32_t n = 0; n < count; ++n) {
    const int32_t behind = count - n - 1;  // stages behind this one; each needs a layer
    const double limit = memory((n + 1) * replicas - 1, it);
    const auto fits = [&](int32_t end) {
      return need({first, end}, in_flight(behind, it), replicas, it) <= limit;
    };
    if (!fits(first + 1)) return {};
    first = last_of(first + 1, problem_.layer_count() - behind, fits);
    ends.push_back(first);
  }
  return first == problem_.layer_count() ? ends : std::vector<int32_t>();
}

// The ends for the least `it.more` with which all layers fit. Sets it.more to about this value.
std::vector<int32_t> FrugalLayouts::least_ends(int32_t count, MemoryCase& it) const {
  double low = -kManyBytes, high = kManyBytes;
  it.more = high;
  std::vector<int32_t> best = ends(count, it);
  for (int32_t probe = 0; probe < 64; ++probe) {
    it.more = (low + high) / 2;
    std::vector<int32_t> found = ends(count, it);
    (found.empty() ? low : high) = it.more;
    if (!found.empty()) best = std::move(found);
  }
  it.more = high;
  return best;
}

Layout FrugalLayouts::layout(const std::vector<int32_t>& ends) const {
  Layout layout;
  const auto count = static_cast<int32_t>(ends.size());
  const int32_t replicas = problem_.device_count() / count;
  for (int32_t n = 0; n < count; ++n) {
    Stage& stage = layout.emplace_back();
    stage.layer_first = n == 0 ? 0 : ends[at(n - 1)];
    stage.layer_end = ends[at(n)];
    for (int32_t i = n * replicas; i < (n + 1) * replicas; ++i) {
      stage.holders.push_back(problem_.worker(devices_[at(i)]));
    }
    std::sort(stage.holders.begin(), stage.holders.end());
  }
  return layout;
}

Layout FrugalLayouts::with_stages(int32_t count) const {
  MemoryCase it;
  return layout(least_ends(count, it));
}

bool FrugalLayouts::fits(const MemoryCase& it) const {
  const int32_t most = std::min(problem_.layer_count(), problem_.device_count() + it.devices);
  for (int32_t count = 1; count <= most; count = next_count(count)) {
    if (!ends(count, it).empty()) return true;
  }
  return false;
}

NearestLayout FrugalLayouts::nearest(MemoryCase it) const {
  it.devices = 0;
  std::optional<std::vector<int32_t>> best;
  double least = 0;
  const int32_t most = std::min(problem_.layer_count(), problem_.device_count());
  for (int32_t count = 1; count <= most; count = next_count(count)) {
    if (best) {
      // Skip numbers of stages that need more memory than the best number so far.
      it.more = least;
      if (ends(count, it).empty()) continue;
    }
    std::vector<int32_t> found = least_ends(count, it);
    if (best && it.more >= least) continue;
    least = it.more;
    best = std::move(found);
  }
  NearestLayout nearest{layout(*best), {-1, -1, -kManyBytes}};
  it.more = 0;
  const auto count = static_cast<int32_t>(nearest.layout.size());
  const int32_t replicas = problem_.device_count() / count;
  for (int32_t n = 0; n < count; ++n) {
    const Stage& stage = nearest.layout[at(n)];
    const int32_t place = (n + 1) * replicas - 1;
    const double missing =
        need({stage.layer_first, stage.layer_end}, in_flight(count - n - 1, it), replicas, it) -
        memory(place, it);
    if (missing > nearest.shortage.missing) nearest.shortage = {n, devices_[at(place)], missing};
  }
  return nearest;
}

}  // namespace tenuto
