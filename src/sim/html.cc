#include "sim/html.h"

#include <ostream>

#include "sim/page_parts.h"

namespace tenuto {

std::string html(std::string_view text) {
  std::string safe;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\t':
      case '\n':
        safe += letter;
        break;
      default:
        safe += static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f ? '?' : letter;
    }
  }
  return safe;
}

void begin_page(std::ostream& out, const PageHead& head) {
  // The policy makes the browser itself refuse to fetch anything.
  out << "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      << "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      << "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'"
      << (head.scripts ? "; script-src 'unsafe-inline'" : "") << "\">\n"
      << "<title>" << html(head.title) << "</title>\n<style>\n"
      << kPageStyle << head.more_style << "</style>\n</head>\n<body>\n";
  if (!head.scripts) return;
  // This script is first, so that it gets the errors of the other scripts.
  out << "<script>window.onerror = (text, file, line) => { const set = document.body.dataset;\n"
         "set.error = `${set.error ? set.error + '; ' : ''}${text} (line ${line})`; };"
         "</script>\n";
}

void end_page(std::ostream& out) { out << "</body>\n</html>\n"; }

void write_fact(std::ostream& out, std::string_view what, std::string_view figure,
                std::string_view more) {
  out << "<li><span>" << html(what) << "</span><b>" << html(figure) << "</b>";
  if (!more.empty()) out << " <i>" << html(more) << "</i>";
  out << "</li>\n";
}

}  // namespace tenuto
