#include "run/steps_picture.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "base/cut_text.h"
#include "base/file.h"
#include "base/text.h"

namespace tenuto {
namespace {

using Json = nlohmann::json;

// The picture's measures, in pixels.
constexpr double kLeft = 64, kTop = 24, kWidth = 880, kHeight = 260, kLine = 18;
constexpr size_t kColumns = 880;
constexpr size_t kMostEvents = 1000;  // marked
constexpr size_t kMostSentences = 40;
constexpr size_t kLongest = 150;  // letters of a sentence

struct Step {
  int64_t number = 0;
  double milliseconds = 0;
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

class Picture {
 public:
  Picture(std::vector<Step> steps, std::vector<Happening> happenings)
      : steps_(std::move(steps)), happenings_(std::move(happenings)) {
    first_ = steps_.front().number;
    last_ = std::max(steps_.back().number, first_ + 1);
    for (const Step& step : steps_) most_ = std::max(most_, step.milliseconds);
    most_ = round_up(most_);
  }

  std::string draw() {
    const double height =
        kTop + kHeight + 48 + 12 +
        kLine * static_cast<double>(std::min(happenings_.size(), kMostSentences + 1));
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1000\" height=\"" << fixed(height, 0)
         << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    axes();
    curve();
    events();
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  double x(int64_t step) const {
    return kLeft +
           kWidth * static_cast<double>(step - first_) / static_cast<double>(last_ - first_);
  }
  double y(double milliseconds) const { return kTop + kHeight * (1 - milliseconds / most_); }

  void axes() {
    constexpr int kTicks = 5;
    for (int i = 0; i <= kTicks; ++i) {
      const double value = most_ * i / kTicks;
      out_ << cat("<line x1=\"", kLeft, "\" x2=\"", kLeft + kWidth, "\" y1=\"", fixed(y(value), 1),
                  "\" y2=\"", fixed(y(value), 1), "\" stroke=\"#ddd\"/><text x=\"", kLeft - 6,
                  "\" y=\"", fixed(y(value) + 4, 1), "\" text-anchor=\"end\">", value, "</text>\n");
    }
    const auto every = std::max<int64_t>(
        1, std::llround(round_up(static_cast<double>(last_ - first_) / (2 * kTicks))));
    for (int64_t step = (first_ + every - 1) / every * every; step <= last_; step += every) {
      out_ << cat("<text x=\"", fixed(x(step), 1), "\" y=\"", kTop + kHeight + 18,
                  "\" text-anchor=\"middle\">", step, "</text>\n");
    }
    out_ << cat("<text x=\"", kLeft, "\" y=\"14\">time of a step, ms</text><text x=\"",
                kLeft + kWidth, "\" y=\"", kTop + kHeight + 34,
                "\" text-anchor=\"end\">step</text>\n");
  }

  // Columns of the picture: range and median of the steps in each.
  void curve() {
    const size_t each = (steps_.size() + kColumns - 1) / kColumns;
    std::string points, range;
    for (size_t begin = 0; begin < steps_.size(); begin += each) {
      const size_t end = std::min(begin + each, steps_.size());
      std::vector<double> times;
      for (size_t i = begin; i < end; ++i) times.push_back(steps_[i].milliseconds);
      std::sort(times.begin(), times.end());
      const std::string at = fixed(x(steps_[begin].number), 1);
      points += cat(at, ",", fixed(y(times[times.size() / 2]), 1), " ");
      if (each > 1) {
        range += cat("M", at, " ", fixed(y(times.front()), 1), "V", fixed(y(times.back()), 1));
      }
    }
    if (!range.empty()) out_ << cat("<path d=\"", range, "\" stroke=\"#9bd\"/>\n");
    out_ << cat("<polyline points=\"", points, "\" fill=\"none\" stroke=\"#136\"/>\n");
  }

  void events() {
    double below = kTop + kHeight + 48 + kLine;
    for (size_t i = 0; i < happenings_.size(); ++i) {
      const Happening& it = happenings_[i];
      const char* color = it.kind == "detection" ? "#b50" : it.kind == "fault" ? "#a00" : "#070";
      const std::string at = fixed(x(std::clamp(it.step, first_, last_)), 1);
      out_ << cat("<line x1=\"", at, "\" x2=\"", at, "\" y1=\"", kTop, "\" y2=\"", kTop + kHeight,
                  "\" stroke=\"", color, "\" stroke-dasharray=\"3 3\"/><text x=\"", at, "\" y=\"",
                  fixed(kTop - 2 + 11.0 * static_cast<double>(i % 3), 1), "\" fill=\"", color,
                  "\">", i + 1, "</text>\n");
      if (i == kMostSentences) {
        out_ << cat("<text x=\"", kLeft, "\" y=\"", fixed(below, 1), "\">and ",
                    happenings_.size() - i, " more, in events.jsonl</text>\n");
      }
      if (i >= kMostSentences) continue;
      out_ << cat("<text x=\"", kLeft, "\" y=\"", fixed(below, 1), "\" fill=\"", color, "\">",
                  i + 1, "  step ", it.step, ": ", escaped(it.sentence), "</text>\n");
      below += kLine;
    }
  }

  std::vector<Step> steps_;
  std::vector<Happening> happenings_;
  int64_t first_ = 0, last_ = 0;
  double most_ = 0;
  std::ostringstream out_;
};

}  // namespace

Result<std::string> picture_of_steps(const std::string& run) {
  std::vector<Step> steps;
  const Status metrics = each_line(run + "/metrics.jsonl", [&](const Json& json) {
    // On a paced device's clock, where there is one.
    for (const char* key : {"iteration_ms", "step_ms"}) {
      if (!json.contains(key) || !json[key].is_number()) continue;
      steps.push_back({json["step"].get<int64_t>(), json[key].get<double>()});
      return;
    }
  });
  if (!metrics.ok()) return metrics.error();
  if (steps.empty()) return invalid(cat(run, "/metrics.jsonl tells of no step: nothing to draw"));
  std::sort(steps.begin(), steps.end(),
            [](const Step& a, const Step& b) { return a.number < b.number; });
  std::vector<Happening> happenings;
  const Status events = each_line(run + "/events.jsonl", [&](const Json& json) {
    const std::string kind = text_of(json, "event");
    const bool drawn =
        kind == "fault" || kind == "detection" || kind == "decision" || kind == "repair";
    if (!drawn) return;
    if (happenings.size() == kMostEvents) return;
    happenings.push_back({json["step"].get<int64_t>(), kind, text_of(json, "reason")});
  });
  if (!events.ok()) return events.error();
  return Picture(std::move(steps), std::move(happenings)).draw();
}

}  // namespace tenuto
