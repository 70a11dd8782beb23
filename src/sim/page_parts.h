// The parts of the page that are no C++: src/sim/page/, put into the library when it is built.
#pragma once

namespace tenuto {

// The script, page.js.
extern const char* const kPageScript;
// The style, page.css.
extern const char* const kPageStyle;
// What stands between the summary and the table: the buttons and the canvas, page.html.
extern const char* const kPageChart;

}  // namespace tenuto
