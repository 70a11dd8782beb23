#include "base/cut_text.h"

namespace tenuto {

namespace {

// Whether a byte continues a UTF-8 character.
bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

size_t cut_of(std::string_view text, size_t most) {
  constexpr size_t kMostContinuing = 3;  // in a character
  if (text.size() <= most) return text.size();
  size_t end = most;
  while (end > 0 && most - end < kMostContinuing && continues(text[end])) --end;
  return continues(text[end]) ? most : end;
}

std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  return std::string(text.substr(0, cut_of(text, most - 3))) + "...";
}

}  // namespace tenuto
