#include "world/toml_text.h"

#include <algorithm>

#include "base/text.h"

namespace tenuto {

namespace {

constexpr int kMostParts = 16;

// Scans a text and recognizes only names, quoted text and comments.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  std::optional<TextFault> run() {
    int dots = 0;  // since the last sign that ends a name
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      if (letter == '"' || letter == '\'') {
        skip_quotes(letter);
        continue;
      }
      if (std::string_view("=,[]{}\n").find(letter) != std::string_view::npos) dots = 0;
      if (letter == '.' && ++dots >= kMostParts) return fault();
      ++at_;
    }
    return {};
  }

 private:
  bool next_is(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  // Text in single quotes has no escapes; three quotes go over lines.
  void skip_quotes(char quote) {
    const std::string three(3, quote);
    const bool many_lines = next_is(three);
    at_ += many_lines ? 3 : 1;
    while (at_ < text_.size()) {
      if (many_lines ? next_is(three) : text_[at_] == quote) {
        at_ += many_lines ? 3 : 1;
        // The text may itself end in up to two quotes.
        for (int i = 0; many_lines && i < 2 && next_is({&quote, 1}); ++i) ++at_;
        return;
      }
      if (!many_lines && text_[at_] == '\n') return;
      at_ += quote == '"' && text_[at_] == '\\' ? 2 : 1;
    }
  }

  TextFault fault() const {
    TextFault fault;
    for (const char letter : text_.substr(0, at_)) {
      if (letter == '\n') {
        ++fault.line;
        fault.column = 1;
      } else if ((static_cast<unsigned char>(letter) & 0xC0) != 0x80) {
        ++fault.column;
      }
    }
    fault.sentence = cat("a name of more than ", kMostParts, " parts is no setting's name");
    return fault;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<TextFault> find_deep_name(std::string_view text) { return Scan(text).run(); }

}  // namespace tenuto
