// Reads TOML that people write, value by value: where a value stands, what it is in words, and the
// flaw that comes first in the file. Only for .cc files, because the parser compiles slowly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "world/toml.h"

namespace tenuto {

// Where a value stands: the file or the flag, and its line and column when it has them.
struct TextPlace {
  std::string source;
  int64_t line = 0, column = 0;
  // "FILE:LINE:COLUMN", or the source alone.
  std::string text() const { return line == 0 ? source : cat(source, ":", line, ":", column); }
};

// What is wrong, and where.
struct TomlFlaw {
  TextPlace place;
  std::string sentence;
};

// Parses a text. `source` names it in errors.
//
// Errors: Invalid/Call with the place  no TOML
Result<toml::table> parse_toml(std::string_view text, const std::string& source);

// The place of a part of a parsed text.
TextPlace place_of(const std::string& source, const toml::source_region& region);

// The type of a value, in words: "a list".
std::string type_name(const toml::node& node);

// What was found, for an error: the value, cut short; of a table, a list or a date its type.
std::string found_text(const toml::node& node);

// A number, with a point or without; it may be infinite. None = the value is no number.
std::optional<double> number_of(const toml::node& node);

// A whole number, which may also be written with a point or an exponent: 1e3. None = it is none, or
// it is written with a point and so large that some digits would be lost.
std::optional<int64_t> whole_number_of(const toml::node& node);

// ", did you mean NAME?" with the name that is nearest to `word`; "" = none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names);

// The error that tells a flaw with its place.
Error error_of(const TomlFlaw& flaw);

// The first flaw in the order of the file, with the count of the others; none = there is no flaw.
std::optional<Error> first_flaw(const std::vector<TomlFlaw>& flaws);

}  // namespace tenuto
