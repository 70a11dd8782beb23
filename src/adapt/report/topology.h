// The places of a cluster's devices (nodes, racks), and the rates within and between them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "adapt/layout/problem.h"
#include "world/cluster.h"

namespace tenuto {

// The slowest and the fastest of some rates, in bytes per nanosecond, which are GB/s.
struct RateRange {
  double slowest = std::numeric_limits<double>::infinity(), fastest = 0;
  // Includes a rate; infinite = not limited.
  void add(double rate);
  void add(const RateRange& rates);
  // True if no rate was added.
  bool empty() const { return slowest > fastest; }
};

// "6.25 GB/s", "3 to 12.5 GB/s", "unlimited rate", "no link".
std::string rate_text(const RateRange& rates);

// Which devices are near each other. The places are the classes of the cluster (its nodes, or the
// `place` of its file). If each device is a class of its own, or the cluster has links with rates
// of their own, the places are found from the rates (world/places.h). Devices are those of the
// problem; rates are those of the slower direction.
class Topology {
 public:
  // Requires: the problem was made from this cluster; it must outlive this
  Topology(const LayoutProblem& problem, const Cluster& cluster);

  // How many places there are, at least one.
  size_t place_count() const { return places_.size(); }
  // The devices of a place, ascending.
  const std::vector<int32_t>& devices(size_t place) const { return places_[place].devices; }
  // The place of a device.
  size_t place_of(int32_t device) const { return place_of_[static_cast<size_t>(device)]; }
  // The rates between the devices of one place, between two different places, and between all pairs
  // of places.
  RateRange inside(size_t place) const;
  RateRange between(size_t one, size_t other) const;
  RateRange between_all() const;

 private:
  // Devices that have the same rates to all others.
  using Unit = std::vector<int32_t>;
  struct Place {
    std::vector<size_t> units;
    std::vector<int32_t> devices;
  };
  void make_units(const Cluster& cluster);
  void join_nodes(const Cluster& cluster, std::vector<int32_t>& key) const;
  void make_places();

  const LayoutProblem* problem_;
  std::vector<Unit> units_;
  std::vector<Place> places_;
  std::vector<size_t> place_of_;  // of each device
};

}  // namespace tenuto
