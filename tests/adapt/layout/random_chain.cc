#include "adapt/layout/random_chain.h"

#include <cmath>

#include "base/random.h"

namespace tenuto {

namespace {

// The units of the drawn numbers. They are so large that rounding to whole nanoseconds and bytes
// changes no time by more than a millionth of it.
constexpr double kTimeUnit = 1e6;                            // nanoseconds: a millisecond
constexpr double kSizeUnit = 1e9;                            // bytes
constexpr double kRateUnit = kSizeUnit / (kTimeUnit / 1e9);  // bytes per second

double between(Random& random, double low, double high) {
  return low + (high - low) * random.uniform();
}

int32_t whole_between(Random& random, int32_t low, int32_t high) {
  return low + static_cast<int32_t>(random.below(high - low + 1));
}

// Up to `most`, and three times that in one case out of four.
Bytes size_between(Random& random, double low, double high) {
  const double size = between(random, low, high) * (random.below(4) == 0 ? 3 : 1);
  return {std::llround(size * kSizeUnit)};
}

Layer random_layer(Random& random) {
  Layer layer;
  const double forward = between(random, 1, 10);
  layer.forward = Duration(std::llround(forward * kTimeUnit));
  layer.backward_input = Duration(std::llround(forward * between(random, 0.7, 2.5) * kTimeUnit));
  layer.activation = size_between(random, 0.05, 8);
  layer.parameters = size_between(random, 0, 30);
  return layer;
}

// Every device is a class of its own, so that each pair has its own rate.
Cluster random_cluster(Random& random, int32_t device_count) {
  Cluster cluster;
  const auto count = static_cast<size_t>(device_count);
  cluster.workers.resize(count);
  cluster.between.assign(count, std::vector<Link>(count));
  for (size_t one = 0; one < count; ++one) {
    cluster.place.push_back(static_cast<int32_t>(one));
    for (size_t other = 0; other < one; ++other) {
      const double rate = std::exp(between(random, std::log(0.4), std::log(8)));
      cluster.between[one][other].bytes_per_second = rate * kRateUnit;
      cluster.between[other][one] = cluster.between[one][other];
    }
  }
  return cluster;
}

}  // namespace

PlannedChain random_chain(uint64_t seed, bool half_duplex) {
  Random random(mix(18, seed, half_duplex ? 1 : 0));
  PlannedChain chain;
  const int32_t layer_count = whole_between(random, 3, half_duplex ? 5 : 6),
                device_count = whole_between(random, 2, half_duplex ? 3 : 4);
  chain.settings.micros = whole_between(random, 2, half_duplex ? 3 : 4);
  for (int32_t l = 0; l < layer_count; ++l) chain.model.layers.push_back(random_layer(random));
  chain.cluster = random_cluster(random, device_count);
  chain.cluster.half_duplex = half_duplex;
  return chain;
}

PlannedChain with_constants(PlannedChain chain, uint64_t seed) {
  Random random(mix(19, seed));
  const auto drawn = [&](double most) {
    return Duration(std::llround(between(random, 0, most) * kTimeUnit));
  };
  const int64_t kind = random.below(3);
  if (kind != 0) chain.model.op = drawn(5);
  if (kind == 1) return chain;
  chain.model.step = drawn(5);
  for (Layer& layer : chain.model.layers) layer.update = drawn(10);
  return chain;
}

}  // namespace tenuto
