// Draws a mapping over the topology as a picture (SVG) for a page.
#pragma once

#include <iosfwd>
#include <string>

#include "adapt/report/mapping.h"
#include "adapt/report/topology.h"

namespace tenuto {

// The style of these pictures, as CSS.
extern const char* const kMapStyle;

// What a picture shows; all must outlive it.
struct MapPicture {
  std::string id;     // of its elements on the page: letters
  std::string title;  // plain text
  const PlanReport& report;
  const Topology& topology;
  const Mapping& mapping;
};

// Writes the picture: each place with its devices, blocks of devices with the figures of their
// stage, an arrow for each link. Stages have a colour, and their number in words. Above 16 places,
// those with the same stages are drawn as one; above 24 devices in a block, their numbers are a
// line of text. A stage that two places have says its figures once.
//
// Cost: 1 MB at most for up to 16,384 devices
void draw_map(std::ostream& out, const MapPicture& picture);

// The legend that goes with the pictures, as HTML.
void write_map_legend(std::ostream& out);

}  // namespace tenuto
