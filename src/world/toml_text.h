// What a TOML text must not hold because the parser behind load.h would not survive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tenuto {

// A fault in a text and where it stands; lines and columns count from 1.
struct TextFault {
  int64_t line = 1, column = 1;
  std::string sentence;
};

// The first name of more than 16 parts, a.b.c..., or none. Each part is a table within a table, and
// a million of them end the stack. Everything else that is wrong is the parser's to say.
std::optional<TextFault> find_deep_name(std::string_view text);

}  // namespace tenuto
