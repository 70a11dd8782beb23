// The positions of the parts of a mapping's picture: the places of a cluster in a grid, in each
// place a block for the devices of a stage, and the arrows between the blocks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "adapt/report/mapping.h"
#include "adapt/report/topology.h"

namespace tenuto {

// A rectangle. All lengths in this file are in pixels.
struct MapBox {
  double x = 0, y = 0, width = 0, height = 0;
  // Its other edges.
  double right() const { return x + width; }
  double bottom() const { return y + height; }
};

// The devices of a place that have the same stages. A block without stages has the idle devices.
struct MapBlock {
  std::vector<int32_t> stages, devices;
  bool main = false;     // it has the most devices of one of its stages, and shows the figures
  int32_t left_out = 0;  // > 0: this many sets of stages share the block
  std::vector<std::string> lines;
  MapBox box, cells;           // `cells` is for the devices, or for a line with their numbers
  size_t column = 0, row = 0;  // in the whole picture; in its region
};

// A place. If there are more than kMostRegions places: all places that have the same stages; then
// the last region has all places for which there is no other region.
struct MapRegion {
  std::vector<size_t> places;
  std::vector<int32_t> devices;
  std::vector<MapBlock> blocks;
  MapBox box;
  size_t column = 0, columns = 1, row = 0;  // first column, number of columns, row of regions
};

// Names a block: the index of its region, and its index in the region.
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

// Lengths that are used to place the parts and to draw them. A gutter is between two columns of
// blocks, a channel between two rows of regions, a title above the blocks of a region.
struct MapSizes {
  static constexpr double block = 246, gutter = 68, margin = 8, title = 38, channel = 30;
  static constexpr double gap = 34;   // between two blocks of a region
  static constexpr double band = 20;  // the first line of a block, which has the colour
  static constexpr double line = 15, cell = 40, cell_height = 20, slow_height = 31, cell_gap = 4;
};

// The positions of all parts.
struct MapLayout {
  std::vector<MapRegion> regions;
  std::vector<MapArrow> arrows;  // empty when there are too many links
  double width = 0, height = 0;
};

// A block with more devices than this has a line with their numbers in place of drawn devices.
inline constexpr size_t kMostCells = 24;
// The most places and the most links that are drawn one by one.
inline constexpr size_t kMostRegions = 16, kMostArrows = 64;

// True for a device that is slower than the one that the model was measured on.
bool is_slow(const LayoutProblem& problem, int32_t device);

// "0.50", "0.50 to 0.80".
std::string speed_text(double least, double most);

// Places the parts of the picture.
//
// Cost: linear in the devices; at most some hundred blocks
MapLayout map_layout(const PlanReport& report, const Topology& topology, const Mapping& mapping);

}  // namespace tenuto
