// Where the parts of a drawing of a mapping stand: the places of a cluster in a grid, in each place
// a block for the devices of a stage, and the ways of the arrows between the blocks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "adapt/report/mapping.h"
#include "adapt/report/topology.h"

namespace tenuto {

// A rectangle; pixels, as are all lengths here.
struct MapBox {
  double x = 0, y = 0, width = 0, height = 0;
  // Its other edges.
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

// The devices of a place that have the same stages; of none: the idle ones.
struct MapBlock {
  std::vector<int32_t> stages, devices;
  bool main = false;     // of some of its stages it has most devices, and so their figures
  int32_t left_out = 0;  // in place of stages: so many sets of stages that are not drawn
  std::vector<std::string> lines;
  MapBox box, cells;           // `cells` is for the devices, or for a line with their numbers
  size_t column = 0, row = 0;  // in the grid of blocks; in the blocks of its region
};

// A place; or places that have the same stages, when there are too many to draw each.
struct MapRegion {
  std::vector<size_t> places;
  std::vector<int32_t> devices;
  std::vector<MapBlock> blocks;
  MapBox box;
  size_t column = 0, columns = 1, row = 0;  // in the grid; `columns` of blocks
};

// A block of a layout.
struct BlockIndex {
  size_t region = 0, block = 0;
  bool operator==(const BlockIndex&) const = default;
};

// An arrow for a link of the mapping.
struct MapArrow {
  size_t link = 0;
  BlockIndex from, to;
  std::vector<std::pair<double, double>> points;
  std::pair<double, double> label;  // the middle of the link's name
};

// Lengths that the layout and the drawing agree on.
struct MapSizes {
  static constexpr double block = 246, gutter = 68, margin = 8, title = 38, channel = 30;
  static constexpr double gap = 34;   // between two blocks of a region
  static constexpr double band = 20;  // the head of a block
  static constexpr double line = 15, cell = 40, cell_height = 20, slow_height = 31, cell_gap = 4;
};

// Where everything is.
struct MapLayout {
  std::vector<MapRegion> regions;
  std::vector<MapArrow> arrows;  // empty when there are too many links
  double width = 0, height = 0;
};

// Above this number of devices in a block, a line with their numbers stands for them.
inline constexpr size_t kMostCells = 24;
// The most places and the most links that are drawn one by one.
inline constexpr size_t kMostRegions = 16, kMostArrows = 64;

// True for a device that is slower than the one that the model was measured on.
bool is_slow(const LayoutProblem& problem, int32_t device);

// "0.50", "0.50 to 0.80".
std::string speed_text(double least, double most);

// Cost: linear in the devices; at most some hundred blocks
MapLayout map_layout(const PlanReport& report, const Topology& topology, const Mapping& mapping);

}  // namespace tenuto
