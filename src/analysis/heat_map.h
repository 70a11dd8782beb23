// Which worker slowed a run, as a map: a row for each pipeline, a column for each stage.
#pragma once

#include <string>

#include "analysis/analyze.h"
#include "analysis/recording.h"

namespace tenuto::analysis {

// The slowdown by worker as text: numbers, or with more than 12 stages one letter each, from '.'
// for none to '@' for the largest. A place without a worker is '-', or a blank among letters.
std::string heat_text(const Recording& recording, const Analysis& found);

// The same as an SVG picture, from white for no slowdown to red for the largest.
std::string heat_svg(const Recording& recording, const Analysis& found);

}  // namespace tenuto::analysis
