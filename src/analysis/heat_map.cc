#include "analysis/heat_map.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace tenuto::analysis {

namespace {

constexpr int32_t kMostNumbers = 12;     // columns of numbers that fit on a line
constexpr size_t kName = 14, kCell = 7;  // letters of a row's name and of a number
constexpr double kLeft = 96, kTop = 64, kWidth = 64, kHeight = 26;  // pixels
constexpr double kLeast = 0.05;  // a map whose largest slowdown is smaller stays pale

size_t at(int32_t number) { return static_cast<size_t>(number); }

// By pipeline and stage; 0 where there is no worker.
std::vector<std::vector<double>> cells_of(const Recording& recording, const Analysis& found) {
  std::vector<std::vector<double>> cells(at(recording.pipelines),
                                         std::vector<double>(at(recording.width), 0));
  for (size_t w = 0; w < recording.workers.size(); ++w) {
    const RecordedWorker& seat = recording.workers[w];
    cells[at(seat.pipeline)][at(seat.stage)] = found.by_worker[w].slowdown;
  }
  return cells;
}

// The share of the largest slowdown, 0 to 1.
double heat(double slowdown, const Analysis& found) {
  double most = kLeast;
  for (const PartShare& worker : found.by_worker) most = std::max(most, worker.slowdown - 1);
  return std::clamp((slowdown - 1) / most, 0.0, 1.0);
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.insert(0, width - text.size(), ' ');
  return text;
}

std::string word(double x, double y, const char* anchor, std::string_view text) {
  return cat("<text x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" text-anchor=\"", anchor, "\">",
             text, "</text>\n");
}

std::string cell(double x, double y, double slowdown, const Analysis& found) {
  // From white to a red on which black numbers are readable.
  const double hot = heat(slowdown, found);
  const int64_t other = std::lround(255 - 165 * hot);
  const std::string colour =
      slowdown > 0 ? cat("rgb(255,", other, ",", other, ")") : std::string("#ddd");
  return cat("<rect x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" width=\"", fixed(kWidth, 0),
             "\" height=\"", fixed(kHeight, 0), "\" fill=\"", colour, "\" stroke=\"#999\"/>\n") +
         word(x + kWidth / 2, y + kHeight / 2 + 4, "middle",
              slowdown > 0 ? fixed(slowdown, 2) : "-");
}

}  // namespace

std::string heat_text(const Recording& recording, const Analysis& found) {
  const bool numbers = recording.width <= kMostNumbers;
  std::string text = padded("", kName);
  if (numbers) {
    for (int32_t s = 0; s < recording.width; ++s) text += padded(cat("s", s), kCell);
  } else {
    text += cat("  stages 0 to ", recording.width - 1);
  }
  text += "\n";
  const auto cells = cells_of(recording, found);
  for (size_t p = 0; p < cells.size(); ++p) {
    std::string row = cat("pipeline ", p);
    row.resize(std::max(row.size(), kName), ' ');
    text += row;
    if (!numbers) text += "  ";
    for (const double slowdown : cells[p]) {
      constexpr std::string_view kLetters = ".:-=+*#%@";
      const auto place = static_cast<size_t>(
          std::lround(heat(slowdown, found) * static_cast<double>(kLetters.size() - 1)));
      if (numbers) {
        text += padded(slowdown > 0 ? fixed(slowdown, 2) : "-", kCell);
      } else {
        text += slowdown > 0 ? kLetters[place] : ' ';
      }
    }
    text += "\n";
  }
  return text;
}

std::string heat_svg(const Recording& recording, const Analysis& found) {
  const double width = std::max(kLeft + kWidth * recording.width + 16, 480.0);
  const double height = kTop + kHeight * recording.pipelines + 16;
  std::string text =
      cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", fixed(width, 0), "\" height=\"",
          fixed(height, 0), "\">\n<style>text { font: 12px sans-serif; fill: #222 }</style>\n",
          "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
  text +=
      word(8, 20, "start", cat("Slowdown by worker; the whole run: ", fixed(found.slowdown, 3)));
  for (int32_t s = 0; s < recording.width; ++s) {
    text += word(kLeft + kWidth * (s + 0.5), kTop - 8, "middle", cat("stage ", s));
  }
  const auto cells = cells_of(recording, found);
  for (size_t p = 0; p < cells.size(); ++p) {
    const double y = kTop + kHeight * static_cast<double>(p);
    text += word(8, y + kHeight / 2 + 4, "start", cat("pipeline ", p));
    for (size_t s = 0; s < cells[p].size(); ++s) {
      text += cell(kLeft + kWidth * static_cast<double>(s), y, cells[p][s], found);
    }
  }
  return text + "</svg>\n";
}

}  // namespace tenuto::analysis
