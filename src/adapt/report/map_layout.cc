#include "adapt/report/map_layout.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/text.h"

namespace tenuto {

namespace {

using Stages = std::vector<int32_t>;
using Sets = std::map<Stages, std::vector<int32_t>>;  // devices by the stages that they have

constexpr size_t kColumns = 4;
// The distance of two arrows that leave or reach a block.
constexpr double kShift = 18;
// A picture has at most kMostBlocks blocks, but each region may have kLeastBlocks. One more block
// of the region has the devices that are left.
constexpr size_t kMostBlocks = 128, kLeastBlocks = 24;

// The stages of each device, ascending.
std::vector<Stages> stages_of_devices(const PlanReport& report, const Mapping& mapping) {
  std::vector<Stages> stages(static_cast<size_t>(report.problem.device_count()));
  for (size_t n = 0; n < mapping.stages.size(); ++n) {
    for (const int32_t device : mapping.stages[n].devices) {
      stages[static_cast<size_t>(device)].push_back(static_cast<int32_t>(n));
    }
  }
  return stages;
}

// The sets of stages in the order in which their blocks are drawn; the idle devices are last.
std::vector<Stages> ordered(const Sets& sets) {
  std::vector<Stages> all;
  for (const auto& [stages, devices] : sets) all.push_back(stages);
  std::stable_partition(all.begin(), all.end(), [](const Stages& it) { return !it.empty(); });
  return all;
}

// The regions with their sets of stages: a region for each place or, if there are too many places,
// for all places with the same sets.
std::vector<std::pair<MapRegion, Sets>> regions_of(const Topology& topology,
                                                   const std::vector<Stages>& stages) {
  std::vector<std::pair<MapRegion, Sets>> regions;
  std::map<std::vector<Stages>, size_t> known;
  const bool together = topology.place_count() > kMostRegions;
  for (size_t place = 0; place < topology.place_count(); ++place) {
    Sets sets;
    for (const int32_t device : topology.devices(place)) {
      sets[stages[static_cast<size_t>(device)]].push_back(device);
    }
    size_t index = regions.size();
    if (together) {
      index = known.emplace(ordered(sets), std::min(index, kMostRegions - 1)).first->second;
    }
    if (index == regions.size()) regions.emplace_back();
    auto& [region, all] = regions[index];
    region.places.push_back(place);
    for (auto& [key, devices] : sets) {
      auto& list = all[key];
      list.insert(list.end(), devices.begin(), devices.end());
      region.devices.insert(region.devices.end(), devices.begin(), devices.end());
    }
  }
  return regions;
}

std::vector<std::string> link_lines(const Mapping& mapping, int32_t stage) {
  const MappedLink& link = mapping.links[static_cast<size_t>(stage)];
  return {cat("to stage ", stage + 1, ": ", bytes_text(link.bytes), " a micro-batch,"),
          cat("  ", link.time, ", ", percent(link.busy), " busy")};
}

// "3-12" of "3-12: block 2 to block 11".
std::string numbers_of_layers(const MappedStage& stage) {
  return stage.layers.substr(0, stage.layers.find(':'));
}

class Layouter {
 public:
  Layouter(const PlanReport& report, const Topology& topology, const Mapping& mapping)
      : report_(report), topology_(topology), mapping_(mapping) {}

  MapLayout make() {
    make_blocks();
    set_grid();
    if (mapping_.links.size() <= kMostArrows) make_arrows();
    return std::move(map_);
  }

 private:
  void make_blocks() {
    auto regions = regions_of(topology_, stages_of_devices(report_, mapping_));
    const size_t most = std::max(kLeastBlocks, kMostBlocks / regions.size());
    for (auto& [region, sets] : regions) {
      const std::vector<Stages> order = ordered(sets);
      for (const Stages& stages : order) {
        if (region.blocks.size() == most && order.size() > most + 1) {
          MapBlock& rest = region.blocks.emplace_back();
          rest.left_out = static_cast<int32_t>(order.size() - most);
          for (size_t i = most; i < order.size(); ++i) {
            const auto& devices = sets[order[i]];
            rest.devices.insert(rest.devices.end(), devices.begin(), devices.end());
          }
          break;
        }
        MapBlock& block = region.blocks.emplace_back();
        block.stages = stages;
        block.devices = sets[stages];
      }
      map_.regions.push_back(std::move(region));
    }
    choose_main_blocks();
    for (MapRegion& region : map_.regions) {
      for (MapBlock& block : region.blocks) finish_block(block);
    }
  }

  // The block with the most devices of a stage shows its figures; of equal blocks, the first one.
  void choose_main_blocks() {
    std::vector<MapBlock*> main(mapping_.stages.size());
    for (MapRegion& region : map_.regions) {
      for (MapBlock& block : region.blocks) {
        for (const int32_t stage : block.stages) {
          MapBlock*& it = main[static_cast<size_t>(stage)];
          if (it == nullptr || it->devices.size() < block.devices.size()) it = &block;
        }
      }
    }
    for (MapBlock* block : main) {
      if (block != nullptr) block->main = true;
    }
  }

  void finish_block(MapBlock& block) const {
    if (!block.stages.empty() && block.main) {
      for (const int32_t stage : block.stages) {
        const MappedStage& it = mapping_.stages[static_cast<size_t>(stage)];
        block.lines.push_back(block.stages.size() > 1
                                  ? cat("stage ", stage, ": layers ", numbers_of_layers(it))
                                  : cat("layers ", it.layers));
      }
      const MappedStage& first = mapping_.stages[static_cast<size_t>(block.stages[0])];
      for (const std::string& fact : first.facts) block.lines.push_back(fact);
      for (const int32_t stage : block.stages) {
        if (static_cast<size_t>(stage) >= mapping_.links.size()) continue;
        for (std::string& line : link_lines(mapping_, stage)) {
          block.lines.push_back(std::move(line));
        }
      }
    }
    const auto lines = static_cast<double>(block.lines.size());
    const double inner = MapSizes::block - 2 * MapSizes::margin;
    block.cells = {MapSizes::margin, MapSizes::band + 6 + lines * MapSizes::line, inner,
                   cells_height(block)};
    block.box.width = MapSizes::block;
    // The block is high enough for one arrow that enters and one that leaves for each of its
    // stages.
    const double arrows = kShift * static_cast<double>(block.stages.size());
    block.box.height = std::max(block.cells.bottom() + MapSizes::margin, arrows + 4);
  }

  double cells_height(const MapBlock& block) const {
    const bool slow = std::any_of(block.devices.begin(), block.devices.end(),
                                  [&](int32_t device) { return is_slow(report_.problem, device); });
    if (block.devices.size() > kMostCells) return MapSizes::line * (slow ? 2 : 1);
    const double each = slow ? MapSizes::slow_height : MapSizes::cell_height;
    const size_t rows = (block.devices.size() + kCells - 1) / kCells;
    return static_cast<double>(rows) * (each + MapSizes::cell_gap) - MapSizes::cell_gap;
  }

  static double x_of(size_t column) {
    return MapSizes::gutter + static_cast<double>(column) * (MapSizes::block + MapSizes::gutter);
  }

  void set_grid() {
    // A single region may have all columns. Two regions may have half of them each, more regions
    // have one each.
    const size_t count = map_.regions.size();
    const size_t most = count == 1 ? kColumns : count == 2 ? kColumns / 2 : 1;
    const size_t in_row = kColumns / most;
    double y = MapSizes::channel;
    for (size_t start = 0; start < map_.regions.size(); start += in_row) {
      const size_t end = std::min(start + in_row, map_.regions.size());
      double height = 0;
      size_t column = 0;
      for (size_t i = start; i < end; ++i) {
        MapRegion& region = map_.regions[i];
        region.column = column;
        region.columns = std::min(most, region.blocks.size());
        column += region.columns;
        region.row = start / in_row;
        region.box.y = y;
        height = std::max(height, place_blocks(region));
      }
      for (size_t i = start; i < end; ++i) {
        MapRegion& region = map_.regions[i];
        region.box.x = x_of(region.column) - MapSizes::margin;
        region.box.width = x_of(region.column + region.columns - 1) + MapSizes::block +
                           MapSizes::margin - region.box.x;
        region.box.height = height;
        map_.width = std::max(map_.width, region.box.right() + MapSizes::gutter);
      }
      y += height + MapSizes::channel;
    }
    map_.height = y;
  }

  // Returns the height of the region.
  static double place_blocks(MapRegion& region) {
    const size_t columns = region.columns;
    double y = region.box.y + MapSizes::title;
    for (size_t start = 0; start < region.blocks.size(); start += columns) {
      double height = 0;
      for (size_t i = start; i < std::min(start + columns, region.blocks.size()); ++i) {
        MapBlock& block = region.blocks[i];
        block.column = region.column + i - start;
        block.row = start / columns;
        block.box.x = x_of(block.column);
        block.box.y = y;
        block.cells.x += block.box.x;
        block.cells.y += y;
        height = std::max(height, block.box.height);
      }
      y += height + MapSizes::gap;
    }
    return y - MapSizes::gap + MapSizes::margin - region.box.y;
  }

  const MapBlock& block(BlockIndex index) const {
    return map_.regions[index.region].blocks[index.block];
  }

  // The blocks that have a stage.
  std::vector<BlockIndex> blocks_of(int32_t stage) const {
    std::vector<BlockIndex> found;
    for (size_t r = 0; r < map_.regions.size(); ++r) {
      for (size_t b = 0; b < map_.regions[r].blocks.size(); ++b) {
        const Stages& stages = map_.regions[r].blocks[b].stages;
        if (std::find(stages.begin(), stages.end(), stage) != stages.end()) {
          found.push_back({r, b});
        }
      }
    }
    return found;
  }

  double slowest(BlockIndex from, BlockIndex to) const {
    const std::vector<size_t>& places = map_.regions[from.region].places;
    const size_t one = places[0];
    const size_t other = from.region != to.region ? map_.regions[to.region].places[0]
                         : places.size() > 1      ? places[1]
                                                  : one;
    return (one == other ? topology_.inside(one) : topology_.between(one, other)).slowest;
  }

  // The block of a device.
  BlockIndex block_of(int32_t device) const {
    for (size_t r = 0; r < map_.regions.size(); ++r) {
      for (size_t b = 0; b < map_.regions[r].blocks.size(); ++b) {
        const auto& devices = map_.regions[r].blocks[b].devices;
        if (std::find(devices.begin(), devices.end(), device) != devices.end()) return {r, b};
      }
    }
    return {};
  }

  // Makes an arrow for each link, between the two blocks with the slowest message: this message
  // determines the time of the link.
  void make_arrows() {
    for (size_t n = 0; n < mapping_.links.size(); ++n) {
      const MappedLink& link = mapping_.links[n];
      MapArrow arrow;
      if (link.from >= 0) {
        arrow.from = block_of(link.from);
        arrow.to = block_of(link.to);
      } else {
        choose_blocks(n, arrow);
      }
      if (arrow.from == arrow.to) continue;
      arrow.link = n;
      set_way(arrow);
      map_.arrows.push_back(std::move(arrow));
    }
  }

  // Chooses the two blocks with the slowest rate between them; of equal pairs, one whose blocks
  // show the figures of their stages.
  void choose_blocks(size_t link, MapArrow& arrow) const {
    std::optional<std::pair<double, int>> least;  // rate, and how many blocks have no figures
    for (const BlockIndex one : blocks_of(static_cast<int32_t>(link))) {
      for (const BlockIndex other : blocks_of(static_cast<int32_t>(link) + 1)) {
        const std::pair<double, int> it = {slowest(one, other),
                                           (block(one).main ? 0 : 1) + (block(other).main ? 0 : 1)};
        if (one == other || (least && it >= *least)) continue;
        arrow.from = one;
        arrow.to = other;
        least = it;
      }
    }
  }

  // How far below the first arrow that leaves or reaches the block the next one is drawn.
  double shift(BlockIndex index, bool leaves) const {
    double count = 0;
    for (const MapArrow& arrow : map_.arrows) {
      if ((leaves ? arrow.from : arrow.to) == index) ++count;
    }
    return kShift * count;
  }

  void set_way(MapArrow& arrow) const {
    const MapBlock &from = block(arrow.from), &to = block(arrow.to);
    const bool same = arrow.from.region == arrow.to.region;
    if (same && from.column == to.column && to.row == from.row + 1) {
      const double x = from.box.x + from.box.width / 2;
      arrow.points = {{x, from.box.bottom()}, {x, to.box.y}};
      arrow.label = {x, (from.box.bottom() + to.box.y) / 2 - 3};
      return;
    }
    const double start = from.box.y + MapSizes::band / 2 + shift(arrow.from, true),
                 end = to.box.y + MapSizes::band / 2 + shift(arrow.to, false);
    const double right = from.box.right();
    arrow.label = {right + 24, start};
    if (from.column + 1 == to.column && start == end) {
      arrow.points = {{right, start}, {to.box.x, end}};
      return;
    }
    // From the edge of the block to the vertical part of the arrow, within a gutter.
    const double lane = 44 + 4 * static_cast<double>(arrow.link % 4);
    const double out = right + lane;
    arrow.points = {{right, start}, {out, start}};
    if (from.column + 1 != to.column) {
      const double in = to.box.x - MapSizes::gutter + lane;
      const bool within = same && to.row > 0;
      const double above = within ? to.box.y - MapSizes::gap
                                  : map_.regions[arrow.to.region].box.y - MapSizes::channel;
      const double y = above + 6 + 5 * static_cast<double>(arrow.link % 4);
      arrow.points.push_back({out, y});
      arrow.points.push_back({in, y});
      arrow.points.push_back({in, end});
    } else {
      arrow.points.push_back({out, end});
    }
    arrow.points.push_back({to.box.x, end});
  }

  static constexpr size_t kCells =
      static_cast<size_t>((MapSizes::block - 2 * MapSizes::margin + MapSizes::cell_gap) /
                          (MapSizes::cell + MapSizes::cell_gap));

  const PlanReport& report_;
  const Topology& topology_;
  const Mapping& mapping_;
  MapLayout map_;
};

}  // namespace

bool is_slow(const LayoutProblem& problem, int32_t device) { return problem.speed(device) < 1; }

std::string speed_text(double least, double most) {
  const std::string slowest = fixed(least, 2), fastest = fixed(most, 2);
  return slowest == fastest ? slowest : cat(slowest, " to ", fastest);
}

MapLayout map_layout(const PlanReport& report, const Topology& topology, const Mapping& mapping) {
  return Layouter(report, topology, mapping).make();
}

}  // namespace tenuto
