// The parts that all HTML pages share: escaped text, the head with the style, the list of figures.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

namespace tenuto {

// The text, escaped for use as content or as the value of an attribute in quotation marks.
// Control characters, which HTML does not allow, become question marks.
std::string html(std::string_view text);

// What differs between the heads of pages.
struct PageHead {
  std::string title;       // plain text
  std::string more_style;  // CSS after the common style
  bool scripts = false;    // false: the browser refuses to run scripts
};

// Writes the beginning of a page, up to <body>. The browser refuses to load anything for the page.
// If the page has scripts, errors in them are collected in the body's data-error.
void begin_page(std::ostream& out, const PageHead& head);

// Writes the end of a page.
void end_page(std::ostream& out);

// Writes an entry of a list of figures, <ul class="facts">. The three texts are plain; `more` may
// be empty.
void write_fact(std::ostream& out, std::string_view what, std::string_view figure,
                std::string_view more);

}  // namespace tenuto
