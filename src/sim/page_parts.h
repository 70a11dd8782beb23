// The parts of the page that are not C++ (src/sim/page/); the build puts them into the library.
#pragma once

namespace tenuto {

// The script, page.js.
extern const char* const kPageScript;
// The style, page.css.
extern const char* const kPageStyle;
// What stands between the summary and the table: the buttons and the canvas, page.html.
extern const char* const kPageChart;

}  // namespace tenuto
