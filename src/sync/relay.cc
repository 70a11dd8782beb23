#include "sync/relay.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace tenuto {

namespace {

// The newest iteration's part of a mean, once there have been enough of them.
constexpr int64_t kRemembered = 8;

// The lower one of the middle two for an even count; 0 without numbers.
double median(std::vector<double> numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + (std::ssize(numbers) - 1) / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

}  // namespace

RelayWatch::RelayWatch(int32_t replicas) : means_(static_cast<size_t>(replicas)) {}

void RelayWatch::add(ReplicaId replica, const RelaySample& sample) {
  CHECK(replica.value >= 0 && replica.value < std::ssize(means_), "a replica of the run");
  Mean& mean = means_[static_cast<size_t>(replica.value)];
  ++mean.samples;
  const double part = 1.0 / static_cast<double>(std::min(mean.samples, kRemembered));
  const auto follow = [part](double& to, double now) { to += part * (now - to); };
  const Duration send = std::max(sample.time.transfer - sample.receive, Duration{});
  follow(mean.iteration, static_cast<double>((sample.time.compute + sample.time.transfer).count()));
  follow(mean.send, static_cast<double>(send.count()));
  follow(mean.receive, static_cast<double>(sample.receive.count()));
  follow(mean.pressure, sample.pressure);
}

std::vector<RelayLimit> RelayWatch::limits() const {
  std::vector<double> iterations, pressures;
  for (const Mean& mean : means_) {
    if (mean.samples == 0) continue;
    iterations.push_back(mean.iteration);
    pressures.push_back(mean.pressure);
  }
  const double iteration = median(std::move(iterations)), usual = median(std::move(pressures));
  std::vector<RelayLimit> limits;
  for (const Mean& mean : means_) {
    RelayLimit limit;
    limit.is_overloaded =
        mean.pressure >= kOverloadedPressure && mean.pressure >= kOverloadedFactor * usual;
    const double gradient = std::max(mean.send, mean.receive);
    if (gradient > 0) {
      // The replica's own gradient is one of them.
      const double most = std::floor(kMostPort * iteration / gradient) - 1;
      limit.most_children =
          static_cast<int64_t>(std::clamp(most, 0.0, static_cast<double>(kMostReplicas)));
    }
    limits.push_back(limit);
  }
  return limits;
}

std::string relay_fault(const SyncMode& mode, std::span<const RelayLimit> limits) {
  if (mode.kind != SyncKind::Ring || limits.empty()) return {};
  std::vector<int64_t> children(limits.size(), 0);
  for (size_t i = 0; i < std::min(mode.parents.size(), limits.size()); ++i) {
    const auto parent = static_cast<size_t>(mode.parents[i].value);
    if (parent != i && parent < children.size()) ++children[parent];
  }
  for (size_t i = 0; i < std::min(mode.parents.size(), limits.size()); ++i) {
    const bool is_member = mode.parents[i].value == static_cast<int32_t>(i);
    if (is_member && limits[i].is_overloaded) {
      return cat("replica ", i, " is in the ring, and its host is overloaded");
    }
    if (children[i] > limits[i].most_children) {
      return cat("replica ", i, " has ", children[i], " children, and its port takes ",
                 limits[i].most_children);
    }
  }
  return {};
}

}  // namespace tenuto
