#include "run/steps_picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/cut_text.h"
#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;

// The picture's measures, in pixels.
constexpr double kLeft = 64, kTop = 24, kWidth = 880, kLine = 18;
constexpr double kHeight = 260, kLowHeight = 110, kBand = 16, kGap = 26;  // of and between panels
constexpr double kLetter = 7;                                             // of a mode's name
constexpr size_t kColumns = 880;
constexpr size_t kMostEvents = 1000;  // marked
constexpr size_t kMostSentences = 40;
constexpr size_t kLongest = 150;  // letters of a sentence

struct Point {
  int64_t step = 0;
  double value = 0;
};
struct ModeOfStep {
  int64_t step = 0;
  std::string mode;
};
struct Happening {
  int64_t step = 0;
  std::string kind, sentence;
};

template <class Take>
Status each_line(const std::string& path, Take take) {
  const Result<std::string> text = read_file(path);
  if (!text.ok()) return text.error();
  std::istringstream lines(text.value());
  std::string line;
  while (std::getline(lines, line)) {
    const Json json = Json::parse(line, nullptr, false);
    // Skip a line that a crash has cut off.
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer()) take(json);
  }
  return ok();
}

std::string text_of(const Json& json, const char* key) {
  return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
}

std::string escaped(const std::string& text) {
  std::string out;
  const size_t end = cut_of(text, kLongest);
  for (const char letter : text.substr(0, end)) {
    if (letter == '<') {
      out += "&lt;";
    } else if (letter == '&') {
      out += "&amp;";
    } else if (static_cast<unsigned char>(letter) >= ' ') {
      out += letter;
    }
  }
  return end < text.size() ? out + " ..." : out;
}

// A round number not below `value`: 1, 2 or 5 times a power of ten.
double round_up(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (value <= factor * power) return factor * power;
  }
  return 10 * power;
}

// What a run's folder tells of its steps, each in the order of steps.
struct Told {
  std::vector<Point> milliseconds;  // never empty
  std::vector<Point> losses, validation_losses, accuracies;
  std::vector<ModeOfStep> modes;  // with server shards
  std::vector<Happening> happenings;
};

// A curve over the steps: its place in the picture, and the values at its edges.
struct Panel {
  double top = 0, height = 0;
  double low = 0, high = 1;
  double y(double value) const { return top + height * (1 - (value - low) / (high - low)); }
};

class Picture {
 public:
  explicit Picture(Told told) : told_(std::move(told)) {
    first_ = told_.milliseconds.front().step;
    last_ = std::max(told_.milliseconds.back().step, first_ + 1);
  }

  std::string draw() {
    Panel times{kTop, kHeight, 0, 0};
    for (const Point& point : told_.milliseconds) times.high = std::max(times.high, point.value);
    times.high = round_up(times.high);
    axes(times, 5, "time of a step, ms");
    curve(times, told_.milliseconds, "#136", "#9bd");
    below_ = times.top + times.height;
    losses();
    accuracies();
    modes();
    step_numbers();
    events();
    return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"",
               fixed(below_ + 12, 0), "\" font-family=\"sans-serif\" font-size=\"12\">\n",
               "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", out_.str(), "</svg>\n");
  }

 private:
  double x(int64_t step) const {
    return kLeft +
           kWidth * static_cast<double>(step - first_) / static_cast<double>(last_ - first_);
  }

  // A low panel below what has been drawn.
  Panel next_panel() {
    const Panel panel{below_ + kGap, kLowHeight, 0, 1};
    below_ = panel.top + panel.height;
    return panel;
  }

  void axes(const Panel& panel, int ticks, const std::string& title) {
    for (int i = 0; i <= ticks; ++i) {
      const double value = panel.low + (panel.high - panel.low) * i / ticks;
      out_ << cat("<line x1=\"", kLeft, "\" x2=\"", kLeft + kWidth, "\" y1=\"",
                  fixed(panel.y(value), 1), "\" y2=\"", fixed(panel.y(value), 1),
                  "\" stroke=\"#ddd\"/><text x=\"", kLeft - 6, "\" y=\"",
                  fixed(panel.y(value) + 4, 1), "\" text-anchor=\"end\">", value, "</text>\n");
    }
    out_ << cat("<text x=\"", kLeft, "\" y=\"", fixed(panel.top - 10, 0), "\">", title,
                "</text>\n");
  }

  // Columns of the picture: range and median of the points in each.
  void curve(const Panel& panel, const std::vector<Point>& points, const std::string& color,
             const std::string& range_color) {
    const size_t each = (points.size() + kColumns - 1) / kColumns;
    std::string line, range;
    for (size_t begin = 0; begin < points.size(); begin += each) {
      const size_t end = std::min(begin + each, points.size());
      std::vector<double> values;
      for (size_t i = begin; i < end; ++i) values.push_back(points[i].value);
      std::sort(values.begin(), values.end());
      const std::string at = fixed(x(points[begin].step), 1);
      line += cat(at, ",", fixed(panel.y(values[values.size() / 2]), 1), " ");
      if (each > 1) {
        range += cat("M", at, " ", fixed(panel.y(values.front()), 1), "V",
                     fixed(panel.y(values.back()), 1));
      }
    }
    if (!range.empty()) out_ << cat("<path d=\"", range, "\" stroke=\"", range_color, "\"/>\n");
    out_ << cat("<polyline points=\"", line, "\" fill=\"none\" stroke=\"", color, "\"/>\n");
  }

  // Each point as a dot, joined by a line.
  void dots(const Panel& panel, const std::vector<Point>& points, const std::string& color) {
    curve(panel, points, color, color);
    if (points.size() > kColumns / 4) return;
    for (const Point& point : points) {
      out_ << cat("<circle cx=\"", fixed(x(point.step), 1), "\" cy=\"",
                  fixed(panel.y(point.value), 1), "\" r=\"3\" fill=\"", color, "\"/>\n");
    }
  }

  void losses() {
    if (told_.losses.empty()) return;
    Panel panel = next_panel();
    panel.high = 0;
    for (const auto* points : {&told_.losses, &told_.validation_losses}) {
      for (const Point& point : *points) panel.high = std::max(panel.high, point.value);
    }
    panel.high = round_up(panel.high);
    axes(panel, 2, "loss, nats per target (green: of the held-out data)");
    curve(panel, told_.losses, "#136", "#9bd");
    if (!told_.validation_losses.empty()) dots(panel, told_.validation_losses, "#083");
  }

  void accuracies() {
    if (told_.accuracies.empty()) return;
    Panel panel = next_panel();
    panel.high = 100;
    axes(panel, 2, "right targets of the held-out data, %");
    dots(panel, told_.accuracies, "#083");
  }

  // A band with the sync mode of each step. A mode has its color from the first step on that it
  // has; beyond the colors there are, they repeat.
  void modes() {
    if (told_.modes.empty()) return;
    static constexpr const char* kColors[] = {"#cde", "#fd9", "#cec", "#ecd", "#dcb", "#bdd"};
    const double top = below_ + kGap;
    out_ << cat("<text x=\"", kLeft, "\" y=\"", fixed(top - 10, 0), "\">sync mode</text>\n");
    std::map<std::string, size_t> known;
    for (size_t begin = 0; begin < told_.modes.size();) {
      const std::string& mode = told_.modes[begin].mode;
      size_t end = begin + 1;
      while (end < told_.modes.size() && told_.modes[end].mode == mode) ++end;
      const size_t color = known.try_emplace(mode, known.size()).first->second;
      const double from = x(told_.modes[begin].step);
      const double to = end < told_.modes.size() ? x(told_.modes[end].step) : kLeft + kWidth;
      out_ << cat("<rect x=\"", fixed(from, 1), "\" y=\"", fixed(top, 0), "\" width=\"",
                  fixed(std::max(to - from, 0.5), 1), "\" height=\"", kBand, "\" fill=\"",
                  kColors[color % std::size(kColors)], "\"><title>", escaped(mode), ", from step ",
                  told_.modes[begin].step, "</title></rect>\n");
      if (to - from > kLetter * static_cast<double>(mode.size())) {
        out_ << cat("<text x=\"", fixed(from + 2, 1), "\" y=\"", fixed(top + kBand - 4, 0), "\">",
                    escaped(mode), "</text>\n");
      }
      begin = end;
    }
    below_ = top + kBand;
  }

  void step_numbers() {
    constexpr double kTicks = 10;
    const auto every =
        std::max<int64_t>(1, std::llround(round_up(static_cast<double>(last_ - first_) / kTicks)));
    for (int64_t step = (first_ + every - 1) / every * every; step <= last_; step += every) {
      out_ << cat("<text x=\"", fixed(x(step), 1), "\" y=\"", fixed(below_ + 18, 0),
                  "\" text-anchor=\"middle\">", step, "</text>\n");
    }
    out_ << cat("<text x=\"", kLeft + kWidth, "\" y=\"", fixed(below_ + 34, 0),
                "\" text-anchor=\"end\">step</text>\n");
  }

  // A line through all panels for each event, and their sentences below.
  void events() {
    const double bottom = below_;
    below_ += 48 + kLine;
    for (size_t i = 0; i < told_.happenings.size(); ++i) {
      const Happening& it = told_.happenings[i];
      const std::string color = color_of(it.kind);
      const std::string at = fixed(x(std::clamp(it.step, first_, last_)), 1);
      out_ << cat("<line x1=\"", at, "\" x2=\"", at, "\" y1=\"", kTop, "\" y2=\"", fixed(bottom, 0),
                  "\" stroke=\"", color, "\" stroke-dasharray=\"3 3\"/><text x=\"", at, "\" y=\"",
                  fixed(kTop - 2 + 11.0 * static_cast<double>(i % 3), 1), "\" fill=\"", color,
                  "\">", i + 1, "</text>\n");
      if (i == kMostSentences) {
        out_ << cat("<text x=\"", kLeft, "\" y=\"", fixed(below_, 1), "\">and ",
                    told_.happenings.size() - i, " more, in events.jsonl</text>\n");
        below_ += kLine;
      }
      if (i >= kMostSentences) continue;
      out_ << cat("<text x=\"", kLeft, "\" y=\"", fixed(below_, 1), "\" fill=\"", color, "\">",
                  i + 1, "  step ", it.step, ": ", escaped(it.sentence), "</text>\n");
      below_ += kLine;
    }
  }

  static std::string color_of(const std::string& kind) {
    if (kind == "detection" || kind == "straggler") return "#b50";
    return kind == "fault" || kind == "learning-rate" ? "#a00" : "#070";
  }

  const Told told_;
  int64_t first_ = 0, last_ = 0;
  double below_ = 0;  // where what has been drawn ends
  std::ostringstream out_;
};

void sort_by_step(std::vector<Point>& points) {
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.step < b.step; });
}

void add_number(const Json& json, const char* key, double factor, std::vector<Point>& to) {
  if (!json.contains(key) || !json[key].is_number()) return;
  to.push_back({json["step"].get<int64_t>(), factor * json[key].get<double>()});
}

Result<Told> read_metrics(const std::string& run) {
  Told told;
  const Status read = each_line(run + "/metrics.jsonl", [&](const Json& json) {
    // On a paced device's clock, where there is one.
    const auto has = [&](const char* key) { return json.contains(key) && json[key].is_number(); };
    // If steps overlap, an iteration lasts longer than the time from one step to the next.
    const char* paced = has("period_ms") ? "period_ms" : "iteration_ms";
    add_number(json, has(paced) ? paced : "step_ms", 1, told.milliseconds);
    add_number(json, "loss", 1, told.losses);
    add_number(json, "validation_loss", 1, told.validation_losses);
    constexpr double kPercent = 100;
    add_number(json, "validation_accuracy", kPercent, told.accuracies);
    const std::string mode = text_of(json, "mode");
    if (!mode.empty()) told.modes.push_back({json["step"].get<int64_t>(), mode});
  });
  if (!read.ok()) return read.error();
  for (auto* points :
       {&told.milliseconds, &told.losses, &told.validation_losses, &told.accuracies}) {
    sort_by_step(*points);
  }
  std::sort(told.modes.begin(), told.modes.end(),
            [](const ModeOfStep& a, const ModeOfStep& b) { return a.step < b.step; });
  return told;
}

}  // namespace

Result<std::string> picture_of_steps(const std::string& run) {
  Result<Told> told = read_metrics(run);
  if (!told.ok()) return told.error();
  if (told.value().milliseconds.empty()) {
    return invalid(cat(run, "/metrics.jsonl tells of no step: nothing to draw"));
  }
  std::vector<Happening>& happenings = told.value().happenings;
  static const std::set<std::string> kDrawn = {"fault",  "detection", "decision",
                                               "repair", "straggler", "learning-rate"};
  const Status events = each_line(run + "/events.jsonl", [&](const Json& json) {
    const std::string kind = text_of(json, "event");
    if (kDrawn.count(kind) == 0 || happenings.size() == kMostEvents) return;
    happenings.push_back({json["step"].get<int64_t>(), kind, text_of(json, "reason")});
  });
  if (!events.ok()) return events.error();
  return Picture(std::move(told).value()).draw();
}

}  // namespace tenuto
