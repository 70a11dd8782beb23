// What all HTML pages share: escaped text, the head with the style, the boxes with figures.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

namespace tenuto {

// The text, escaped for HTML: as content and as the value of an attribute in quotation marks.
// Control characters, which HTML does not allow, become question marks.
std::string html(std::string_view text);

// What the head of a page says.
struct PageHead {
  std::string title;       // plain text
  std::string more_style;  // CSS behind the common style
  bool scripts = false;    // the page has scripts; else the browser runs none
};

// Begins a page, up to <body>. The page cannot load anything: the browser refuses it. If it has
// scripts, errors in them are collected in the body's data-error.
void begin_page(std::ostream& out, const PageHead& head);

// Ends a page.
void end_page(std::ostream& out);

// An entry of a list of figures, <ul class="facts">; all texts are plain. `more` may be empty.
void write_fact(std::ostream& out, std::string_view what, std::string_view figure,
                std::string_view more);

}  // namespace tenuto
