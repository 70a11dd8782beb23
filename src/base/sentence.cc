#include "base/sentence.h"

#include <algorithm>

namespace tenuto {

std::string told(std::string_view text) {
  constexpr size_t kMost = 200, kBegin = 80, kEnd = 40;
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view word = text.substr(0, end);
    if (word.size() <= kMost) {
      out += word;
    } else {
      out += word.substr(0, kBegin);
      out += "...";
      out += word.substr(word.size() - kEnd);
    }
    if (end < text.size()) out += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string excerpt(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string out;
  for (const char letter : text.substr(0, kMost)) {
    out += static_cast<unsigned char>(letter) < ' ' ? '?' : letter;
  }
  return text.size() > kMost ? out + "..." : out;
}

}  // namespace tenuto
