// The time and the memory of a search by the numbers of layers and devices.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/text.h"
#include "bench/planner_tables.h"

namespace tenuto {

namespace {

constexpr size_t kRounds = 3;
constexpr int32_t kMicros = 64;
constexpr int32_t kLayers[] = {50, 200, 1000};

// Devices in nodes.
struct Fleet {
  int32_t devices = 0;
  int32_t node_least = 0, node_most = 0;  // devices of a node
  std::string name() const {
    return cat(devices, " in nodes of ", node_least,
               node_most > node_least ? cat(" to ", node_most) : "");
  }
};

// Of the last two, one has no whole nodes that a search could move as one, the other has them.
constexpr Fleet kFleets[] = {{8, 4, 4}, {16, 4, 4}, {64, 8, 8}, {1024, 5, 11}, {4096, 8, 8}};
// The fleets whose times are fitted: all devices are single for the search.
constexpr size_t kFitted = 3;

double between(Random& random, double low, double high) {
  return low + (high - low) * random.uniform();
}

Model random_model(Random& random, int32_t layer_count) {
  Model model;
  for (int32_t l = 0; l < layer_count; ++l) {
    Layer layer;
    const double forward_ms = between(random, 1, 10);
    layer.forward = from_milliseconds(forward_ms);
    layer.backward_input = from_milliseconds(forward_ms * between(random, 1, 2.5));
    layer.activation = layer.stash = Bytes{1'000'000 + random.below(63'000'000)};
    layer.parameters = Bytes{random.below(100'000'000)};
    model.layers.push_back(layer);
  }
  return model;
}

// Fast links inside a node, links of an eighth of that between nodes.
Cluster cluster_of(Random& random, const Fleet& fleet) {
  constexpr double kInside = 25e9, kBetween = kInside / 8;
  Cluster cluster;
  cluster.workers.resize(static_cast<size_t>(fleet.devices));
  int32_t nodes = 0;
  while (cluster.place.size() < cluster.workers.size()) {
    const int64_t size = fleet.node_least + random.below(fleet.node_most - fleet.node_least + 1);
    for (int64_t i = 0; i < size && cluster.place.size() < cluster.workers.size(); ++i) {
      cluster.place.push_back(nodes);
    }
    ++nodes;
  }
  const auto count = static_cast<size_t>(nodes);
  cluster.between.assign(count, std::vector<Link>(count, {{}, kBetween}));
  for (size_t node = 0; node < count; ++node) {
    cluster.between[node][node].bytes_per_second = kInside;
  }
  return cluster;
}

// What a child process measures of one problem.
struct Measured {
  std::array<double, kRounds> seconds{};
  double above_bound = 0;  // step / lower bound
  int64_t priced = 0;
  int32_t stages = 0;
};

Measured measure(const Fleet& fleet, int32_t layer_count) {
  Random random(mix(19, static_cast<uint64_t>(fleet.devices), static_cast<uint64_t>(layer_count)));
  const Model model = random_model(random, layer_count);
  const Cluster cluster = cluster_of(random, fleet);
  LayoutSettings settings;
  settings.micros = kMicros;
  Measured measured;
  for (double& seconds : measured.seconds) {
    const Duration start = monotonic_clock().now();
    const LayoutSearch found = search(LayoutProblem(model, cluster, settings));
    seconds = to_milliseconds(monotonic_clock().now() - start) / 1e3;
    measured.above_bound = found.best.schedule.makespan / found.lower_bound;
    measured.priced = found.priced;
    measured.stages = static_cast<int32_t>(found.best.layout.size());
  }
  std::sort(measured.seconds.begin(), measured.seconds.end());
  return measured;
}

// The search of one problem in a process of its own, so that its peak of memory is its own.
struct Case {
  Measured measured;
  double peak_mib = 0;
};

std::optional<Case> measure_apart(const Fleet& fleet, int32_t layer_count) {
  int ends[2];
  CHECK(pipe(ends) == 0, "a pipe");
  std::fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0, "a process");
  if (child == 0) {
    const Measured measured = measure(fleet, layer_count);
    const bool written = write(ends[1], &measured, sizeof(measured)) == sizeof(measured);
    _exit(written ? EXIT_SUCCESS : EXIT_FAILURE);
  }
  close(ends[1]);
  Case result;
  const bool whole =
      read(ends[0], &result.measured, sizeof(result.measured)) == sizeof(result.measured);
  close(ends[0]);
  rusage usage{};
  int status = 0;
  CHECK(wait4(child, &status, 0, &usage) == child, "the child");
  if (!whole || status != 0) return std::nullopt;
  result.peak_mib = static_cast<double>(usage.ru_maxrss) / 1024;
  return result;
}

// The exponent of y against x: the slope of the least-squares line through their logarithms.
double exponent(const std::vector<std::pair<double, double>>& points) {
  const auto count = static_cast<double>(points.size());
  double x_sum = 0, y_sum = 0, xx_sum = 0, xy_sum = 0;
  for (const auto& [x, y] : points) {
    x_sum += std::log(x), y_sum += std::log(y);
    xx_sum += std::log(x) * std::log(x), xy_sum += std::log(x) * std::log(y);
  }
  return (count * xy_sum - x_sum * y_sum) / (count * xx_sum - x_sum * x_sum);
}

}  // namespace

void print_times() {
  std::printf(
      "time of a search with its lower bound, random chains, %d micro-batches; %zu searches each;\n"
      "a search may try a counted number of steps, so its time grows little with the problem\n"
      "%-24s %6s %9s %9s %9s %7s %7s %11s\n",
      kMicros, kRounds, "devices", "layers", "median s", "most s", "peak MiB", "stages", "priced",
      "step/bound");
  std::vector<std::pair<double, double>> by_devices[std::size(kLayers)];
  for (size_t f = 0; f < std::size(kFleets); ++f) {
    const Fleet& fleet = kFleets[f];
    std::vector<std::pair<double, double>> by_layers;
    for (size_t l = 0; l < std::size(kLayers); ++l) {
      const std::optional<Case> found = measure_apart(fleet, kLayers[l]);
      std::printf("%-24s %6d", fleet.name().c_str(), kLayers[l]);
      if (!found) {
        std::printf(" the search ended without a result\n");
        continue;
      }
      const Measured& measured = found->measured;
      const double median = measured.seconds[kRounds / 2];
      std::printf(" %9.3f %9.3f %9.0f %7d %7lld %11.3f\n", median, measured.seconds.back(),
                  found->peak_mib, measured.stages, static_cast<long long>(measured.priced),
                  measured.above_bound);
      by_layers.emplace_back(kLayers[l], median);
      if (f < kFitted) by_devices[l].emplace_back(fleet.devices, median);
    }
    if (by_layers.size() > 1) {
      std::printf("%-24s time grows as layers^%.2f\n", fleet.name().c_str(), exponent(by_layers));
    }
  }
  for (size_t l = 0; l < std::size(kLayers); ++l) {
    if (by_devices[l].size() < 2) continue;
    std::printf("%d layers: time grows as devices^%.2f, from %d to %d devices\n", kLayers[l],
                exponent(by_devices[l]), kFleets[0].devices, kFleets[kFitted - 1].devices);
  }
}

}  // namespace tenuto
