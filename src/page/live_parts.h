// The parts of the live page that are not C++ (src/page/files/); the build puts them into the
// library.
#pragma once

namespace tenuto::page {

// The script, live.js.
extern const char* const kLiveScript;
// The style, live.css.
extern const char* const kLiveStyle;
// What stands in the body, live.html.
extern const char* const kLiveFrame;

}  // namespace tenuto::page
