#include "outlook/trouble_file.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/longest_time.h"
#include "base/number.h"
#include "base/sentence.h"
#include "base/text.h"

namespace tenuto::outlook {

namespace {

constexpr size_t kFields = 5;
constexpr int64_t kMostSeconds = 1'000'000'000;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// One line of the file.
class Line {
 public:
  Line(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

  Result<Trouble> read(const ClusterShape& shape) {
    if (!split()) {
      return expected(cat("the ", kFields, " fields ", kTroubleHead), text_);
    }
    Trouble trouble;
    const auto begin = number(fields_[0], 0, kMostSeconds);
    if (!begin) return expected(cat("time_s, seconds from 0 to ", kMostSeconds), fields_[0]);
    trouble.begin = from_nanoseconds(*begin * 1e9);
    const auto kind = kind_of(fields_[1]);
    if (!kind) return expected("the kind dead-worker, slow-worker or slow-link", fields_[1]);
    trouble.kind = *kind;
    if (!read_target(shape, trouble)) return expected(targets(shape, *kind), fields_[2]);
    if (trouble.kind == TroubleKind::DeadWorker) {
      if (!fields_[3].empty()) return expected("no factor for a dead worker", fields_[3]);
    } else {
      const auto factor = number(fields_[3], 1, kMostFactor);
      if (!factor) return expected(cat("factor, a number from 1 to ", kMostFactor), fields_[3]);
      trouble.factor = *factor;
    }
    trouble.end = kLongestTime;
    if (!fields_[4].empty()) {
      const auto lasts = number(fields_[4], 0, kMostSeconds);
      if (!lasts) {
        return expected(cat("duration_s, seconds from 0 to ", kMostSeconds, " or nothing"),
                        fields_[4]);
      }
      trouble.end = plus(trouble.begin, from_nanoseconds(*lasts * 1e9));
    }
    return trouble;
  }

 private:
  Error expected(const std::string& what, std::string_view found) const {
    return invalid(cat(where_, ": expected ", what, ", found '", excerpt(found), "'"));
  }

  bool split() {
    std::string_view left = text_;
    for (size_t i = 0; i < kFields; ++i) {
      const size_t comma = left.find(',');
      if ((comma == std::string_view::npos) != (i + 1 == kFields)) return false;
      fields_[i] = trimmed(left.substr(0, comma));
      if (comma != std::string_view::npos) left.remove_prefix(comma + 1);
    }
    return true;
  }

  static std::optional<double> number(std::string_view text, int64_t low, int64_t high) {
    const auto value = number_in<double>(text);
    const auto least = static_cast<double>(low), most = static_cast<double>(high);
    if (!value || !(*value >= least && *value <= most)) return {};
    return value;
  }

  static std::optional<TroubleKind> kind_of(std::string_view text) {
    for (const TroubleKind kind :
         {TroubleKind::DeadWorker, TroubleKind::SlowWorker, TroubleKind::SlowLink}) {
      if (name_of(kind) == text) return kind;
    }
    return {};
  }

  static int32_t stages_of(const ClusterShape& shape, TroubleKind kind) {
    return kind == TroubleKind::SlowLink ? shape.stages - 1 : shape.stages;
  }

  static std::string targets(const ClusterShape& shape, TroubleKind kind) {
    const int32_t stages = stages_of(shape, kind);
    if (stages == 0) return "no slow link, because pipelines of one stage have no links";
    return cat("the target P.S with a pipeline from 0 to ", shape.pipelines - 1,
               " and a stage from 0 to ", stages - 1);
  }

  bool read_target(const ClusterShape& shape, Trouble& trouble) const {
    const size_t dot = fields_[2].find('.');
    if (dot == std::string_view::npos) return false;
    const auto pipeline = number_in<int32_t>(fields_[2].substr(0, dot));
    const auto stage = number_in<int32_t>(fields_[2].substr(dot + 1));
    if (!pipeline || !stage) return false;
    trouble.pipeline = *pipeline;
    trouble.stage = *stage;
    return *pipeline >= 0 && *pipeline < shape.pipelines && *stage >= 0 &&
           *stage < stages_of(shape, trouble.kind);
  }

  std::string_view text_;
  std::string where_;
  std::array<std::string_view, kFields> fields_{};
};

}  // namespace

Result<std::vector<Trouble>> read_troubles(std::string_view text, const std::string& name,
                                           const ClusterShape& shape) {
  std::vector<Trouble> troubles;
  bool headed = false;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (!headed) {
      if (line != kTroubleHead) {
        return invalid(cat(name, ":", number, ": expected the head ", kTroubleHead, ", found '",
                           excerpt(line), "'"));
      }
      headed = true;
      continue;
    }
    const auto trouble = Line(line, cat(name, ":", number)).read(shape);
    if (!trouble.ok()) return trouble.error();
    troubles.push_back(trouble.value());
  }
  if (!headed) {
    return invalid(cat(name, ": expected the head ", kTroubleHead, ", found an empty file"));
  }
  std::stable_sort(troubles.begin(), troubles.end(),
                   [](const Trouble& a, const Trouble& b) { return a.begin < b.begin; });
  return troubles;
}

}  // namespace tenuto::outlook
