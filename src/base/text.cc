#include "base/text.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace tenuto {

std::string fixed(double number, int decimals) {
  char buffer[64];
  const int length = std::snprintf(buffer, sizeof(buffer), "%.*f", decimals, number);
  return std::string(buffer, static_cast<size_t>(std::clamp(length, 0, 63)));
}

std::string line_and_column(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, std::min(at == 0 ? 0 : at - 1, text.size()));
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return cat(line, ":", before.size() - begin + 1);
}

namespace {

size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<size_t> row(right.size() + 1);
  for (size_t j = 0; j <= right.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= left.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= right.size(); ++j) {
      const size_t above = row[j];
      const size_t change = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, change});
      diagonal = above;
    }
  }
  return row[right.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::string_view* candidates, size_t count) {
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  std::string found;
  for (size_t i = 0; i < count; ++i) {
    const size_t distance = edit_distance(word, candidates[i]);
    if (distance < best) {
      best = distance;
      found = std::string(candidates[i]);
    }
  }
  return found;
}

}  // namespace tenuto
