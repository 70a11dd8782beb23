// The text of a chooser file, written and read.
#include <cmath>
#include <optional>

#include "base/text.h"
#include "sync/chooser_model.h"
#include "world/line_reading.h"

namespace tenuto {

namespace {

constexpr std::string_view kTitle = "tenuto chooser 1";
constexpr int64_t kMostOutcomes = 1'000'000'000;
constexpr size_t kHeaderLines = 3, kLines = kHeaderLines + 2 * kSyncKinds;

// The name of a kind: a mode's text without its figures.
std::string name_of(size_t kind) {
  SyncMode mode;
  mode.kind = static_cast<SyncKind>(kind);
  const std::string text = to_text(mode);
  return text.substr(0, text.find(':'));
}

std::string weights_text(const KindWeights::Weights& weights) {
  std::string text;
  for (const double weight : weights) text += cat(" ", weight);
  return text + "\n";
}

// The word as a whole number within the limits, or nothing.
std::optional<int64_t> whole_number(std::string_view word, int64_t least, int64_t most) {
  const std::optional<double> number = finite_number(word);
  if (!number || *number < static_cast<double>(least) || *number > static_cast<double>(most) ||
      *number != std::floor(*number)) {
    return {};
  }
  return static_cast<int64_t>(*number);
}

Result<int32_t> replicas_of(const LinePiece& line, std::string_view source, int32_t expected) {
  const std::vector<LinePiece> words = words_of(line, 3);
  if (words.size() != 2 || words[0].text != "replicas") {
    return error_at(source, line, cat("expected 'replicas W'", found_text(line.text)));
  }
  const auto count = whole_number(words[1].text, 2, kMostReplicas);
  if (!count) {
    return error_at(source, words[1],
                    cat("expected 2 to ", kMostReplicas, " replicas", found_text(words[1].text)));
  }
  if (*count != expected) {
    return error_at(source, words[1],
                    cat("expected a chooser for ", expected, " replicas", found_text(words[1].text),
                        "; train one for this number"));
  }
  return expected;
}

Result<Gain> gain_of(const LinePiece& line, std::string_view source) {
  const std::vector<LinePiece> words = words_of(line, 5);
  if (words.size() == 4 && words[0].text == "held-out") {
    const auto outcomes = whole_number(words[1].text, 0, kMostOutcomes);
    const auto mean = finite_number(words[2].text), error = finite_number(words[3].text);
    if (outcomes && mean && error && *error >= 0) return Gain{*outcomes, *mean, *error};
  }
  return error_at(source, line,
                  cat("expected 'held-out', a number of outcomes, a mean gain and an error of at "
                      "least 0",
                      found_text(line.text)));
}

Result<KindWeights::Weights> weights_of(const LinePiece& line, std::string_view source,
                                        const std::string& kind, std::string_view part) {
  const std::vector<LinePiece> words = words_of(line, kChooserFeatures + 3);
  if (words.size() != kChooserFeatures + 2 || words[0].text != kind || words[1].text != part) {
    return error_at(source, line,
                    cat("expected '", kind, " ", part, "' and ", kChooserFeatures, " weights",
                        found_text(line.text)));
  }
  KindWeights::Weights weights{};
  for (size_t i = 0; i < kChooserFeatures; ++i) {
    const LinePiece& word = words[i + 2];
    const std::optional<double> weight = finite_number(word.text);
    if (!weight || std::abs(*weight) > static_cast<double>(kMostChooserWeight)) {
      return error_at(source, word,
                      cat("expected a weight from -", kMostChooserWeight, " to ",
                          kMostChooserWeight, found_text(word.text)));
    }
    weights[i] = *weight;
  }
  return weights;
}

}  // namespace

std::string to_text(const ChooserModel& model) {
  const Gain& gain = model.held_out;
  std::string text = cat(kTitle, "\nreplicas ", model.replicas, "\nheld-out ", gain.outcomes, " ",
                         gain.mean, " ", gain.error, "\n");
  for (size_t kind = 0; kind < kSyncKinds; ++kind) {
    text += cat(name_of(kind), " rate", weights_text(model.kinds[kind].rate));
    text += cat(name_of(kind), " age", weights_text(model.kinds[kind].age));
  }
  return text;
}

Result<ChooserModel> chooser_from_text(std::string_view text, std::string_view source,
                                       int32_t replicas) {
  const std::vector<LinePiece> lines = lines_of(text);
  if (lines.empty()) return invalid(cat(source, ": expected '", kTitle, "', found nothing"));
  if (lines.front().text != kTitle) {
    return error_at(source, lines.front(),
                    cat("expected '", kTitle, "'", found_text(lines.front().text)));
  }
  if (lines.size() != kLines) {
    return invalid(cat(source, ": expected ", kLines, " lines, found ", lines.size()));
  }
  ChooserModel model;
  const auto count = replicas_of(lines[1], source, replicas);
  if (!count.ok()) return count.error();
  model.replicas = count.value();
  const auto gain = gain_of(lines[2], source);
  if (!gain.ok()) return gain.error();
  model.held_out = gain.value();
  for (size_t kind = 0; kind < kSyncKinds; ++kind) {
    const size_t at = kHeaderLines + 2 * kind;
    const auto rate = weights_of(lines[at], source, name_of(kind), "rate");
    if (!rate.ok()) return rate.error();
    const auto age = weights_of(lines[at + 1], source, name_of(kind), "age");
    if (!age.ok()) return age.error();
    model.kinds[kind] = {rate.value(), age.value()};
  }
  return model;
}

}  // namespace tenuto
