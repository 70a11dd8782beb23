// The measured rates and latencies of the links between all pairs of workers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/id.h"
#include "base/unit.h"
#include "world/cluster.h"

namespace tenuto {

// One direction of one link.
struct LinkFigure {
  Link link;
  double spread = 0;  // of the times of large messages: (upper - lower quartile) / median
};

// The links from each worker to each other one.
class LinkTable {
 public:
  explicit LinkTable(int32_t workers)
      : workers_(workers), figures_(static_cast<size_t>(workers) * static_cast<size_t>(workers)) {}
  // How many workers there are.
  int32_t workers() const { return workers_; }
  // The link that carries what `from` sends to `to`.
  LinkFigure& at(WorkerId from, WorkerId to) { return figures_[index(from, to)]; }
  const LinkFigure& at(WorkerId from, WorkerId to) const { return figures_[index(from, to)]; }

 private:
  size_t index(WorkerId from, WorkerId to) const {
    CHECK(from.value >= 0 && from.value < workers_ && to.value >= 0 && to.value < workers_,
          "a worker of the table");
    return static_cast<size_t>(from.value) * static_cast<size_t>(workers_) +
           static_cast<size_t>(to.value);
  }

  int32_t workers_;
  std::vector<LinkFigure> figures_;
};

}  // namespace tenuto
