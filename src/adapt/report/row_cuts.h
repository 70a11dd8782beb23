// tenuto plan --model --rows: decides into how many micro-batches to cut the rows of a step.
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

// The micro-batches of a step if neither --rows nor --micros is given.
inline constexpr int32_t kDefaultMicros = 8;

// The cuts that the flags allow, fewest rows of a micro-batch first. If two of the three flags are
// given, or --rows is not, there is one. Otherwise these are the cuts whose micro-batches have a
// measured number of rows or one in between; of more than 16 cuts, 16 evenly spread ones.
//
// Errors: Invalid/Call  rows that the given micro-batches do not divide; no cut within the range
Result<std::vector<RowCut>> cuts_of(const ModelProfile& profile, const RowFlags& flags);

// The results for one cut.
struct RowAlternative {
  RowCut cut;
  std::optional<double> in_turn_ms, rows_split_ms;  // no value = no plan
  std::string why_not;                              // a few words if there is no plan
};

// A table with a line for each cut: the steps of both kinds of plans, and which is shorter.
std::string alternatives_text(const std::vector<RowAlternative>& all, const RowCut& chosen);

}  // namespace tenuto
