#include "world/fault_trace.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/cut_text.h"
#include "base/text.h"

namespace tenuto {

namespace {

constexpr int64_t kMostSteps = 1'000'000'000'000;
constexpr double kMostMilliseconds = 1e9;

// A piece of a line and where it begins, from 1.
struct Piece {
  std::string_view text;
  size_t column = 1;
};

Piece trimmed(Piece it) {
  const auto blank = [](char letter) { return letter == ' ' || letter == '\t' || letter == '\r'; };
  while (!it.text.empty() && blank(it.text.front())) {
    it.text.remove_prefix(1);
    ++it.column;
  }
  while (!it.text.empty() && blank(it.text.back())) it.text.remove_suffix(1);
  return it;
}

// The parts between `separator`s, each without blanks around it.
std::vector<Piece> split(Piece whole, char separator) {
  std::vector<Piece> parts;
  while (true) {
    const size_t end = whole.text.find(separator);
    parts.push_back(trimmed({whole.text.substr(0, end), whole.column}));
    if (end == std::string_view::npos) return parts;
    whole.text.remove_prefix(end + 1);
    whole.column += end + 1;
  }
}

template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

// Reads a trace line by line.
class Trace {
 public:
  explicit Trace(const std::string& source) : source_(source) {}

  Status take(std::string_view text, int64_t line) {
    line_ = line;
    const Piece whole = trimmed({text.substr(0, text.find('#')), 1});
    if (whole.text.empty()) return ok();
    const std::vector<Piece> fields = split(whole, ';');
    const auto step = number_of<int64_t>(fields[0].text);
    if (!step || *step < 0 || *step > kMostSteps) {
      return refuse(fields[0], "expected a step, a whole number in [0, 1e+12]");
    }
    if (*step <= last_) return refuse(fields[0], cat("expected a step after ", last_));
    last_ = *step;
    const bool breaks = fields.size() == 3 && fields[2].text == "break";
    if (!breaks) end_all(*step);
    if (fields.size() == 2 && fields[1].text == "off") return ok();
    if (fields.size() != 3) {
      return refuse(whole, "expected step;links;delay_ms, step;links;break or step;off");
    }
    TracedFault traced;
    traced.line = line;
    traced.fault.at_step = *step;
    if (breaks) {
      traced.fault.kind = "broken-connection";
    } else {
      const auto delay = number_of<double>(fields[2].text);
      if (!delay || !std::isfinite(*delay) || *delay <= 0 || *delay > kMostMilliseconds) {
        return refuse(fields[2],
                      "expected a delay in milliseconds, a number in (0, 1e+09], or break");
      }
      traced.fault.latency_ms = *delay;
    }
    return take_links(fields[1], std::move(traced));
  }

  std::vector<TracedFault> faults() && { return std::move(faults_); }

 private:
  // Adds the fault once for each link.
  Status take_links(const Piece& links, TracedFault traced) {
    for (const Piece& link : split(links, ',')) {
      const std::vector<Piece> ends = split(link, '_');
      const auto before = number_of<int32_t>(ends[0].text);
      const auto behind = ends.size() == 2 ? number_of<int32_t>(ends[1].text) : std::nullopt;
      if (!before || !behind || *before < 0 || *before > 16383 || *behind != *before + 1) {
        return refuse(link, "expected a link between two neighbouring stages, such as 2_3");
      }
      traced.column = static_cast<int64_t>(link.column);
      traced.fault.link = *before;
      faults_.push_back(traced);
    }
    return ok();
  }

  // Ends the slow links in force: the next line of slow links, or `off`, replaces them.
  void end_all(int64_t step) {
    for (; open_ < faults_.size(); ++open_) {
      Fault& fault = faults_[open_].fault;
      if (lasts(fault)) fault.until_step = step;
    }
  }

  Error refuse(const Piece& found, const std::string& sentence) const {
    return invalid(cat(source_, ":", line_, ":", found.column, ": ", sentence, ", found \"",
                       found.text.substr(0, cut_of(found.text, 40)), "\""));
  }

  const std::string& source_;
  int64_t line_ = 0;
  int64_t last_ = -1;
  size_t open_ = 0;  // faults from here on have no end yet
  std::vector<TracedFault> faults_;
};

}  // namespace

Result<std::vector<TracedFault>> read_fault_trace(const std::string& text,
                                                  const std::string& source) {
  Trace trace(source);
  std::string_view rest = text;
  for (int64_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    if (const Status taken = trace.take(rest.substr(0, end), line); !taken.ok()) {
      return taken.error();
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return std::move(trace).faults();
}

}  // namespace tenuto
