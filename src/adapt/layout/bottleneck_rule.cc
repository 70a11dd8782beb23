#include "adapt/layout/bottleneck_rule.h"

namespace tenuto {

namespace {

size_t at(int32_t index) { return static_cast<size_t>(index); }

// best[i] = min(best[i], max(values[i], bytes[i] x time)).
void join_values(const double* __restrict values, const double* __restrict bytes, double time,
                 size_t count, double* __restrict best) {
  for (size_t i = 0; i < count; ++i) {
    const double transfer = bytes[i] * time;
    const double value = values[i] < transfer ? transfer : values[i];
    best[i] = value < best[i] ? value : best[i];
  }
}

}  // namespace

BottleneckRule::BottleneckRule(const StageWalk& walk, const LoadWeights& weights, double most)
    : walk_(&walk),
      weights_(weights),
      most_(most * (1 + kRounding)),
      least_layers_(walk.least_layers(most_)),
      loads_(walk.work().size()),
      window_(walk.layer_count()) {}

void BottleneckRule::begin(const StageTerms& terms, int32_t in_flight) {
  terms_ = terms;
  in_flight_ = in_flight;
  fixed_ = walk_->fixed_load(terms, weights_);
  walk_->loads_of_layers(terms, weights_, loads_);
}

void BottleneckRule::join(Layers row, const double* values, double transfer, double* best) const {
  join_values(values, walk_->cut().data() + row.first, weights_.transfer * transfer,
              at(row.end - row.first), best + row.first);
}

int32_t BottleneckRule::extend(Layers joined, int32_t first, const double* best, double* values) {
  window_.clear();
  int32_t next = joined.first, low = joined.first;
  const int32_t layers = walk_->layer_count();
  for (int32_t end = first; end <= layers; ++end) {
    const int32_t most = std::min(end, joined.end);
    for (; next < most; ++next) window_.push(next, best[next]);
    while (low < most && load({low, end}) >= window_.least()) window_.drop_before(++low);
    values[end] = window_.least();
    if (low > joined.first) values[end] = std::min(values[end], load({low - 1, end}));
    if (values[end] <= most_ && values[end] < kUnreachable) continue;
    values[end] = kUnreachable;
    if (end < joined.end) continue;
    const double shortest = load({joined.end - 1, end});
    if (shortest > most_ || shortest == kUnreachable) return end;
  }
  return layers + 1;
}

}  // namespace tenuto
