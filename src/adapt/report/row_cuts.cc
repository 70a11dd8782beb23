#include "adapt/report/row_cuts.h"

#include <algorithm>

#include "base/text.h"

namespace tenuto {

namespace {

constexpr size_t kMostCuts = 16;

// `rows` divided by `divisor`, which is the value of `flag`.
Result<int32_t> divided(int32_t rows, int32_t divisor, const char* flag) {
  if (rows % divisor == 0) return rows / divisor;
  return invalid(cat(flag, " ", divisor, ": expected a number that divides the ", rows,
                     " rows of a step (--rows)"));
}

// Chooses at most kMostCuts cuts, always with the first and the last one.
std::vector<RowCut> some_of(const std::vector<RowCut>& all) {
  if (all.size() <= kMostCuts) return all;
  std::vector<RowCut> some;
  for (size_t i = 0; i < kMostCuts; ++i) {
    some.push_back(all[i * (all.size() - 1) / (kMostCuts - 1)]);
  }
  return some;
}

std::string milliseconds(const std::optional<double>& time) {
  return time ? fixed(*time, 3) : std::string("-");
}

std::string padded(const std::string& text, size_t width) {
  return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
}

}  // namespace

Result<std::vector<RowCut>> cuts_of(const ModelProfile& profile, const RowFlags& flags) {
  if (!flags.rows) {
    return std::vector<RowCut>{
        {flags.micro_rows.value_or(profile.rows.back()), flags.micros.value_or(kDefaultMicros)}};
  }
  const int32_t rows = *flags.rows;
  if (flags.micro_rows) {
    const auto micros = divided(rows, *flags.micro_rows, "--micro-rows");
    if (!micros.ok()) return micros.error();
    if (flags.micros && *flags.micros != micros.value()) {
      return invalid(cat("--micros ", *flags.micros, ": ", rows, " rows in micro-batches of ",
                         *flags.micro_rows, " rows make ", micros.value(),
                         ": leave one of the three flags out"));
    }
    return std::vector<RowCut>{{*flags.micro_rows, micros.value()}};
  }
  if (flags.micros) {
    const auto each = divided(rows, *flags.micros, "--micros");
    if (!each.ok()) return each.error();
    return std::vector<RowCut>{{each.value(), *flags.micros}};
  }
  std::vector<RowCut> all;
  const int32_t least = profile.rows.front(), most = profile.rows.back();
  for (int32_t each = least; each <= std::min(most, rows); ++each) {
    if (rows % each == 0) all.push_back({each, rows / each});
  }
  if (!all.empty()) return some_of(all);
  return invalid(cat("--rows ", rows, ": no micro-batch of ", least, " to ", most,
                     " rows, which the model file has times for, divides them; give another number "
                     "of rows, or --micro-rows"));
}

std::string alternatives_text(const std::vector<RowAlternative>& all, const RowCut& chosen) {
  std::string text = cat("micro-batch ", chosen.micro_rows, " rows, ", chosen.micros,
                         " of them a step: the shortest step of a plan that trains\n\n",
                         "rows  micro-batches  in turn ms  split rows ms  shorter\n");
  for (const RowAlternative& it : all) {
    std::string words = it.why_not;
    if (it.in_turn_ms && it.rows_split_ms) {
      words = *it.in_turn_ms <= *it.rows_split_ms ? "whole micro-batches in turn" : "split rows";
    }
    if (it.cut.micro_rows == chosen.micro_rows) words += ", chosen";
    text += cat(padded(cat(it.cut.micro_rows), 4), padded(cat(it.cut.micros), 15),
                padded(milliseconds(it.in_turn_ms), 12), padded(milliseconds(it.rows_split_ms), 15),
                "  ", words, "\n");
  }
  return text + "\n";
}

}  // namespace tenuto
