// Pieces of the lines of a text file, each with its place, for readers of simple formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tenuto {

// A part of a line and where it begins; both counts are from 1.
struct LinePiece {
  std::string_view text;
  int64_t line = 1, column = 1;
};

// The lines of a text that say something: without blanks at both ends, without blank lines, and
// without lines that begin with #.
std::vector<LinePiece> lines_of(std::string_view text);

// The first `most` words of a line; the last of them is the rest of the line. Words are separated
// by blanks or tabs.
std::vector<LinePiece> words_of(const LinePiece& line, size_t most);

// The whole of `text` as a finite number, or nothing.
std::optional<double> finite_number(std::string_view text);

// Invalid/Call "SOURCE:LINE:COLUMN: sentence".
Error error_at(std::string_view source, const LinePiece& place, std::string_view sentence);

// ", found 'text'", with the text cut to a length that a sentence can hold.
std::string found_text(std::string_view text);

}  // namespace tenuto
