// tenuto plan --model --rows: into how many micro-batches a step's rows are cut.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "world/model_profile.h"

namespace tenuto {

// A way to cut a step's rows.
struct RowCut {
  int32_t micro_rows = 0, micros = 0;
};

// What the flags say about rows; nothing = not given.
struct RowFlags {
  std::optional<int32_t> rows;        // of a step
  std::optional<int32_t> micro_rows;  // of a micro-batch
  std::optional<int32_t> micros;
};

// The micro-batches of a step if neither rows nor micro-batches are given.
inline constexpr int32_t kDefaultMicros = 8;

// The cuts that the flags leave open, fewest rows first: one if two of the three are given, or if
// the step's rows are not. Else those whose micro-batches have a number of rows within the range
// that was measured; at most 16 of them, of similar ratios.
//
// Errors: Invalid/Call  rows that the given micro-batches do not divide; no cut within the range
Result<std::vector<RowCut>> cuts_of(const ModelProfile& profile, const RowFlags& flags);

// What was found for a cut.
struct RowAlternative {
  RowCut cut;
  std::optional<double> in_turn_ms, rows_split_ms;  // nothing = no plan
  std::string why_not;                              // no plan: why; a few words
};

// Some lines: each alternative with the steps of both models and which is shorter.
std::string alternatives_text(const std::vector<RowAlternative>& all, const RowCut& chosen);

}  // namespace tenuto
