#include "base/sentence.h"

#include <algorithm>

#include "base/cut_text.h"

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
      out += word.substr(0, cut_of(word, kBegin));
      out += "...";
      out += word.substr(cut_of(word, word.size() - kEnd));
    }
    if (end < text.size()) out += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string excerpt(std::string_view text) {
  constexpr size_t kMost = 60;
  std::string out;
  for (const char letter : text.substr(0, cut_of(text, kMost))) {
    out += static_cast<unsigned char>(letter) < ' ' ? '?' : letter;
  }
  return text.size() > kMost ? out + "..." : out;
}

}  // namespace tenuto
