#include "world/line_reading.h"

#include <charconv>
#include <cmath>

#include "base/cut_text.h"
#include "base/text.h"

namespace tenuto {

namespace {

bool is_blank(char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; }

LinePiece trimmed(LinePiece it) {
  while (!it.text.empty() && is_blank(it.text.front())) {
    it.text.remove_prefix(1);
    ++it.column;
  }
  while (!it.text.empty() && is_blank(it.text.back())) it.text.remove_suffix(1);
  return it;
}

}  // namespace

std::vector<LinePiece> lines_of(std::string_view text) {
  std::vector<LinePiece> lines;
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    const LinePiece it = trimmed({text.substr(0, end), line, 1});
    if (!it.text.empty() && it.text.front() != '#') lines.push_back(it);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

std::vector<LinePiece> words_of(const LinePiece& line, size_t most) {
  std::vector<LinePiece> words;
  LinePiece rest = trimmed(line);
  while (!rest.text.empty()) {
    size_t length = 0;
    while (length < rest.text.size() && !is_blank(rest.text[length])) ++length;
    if (words.size() + 1 == most) length = rest.text.size();
    words.push_back({rest.text.substr(0, length), rest.line, rest.column});
    rest.text.remove_prefix(length);
    rest.column += static_cast<int64_t>(length);
    rest = trimmed(rest);
  }
  return words;
}

std::optional<double> finite_number(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return {};
  return number;
}

Error error_at(std::string_view source, const LinePiece& place, std::string_view sentence) {
  return invalid(cat(source, ":", place.line, ":", place.column, ": ", sentence));
}

std::string found_text(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string out;
  for (const char letter : text.substr(0, cut_of(text, kMost))) {
    out += static_cast<unsigned char>(letter) < ' ' ? '?' : letter;
  }
  return cat(", found '", out, text.size() > kMost ? "...'" : "'");
}

}  // namespace tenuto
