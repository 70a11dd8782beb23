// Draws the places of a cluster and the stages of a mapping as a picture (SVG) for a page.
#pragma once

#include <iosfwd>
#include <string>

#include "adapt/report/mapping.h"
#include "adapt/report/topology.h"

namespace tenuto {

// The style of these pictures, as CSS.
extern const char* const kMapStyle;

// What a picture shows. The objects must outlive this.
struct MapPicture {
  std::string id;     // begins the ids of its elements on the page: letters
  std::string title;  // plain text
  const PlanReport& report;
  const Topology& topology;
  const Mapping& mapping;
};

// Writes the picture: each place with its devices, blocks of devices with the figures of their
// stage, an arrow for each link (see map_layout.h for the limits). Each stage has a colour, and its
// number as text. The figures of a stage that is in several places are written once.
//
// Cost: 1 MB at most for up to 16,384 devices
void draw_map(std::ostream& out, const MapPicture& picture);

// The legend that goes with the pictures, as HTML.
void write_map_legend(std::ostream& out);

}  // namespace tenuto
