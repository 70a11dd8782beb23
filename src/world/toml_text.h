// Finds TOML that would crash the parser behind load.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenuto {

// An error in a text and its place; lines and columns count from 1.
struct TextFault {
  int64_t line = 1, column = 1;
  std::string sentence;
};

// The first name of more than 16 parts, a.b.c..., or none. Each part nests a table in a table, and
// a million of them overflow the stack. All other errors are left to the parser.
std::optional<TextFault> find_deep_name(std::string_view text);

}  // namespace tenuto
