// The ports of a cluster while messages pass them: which sides of which ports a message occupies,
// and from when on they are free.
//
// A port has one side for each direction: one for what its devices send and one for what they
// receive. With half duplex it has one side for both. A message begins when its link and all sides
// on its way are free, in the order in which messages ask. It travels at the slowest of their rates
// and occupies its link for as long as it travels, but each side only for its bytes at the side's
// own rate, so the messages of several slow links together can fill a fast port.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/unit.h"
#include "world/cluster.h"

namespace tenuto {

// The sides of all ports of a cluster.
class PortSides {
 public:
  // All sides are free.
  explicit PortSides(const Cluster& cluster);
  // True for a cluster without ports.
  bool empty() const { return sides_.empty(); }
  // The sides on the way of what `from` sends to `to`, ascending.
  //
  // Cost: linear in the ports that the two devices have
  std::vector<int32_t> between(WorkerId from, WorkerId to) const;
  // The slowest rate of these sides in bytes per second; 0 if there are none. Cost: as between()
  double rate(WorkerId from, WorkerId to) const;
  // The first moment from `ready` on when all of `sides` are free.
  Duration free_at(std::span<const int32_t> sides, Duration ready) const;
  // A message of `size` that begins at `begin` occupies the sides.
  void occupy(std::span<const int32_t> sides, Bytes size, Duration begin);
  // How long messages have occupied the busiest side, all together.
  Duration busiest() const;

 private:
  struct Side {
    double bytes_per_second = 0;
    Duration free_at{}, busy{};
  };
  // The sides by which a device sends and receives through one of its ports.
  struct Entry {
    int32_t port = 0, out = 0, in = 0;
    bool inside = false;
  };
  template <class Take>
  void visit(WorkerId from, WorkerId to, Take take) const;

  std::vector<Side> sides_;
  std::vector<std::vector<Entry>> entries_;  // of each device, by port
};

}  // namespace tenuto
