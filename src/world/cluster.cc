#include "world/cluster.h"

#include "base/check.h"
#include "base/longest_time.h"

namespace tenuto {

Link Cluster::link(WorkerId from, WorkerId to) const {
  if (!exceptions.empty()) {
    const auto found = exceptions.find({from, to});
    if (found != exceptions.end()) return found->second;
  }
  if (between.empty()) return {};
  const auto class_of = [&](WorkerId worker) {
    if (place.empty()) return size_t{0};
    CHECK(worker.value >= 0 && static_cast<size_t>(worker.value) < place.size(),
          "a worker without a place");
    return static_cast<size_t>(place[static_cast<size_t>(worker.value)]);
  };
  const size_t row = class_of(from), column = class_of(to);
  CHECK(row < between.size() && column < between[row].size(), "a place without a link");
  return between[row][column];
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
