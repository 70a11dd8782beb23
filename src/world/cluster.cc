#include "world/cluster.h"

#include <algorithm>

#include "base/check.h"
#include "base/longest_time.h"

namespace tenuto {

namespace {

// The link without the ports on its way.
Link bare_link(const Cluster& cluster, WorkerId from, WorkerId to) {
  if (!cluster.exceptions.empty()) {
    const auto found = cluster.exceptions.find({from, to});
    if (found != cluster.exceptions.end()) return found->second;
  }
  if (cluster.between.empty()) return {};
  const auto class_of = [&](WorkerId worker) {
    if (cluster.place.empty()) return size_t{0};
    CHECK(worker.value >= 0 && static_cast<size_t>(worker.value) < cluster.place.size(),
          "a worker without a place");
    return static_cast<size_t>(cluster.place[static_cast<size_t>(worker.value)]);
  };
  const size_t row = class_of(from), column = class_of(to);
  CHECK(row < cluster.between.size() && column < cluster.between[row].size(),
        "a place without a link");
  return cluster.between[row][column];
}

}  // namespace

bool Port::has(WorkerId worker) const {
  if (devices.empty() || worker < devices.front() || devices.back() < worker) return false;
  return std::binary_search(devices.begin(), devices.end(), worker);
}

Link Cluster::link(WorkerId from, WorkerId to) const {
  Link link = bare_link(*this, from, to);
  for (const Port& port : ports) {
    const bool sends = port.has(from), receives = port.has(to);
    if (sends == receives && !(sends && port.inside)) continue;
    const double rate = port.bytes_per_second;
    if (link.bytes_per_second == 0 || rate < link.bytes_per_second) link.bytes_per_second = rate;
  }
  return link;
}

void keep_first(Cluster& cluster, int32_t count) {
  CHECK(static_cast<size_t>(count) <= cluster.workers.size(), "the cluster has too few workers");
  cluster.workers.resize(static_cast<size_t>(count));
  const auto is_gone = [count](WorkerId worker) { return worker.value >= count; };
  std::erase_if(cluster.exceptions, [&](const auto& link) {
    return is_gone(link.first.first) || is_gone(link.first.second);
  });
  for (Port& port : cluster.ports) std::erase_if(port.devices, is_gone);
  std::erase_if(cluster.ports, [](const Port& port) { return port.devices.empty(); });
}

Duration at_speed(Duration time, double speed) {
  if (speed == 1.0) return time;
  return from_nanoseconds(static_cast<double>(time.count()) / speed);
}

Cluster uniform_cluster(int32_t worker_count, Link link) {
  CHECK(worker_count >= 0, "a cluster cannot have fewer than no workers");
  Cluster cluster;
  cluster.workers.resize(static_cast<size_t>(worker_count));
  cluster.between = {{link}};
  return cluster;
}

}  // namespace tenuto
