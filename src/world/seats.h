// Which worker has which place in which pipeline.
#pragma once

#include <utility>
#include <vector>

#include "base/id.h"
#include "ir/plan.h"

namespace tenuto {

// The places of a run's workers. In a grid, all pipelines have the same number of places and worker
// w has place w mod places of pipeline w / places. Otherwise the places are listed: pipeline p of a
// place is the p-th worker of its list, and places may have unequal numbers of workers.
class Seats {
 public:
  // A grid; not explicit, so that a number of places can stand for it.
  Seats(int32_t places) : places_(places) {}
  // workers[place] = its workers. Requires: no worker twice, none negative
  explicit Seats(std::vector<std::vector<WorkerId>> workers);

  // How many places a pipeline has.
  int32_t places() const { return places_; }
  // The worker with that place in that pipeline; none when there is no such place, or, if places
  // are listed, no such pipeline.
  WorkerId worker(int32_t pipeline, int32_t place) const;
  // How many workers each place has, in a grid of `pipelines` pipelines.
  std::vector<int32_t> widths(int32_t pipelines) const;
  // The workers of each place; empty in a grid.
  const std::vector<std::vector<WorkerId>>& listed() const { return listed_; }
  // The place of a worker; -1 when a list of places does not have the worker.
  int32_t place_of(WorkerId worker) const;
  // The pipeline of a worker; -1 when a list of places does not have the worker.
  int32_t pipeline_of(WorkerId worker) const;
  // The pairs of workers between which messages of link `link`, from place `link` to the next one,
  // can travel, for a run of `workers` workers: in a grid those of the same pipeline, else all.
  std::vector<std::pair<WorkerId, WorkerId>> pairs(int32_t link, int32_t workers) const;

 private:
  int32_t places_ = 1;
  std::vector<std::vector<WorkerId>> listed_;  // empty: a grid
};

// The workers of each place of a plan: the place of a worker is that of the lowest stage that it
// holds, and stages that are nobody's lowest have no place.
std::vector<std::vector<WorkerId>> places_of(const std::vector<Stage>& stages);

// True when these places are those of a grid.
bool is_grid(const std::vector<std::vector<WorkerId>>& places);

}  // namespace tenuto
