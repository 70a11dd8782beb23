#include "adapt/report/map_drawing.h"

#include <algorithm>
#include <ostream>
#include <string_view>

#include "adapt/report/map_layout.h"
#include "base/cut_text.h"
#include "base/text.h"
#include "sim/html.h"

namespace tenuto {

const char* const kMapStyle = R"(figure { margin: 10px 0; }
figcaption { margin-bottom: 4px; }
.map { display: block; font: 11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
.map text { fill: var(--text); }
.map .strong { font-weight: 600; }
.map .soft { fill: var(--soft); }
.map .end { text-anchor: end; }
.map .middle { text-anchor: middle; }
.map .place { fill: var(--panel); stroke: var(--soft); }
.map .block { fill: var(--back); stroke: var(--line); }
.map .block.busiest { stroke: var(--bound); stroke-width: 2.5; }
.map .cell { stroke: #1b1f24; stroke-width: .6; }
.map .frame { fill: none; stroke: #1b1f24; stroke-width: .6; }
.map .slow { stroke: var(--bound); stroke-width: 2.5; stroke-dasharray: 4 2; }
.map text.ink { fill: #111417; }
.map .wire { stroke: var(--soft); stroke-width: 4; }
.map .halo { paint-order: stroke; stroke: var(--back); stroke-width: 3px; font-size: 10px; }
.map .arrow { fill: none; stroke: var(--text); stroke-width: 1.4; }
.map .arrow.busiest { stroke: var(--bound); stroke-width: 3; }
.map .head { fill: var(--text); }
.map .badge { fill: var(--back); stroke: var(--text); }
.map .hatch { stroke: #b4bcc5; stroke-width: 1.5; }
.map .paper { fill: #e6e9ec; }
.c0 { fill: #56b4e9; } .c1 { fill: #f0b040; } .c2 { fill: #4cc79f; } .c3 { fill: #dd9cc0; }
.c4 { fill: #f0e442; } .c5 { fill: #a3b1ff; } .c6 { fill: #f28f5b; } .c7 { fill: #a5d65a; }
.c8 { fill: #c9a9f5; } .c9 { fill: #7fdbdb; } .c10 { fill: #f5a3a3; } .c11 { fill: #cfc08a; }
.keys { display: flex; flex-wrap: wrap; gap: 2px 18px; color: var(--soft); font-size: 12.5px; }
.keys .map { display: inline-block; vertical-align: -3px; margin-right: 5px; }
table.words th { text-align: left; vertical-align: top; }
table.words td { text-align: left; white-space: normal; max-width: 110ch; }
table.plain td, table.plain th { text-align: left; }
table.layers td:nth-child(3), table.layers th:nth-child(3) { text-align: left; }
table.links td:nth-child(2), table.links th:nth-child(2) { text-align: right; }
pre { overflow-x: auto; font-size: 12.5px; }
)";

namespace {

constexpr int32_t kColours = 12;
constexpr size_t kMostLetters = 40, kMostNamed = 64;

std::string number(double value) { return fixed(value, 1); }

std::string at(double x, double y) { return cat("x=\"", number(x), "\" y=\"", number(y), "\""); }

std::string rectangle(const MapBox& box, const std::string& kind, double corner) {
  return cat("<rect class=\"", kind, "\" ", at(box.x, box.y), " width=\"", number(box.width),
             "\" height=\"", number(box.height), "\" rx=\"", number(corner), "\"/>");
}

std::string written(double x, double y, const char* kind, std::string_view text) {
  return cat("<text class=\"", kind, "\" ", at(x, y), ">", html(text), "</text>");
}

// The text, cut to the length of a line of a block.
std::string clipped(const std::string& text) { return shortened(text, kMostLetters); }

std::string colour_of(int32_t stage) { return cat("c", stage % kColours); }

// "stage 3", "stages 0, 4", "idle".
std::string name_of_block(const MapBlock& block) {
  constexpr size_t kLong = 14;
  if (block.left_out > 0) return cat(block.left_out, " more, see the table");
  if (block.stages.empty()) return "idle";
  std::string text = block.stages.size() == 1 ? "stage " : "stages ";
  for (size_t i = 0; i < block.stages.size(); ++i) {
    if (text.size() > kLong) return text + ", ...";
    text += cat(i == 0 ? "" : ", ", block.stages[i]);
  }
  return text;
}

class Drawer {
 public:
  Drawer(std::ostream& out, const MapPicture& picture)
      : out_(out),
        picture_(picture),
        problem_(picture.report.problem),
        map_(map_layout(picture.report, picture.topology, picture.mapping)) {}

  void draw() {
    const std::string& id = picture_.id;
    out_ << cat("<svg class=\"map\" role=\"img\" aria-labelledby=\"", id, "-title ", id,
                "-words\" width=\"", fixed(map_.width, 0), "\" height=\"", fixed(map_.height, 0),
                "\">\n<title id=\"", id, "-title\">", html(picture_.title), "</title>\n<desc id=\"",
                id, "-words\">", html(description()), "</desc>\n")
         << cat("<defs><marker id=\"", id, "-head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" ",
                "markerWidth=\"9\" markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" ",
                "orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker>\n",
                "<pattern id=\"", id, "-idle\" width=\"6\" height=\"6\" ",
                "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">",
                "<rect class=\"paper\" width=\"6\" height=\"6\"/><path class=\"hatch\" ",
                "d=\"M0 0V6\"/></pattern></defs>\n");
    for (const MapRegion& region : map_.regions) draw_region(region);
    for (const MapArrow& arrow : map_.arrows) draw_arrow(arrow);
    draw_wires();
    out_ << "</svg>\n";
  }

 private:
  std::vector<int32_t> workers_of(const std::vector<int32_t>& devices) const {
    std::vector<int32_t> workers;
    for (const int32_t device : devices) workers.push_back(problem_.worker(device).value);
    return workers;
  }

  // The picture in words.
  std::string description() const {
    std::string text;
    const auto& stages = picture_.mapping.stages;
    for (size_t n = 0; n < std::min(stages.size(), kMostNamed); ++n) {
      text += cat("Stage ", n, ": devices ", ranges_text(workers_of(stages[n].devices)), ". ");
    }
    return cat(text, stages.size() > kMostNamed ? "More stages follow. " : "",
               "The tables below have the figures.");
  }

  // Draws a line with the rate between each two places that stand side by side.
  void draw_wires() {
    for (size_t i = 1; i < map_.regions.size(); ++i) {
      const MapRegion &left = map_.regions[i - 1], &right = map_.regions[i];
      if (left.row != right.row) continue;
      const double y = left.box.y + 15, middle = left.box.right() + 19;
      std::string rate = rate_text(picture_.topology.between(left.places[0], right.places[0]));
      if (const size_t unit = rate.find(" GB/s"); unit != std::string::npos) rate.erase(unit);
      if (const size_t to = rate.find(" to "); to != std::string::npos) rate.replace(to, 4, "-");
      out_ << cat("<path class=\"wire\" d=\"M", number(left.box.right()), " ", number(y), "H",
                  number(right.box.x), "\"/>")
           << written(middle, y - 5, "middle halo", rate)
           << written(middle, y + 14, "middle halo", "GB/s") << "\n";
    }
  }

  void draw_region(const MapRegion& region) {
    RateRange inside;
    std::vector<int32_t> places;
    for (const size_t place : region.places) {
      inside.add(picture_.topology.inside(place));
      places.push_back(static_cast<int32_t>(place));
    }
    const std::string devices =
        cat(counted(region.devices.size(), "device"), " ", ranges_text(workers_of(region.devices)));
    out_ << "<g>" << rectangle(region.box, "place", 8)
         << written(region.box.x + 8, region.box.y + 15, "strong",
                    places.size() == 1
                        ? clipped(cat("place ", places[0], ": ", devices))
                        : clipped(cat(places.size(), " places: ", ranges_text(places))))
         << written(region.box.x + 8, region.box.y + 30, "soft",
                    clipped(cat(
                        places.size() == 1 ? std::string()
                                           : cat(counted(region.devices.size(), "device"), ", "),
                        inside.empty() ? std::string() : cat("inside ", rate_text(inside)))))
         << "\n";
    for (const MapBlock& block : region.blocks) draw_block(block);
    out_ << "</g>\n";
  }

  void draw_block(const MapBlock& block) {
    const MapBox& box = block.box;
    bool busiest = false;
    double busy = 0;
    for (const int32_t stage : block.stages) {
      const MappedStage& it = picture_.mapping.stages[static_cast<size_t>(stage)];
      busiest = busiest || it.busiest;
      busy = std::max(busy, it.busy);
    }
    out_ << rectangle(box, busiest ? "block busiest" : "block", 4);
    draw_fill({box.x, box.y, box.width, MapSizes::band}, block);
    out_ << written(box.x + 8, box.y + 14, "strong ink", name_of_block(block));
    if (!block.stages.empty()) {
      out_ << written(box.right() - 8, box.y + 14, "end ink",
                      block.main ? cat(busiest ? "bottleneck, " : "", percent(busy),
                                       block.stages.size() == 1 ? " busy" : "")
                                 : std::string("part of the stage"));
    }
    for (size_t i = 0; i < block.lines.size(); ++i) {
      out_ << written(box.x + 8,
                      box.y + MapSizes::band + 14 + MapSizes::line * static_cast<double>(i), "",
                      clipped(block.lines[i]));
    }
    out_ << "\n";
    if (block.devices.size() > kMostCells) {
      write_devices(block);
    } else {
      draw_cells(block);
    }
  }

  // Fills a box with the colours of the block's stages, side by side, or hatches it if the block
  // has no stages.
  void draw_fill(const MapBox& box, const MapBlock& block) {
    if (block.stages.empty()) {
      out_ << cat("<rect fill=\"url(#", picture_.id, "-idle)\" ", at(box.x, box.y), " width=\"",
                  number(box.width), "\" height=\"", number(box.height), "\"/>");
      return;
    }
    const double width = box.width / static_cast<double>(block.stages.size());
    for (size_t i = 0; i < block.stages.size(); ++i) {
      out_ << rectangle({box.x + static_cast<double>(i) * width, box.y, width, box.height},
                        colour_of(block.stages[i]), 0);
    }
  }

  void write_devices(const MapBlock& block) {
    const double x = block.cells.x, y = block.cells.y + 10;
    out_ << written(x, y, "",
                    clipped(cat(counted(block.devices.size(), "device"), ": ",
                                ranges_text(workers_of(block.devices)))));
    size_t count = 0;
    double least = 1, most = 0;
    for (const int32_t device : block.devices) {
      if (!is_slow(problem_, device)) continue;
      ++count;
      least = std::min(least, problem_.speed(device));
      most = std::max(most, problem_.speed(device));
    }
    if (count > 0) {
      out_ << written(x, y + MapSizes::line, "strong",
                      cat(count, " slow: speed ", speed_text(least, most)));
    }
    out_ << "\n";
  }

  void draw_cells(const MapBlock& block) {
    const bool tall = std::any_of(block.devices.begin(), block.devices.end(),
                                  [&](int32_t device) { return is_slow(problem_, device); });
    const double height = tall ? MapSizes::slow_height : MapSizes::cell_height;
    double x = block.cells.x, y = block.cells.y;
    for (const int32_t device : block.devices) {
      if (x + MapSizes::cell > block.cells.right() + 0.5) {
        x = block.cells.x;
        y += height + MapSizes::cell_gap;
      }
      const MapBox box{x, y, MapSizes::cell, height};
      const bool slow = is_slow(problem_, device);
      const std::string speed = fixed(problem_.speed(device), 2);
      out_ << cat("<g><title>device ", problem_.worker(device), ", ", name_of_block(block),
                  ", place ", picture_.topology.place_of(device), ", speed ", speed, "</title>");
      draw_fill(box, block);
      out_ << rectangle(box, slow ? "frame slow" : "frame", 0)
           << written(x + MapSizes::cell / 2, y + 14, "middle ink", piece(problem_.worker(device)));
      if (slow) out_ << written(x + MapSizes::cell / 2, y + 26, "middle ink", cat("x", speed));
      out_ << "</g>\n";
      x += MapSizes::cell + MapSizes::cell_gap;
    }
  }

  void draw_arrow(const MapArrow& arrow) {
    const MappedLink& link = picture_.mapping.links[arrow.link];
    const std::string name = cat(arrow.link, "-", arrow.link + 1);
    std::string way;
    for (const auto& [x, y] : arrow.points) {
      way += cat(way.empty() ? "M" : "L", number(x), " ", number(y));
    }
    const double width = 8 + 6.5 * static_cast<double>(name.size());
    const auto [x, y] = arrow.label;
    out_ << cat("<g><title>link ", name, ": ", bytes_text(link.bytes), " of a micro-batch, ",
                link.time, ", ", percent(link.busy), " busy", link.busiest ? ", bottleneck" : "",
                "</title><path class=\"", link.busiest ? "arrow busiest" : "arrow", "\" d=\"", way,
                "\" marker-end=\"url(#", picture_.id, "-head)\"/>")
         << rectangle({x - width / 2, y - 8, width, 16}, "badge", 4)
         << written(x, y + 4, "middle", name) << "</g>\n";
  }

  std::ostream& out_;
  const MapPicture& picture_;
  const LayoutProblem& problem_;
  MapLayout map_;
};

}  // namespace

void draw_map(std::ostream& out, const MapPicture& picture) { Drawer(out, picture).draw(); }

void write_map_legend(std::ostream& out) {
  const auto sample = [&](const char* parts, const char* words) {
    out << "<span><svg class=\"map\" width=\"26\" height=\"16\" aria-hidden=\"true\">" << parts
        << "</svg>" << words << "</span>\n";
  };
  out << "<div class=\"keys\">\n";
  sample(
      "<rect class=\"c0\" x=\"1\" y=\"1\" width=\"12\" height=\"14\"/><rect class=\"c1\" "
      "x=\"13\" y=\"1\" width=\"12\" height=\"14\"/>",
      "each stage has a colour; the colours repeat after twelve stages");
  sample(
      "<rect class=\"paper\" x=\"1\" y=\"1\" width=\"24\" height=\"14\"/><path class=\"hatch\" "
      "d=\"M3 15L11 1M11 15L19 1M19 15L25 4\"/>",
      "idle device");
  sample("<rect class=\"place slow\" x=\"2\" y=\"2\" width=\"22\" height=\"12\"/>",
         "slow device, with its speed");
  sample("<rect class=\"block busiest\" x=\"2\" y=\"2\" width=\"22\" height=\"12\"/>",
         "bottleneck");
  sample("<path class=\"wire\" d=\"M0 8H26\"/>", "link between two places, with its rate");
  sample("<path class=\"arrow\" d=\"M0 8H18\"/><path class=\"head\" d=\"M16 4L24 8L16 12z\"/>",
         "activations of a micro-batch to the next stage, between the two blocks with the lowest "
         "rate; gradients take the same way back");
  out << "</div>\n";
}

}  // namespace tenuto
