// A model as a measured chain of layers, read from a file.
//
// One layer per line, the input side first: `forward_ms backward_ms activation_bytes
// parameter_bytes name`, all of a whole micro-batch on one device of speed 1. Blank lines and lines
// that begin with # are ignored; the name is the rest of the line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "world/model.h"

namespace tenuto {

// The most layers of a chain, and the most nodes of a graph that becomes one.
inline constexpr int32_t kMostChainLayers = 100'000;

// A model and the names of its layers. The whole backward of a layer is its backward_input.
struct LayerChain {
  Model model;
  std::vector<std::string> names;
  // What a device keeps between steps besides the weights of each layer: sums of gradients,
  // moments, back-ups. No value: not known. Empty: not known of any layer.
  std::vector<std::optional<Bytes>> optimizer;
  int32_t rows = 0;  // of a micro-batch; 0 = the file does not say
};

// Errors: Invalid/Call with `source`, line and column for a line that is no layer, and with
//         `source` for the chains that check_totals refuses
Result<LayerChain> chain_from_text(std::string_view text, const std::string& source);

// Reads a file in one of three forms, which it recognizes by the content: a chain, a graph
// (world/profile_graph.h) or a model file (world/model_profile.h). A model file is read at
// micro-batches of `rows` rows, 0 = the largest number that was measured. The other two forms
// describe whole micro-batches, so `rows` is ignored.
Result<LayerChain> load_chain(const std::string& path, int32_t rows = 0);

// Refuses a chain that no one can plan with: no layer, too many layers, no layer that takes time,
// or sums of times or bytes that are too large to be counted.
//
// Errors: Invalid/Call with `source`
Status check_totals(const LayerChain& chain, const std::string& source);

}  // namespace tenuto
