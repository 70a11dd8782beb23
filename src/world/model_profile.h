// A measured model: what each layer costs at several numbers of rows, as `tenuto profile` measures
// it; read from a JSON file and written to one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unit.h"
#include "world/layer_chain.h"

namespace tenuto {

// One layer.
struct LayerProfile {
  std::string name;
  // For each of ModelProfile::rows: the time of one pass of a micro-batch with that many rows.
  std::vector<Duration> forward, backward_input, backward_weight;
  Duration update{};        // one optimizer step
  Bytes activation, stash;  // of one row: the output, and what is kept from forward to backward
  Bytes parameters;         // of its weights
  // Kept between steps besides the weights: sums, moments, back-ups. No value: not known.
  std::optional<Bytes> optimizer;
  double spread = 0;  // the largest of its times' (upper - lower quartile) / median
};

// The layers, input side first.
struct ModelProfile {
  std::string name;           // of the model, for people
  std::vector<int32_t> rows;  // numbers of rows of a micro-batch that were measured, ascending
  std::vector<LayerProfile> layers;
  Duration op{};  // see Model::op
  Bytes tied;     // see Model::tied
};

// The model at micro-batches of `rows` rows. Times are interpolated linearly between the measured
// numbers of rows. Outside them, they are extrapolated from the two nearest, to at least 0. If only
// one number was measured, times are proportional to the rows.
//
// Requires: rows >= 1
Model model_at(const ModelProfile& profile, int32_t rows);

// The same with the names of the layers.
//
// Errors: check_totals's with `source`
Result<LayerChain> chain_at(const ModelProfile& profile, int32_t rows, const std::string& source);

// Errors: Invalid/Call with `source`, and the line and column or the path of the value: no JSON, an
//         unknown, missing or repeated key, a wrong type, a number out of range, lists of unequal
//         lengths, and what check_totals refuses
Result<ModelProfile> model_profile_from_json(std::string_view text, const std::string& source);

// The profile as the text of a model file.
std::string to_json(const ModelProfile& profile);

}  // namespace tenuto
