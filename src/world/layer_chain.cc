#include "world/layer_chain.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/file.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "ir/plan.h"
#include "world/line_reading.h"
#include "world/model_profile.h"
#include "world/profile_graph.h"

namespace tenuto {

namespace {

constexpr std::string_view kForm = "'forward_ms backward_ms activation_bytes parameter_bytes name'";
// A line of a graph has some 200 letters, and some graphs have long descriptions of their nodes.
constexpr int64_t kMostFile = int64_t{1} << 27;

// The columns of a line before its name.
struct Column {
  std::string_view name, unit;
  double most = 0;
};
const std::array<Column, 4>& columns() {
  static const double most_ms = to_milliseconds(kLongestTime);
  static const auto most_bytes = static_cast<double>(kMostMemory);
  static const std::array<Column, 4> all{{{"forward_ms", "milliseconds", most_ms},
                                          {"backward_ms", "milliseconds", most_ms},
                                          {"activation_bytes", "bytes", most_bytes},
                                          {"parameter_bytes", "bytes", most_bytes}}};
  return all;
}

Result<double> column_value(const LinePiece& word, const Column& column,
                            const std::string& source) {
  const auto number = finite_number(word.text);
  if (number && *number >= 0 && *number <= column.most) return *number;
  return error_at(source, word,
                  cat("expected ", column.name, ", ", column.unit, " from 0 to ", column.most,
                      found_text(word.text)));
}

}  // namespace

Status check_totals(const LayerChain& chain, const std::string& source) {
  const std::vector<Layer>& layers = chain.model.layers;
  if (layers.empty()) {
    return invalid(cat(source, ": expected a layer on each line, ", kForm, ", found none"));
  }
  if (layers.size() > static_cast<size_t>(kMostChainLayers)) {
    return invalid(cat(source, ": expected ", kMostChainLayers, " layers at most, found ",
                       layers.size(), "; join neighbouring layers"));
  }
  double time = 0, bytes = 0;
  for (const Layer& layer : layers) {
    for (const Duration part : {layer.forward, layer.backward_input, layer.backward_weight}) {
      time += static_cast<double>(part.count());
    }
    bytes += static_cast<double>(layer.activation.count) + static_cast<double>(layer.stash.count) +
             static_cast<double>(layer.parameters.count);
  }
  for (const std::optional<Bytes>& kept : chain.optimizer) {
    bytes += static_cast<double>(kept.value_or(Bytes{}).count);
  }
  if (time == 0) {
    return invalid(cat(source, ": expected a layer that takes time, found forward and backward ",
                       "times of 0 ms in every layer"));
  }
  // At worst each layer is a stage of its own, and each stage has two ops with this cost.
  double beside =
      2.0 * static_cast<double>(layers.size()) * static_cast<double>(chain.model.op.count());
  for (const Layer& layer : layers) beside += static_cast<double>(layer.update.count());
  if (time + beside >= static_cast<double>(kLongestTime.count())) {
    return invalid(cat(source, ": the layers together take longer than 73 years, the longest time ",
                       "that tenuto can count; are the times in milliseconds?"));
  }
  if (bytes > static_cast<double>(kMostMemory)) {
    return invalid(cat(source, ": the layers together have more than ", kMostMemory,
                       " bytes of activations and parameters; are the sizes in bytes?"));
  }
  return ok();
}

Result<LayerChain> chain_from_text(std::string_view text, const std::string& source) {
  LayerChain chain;
  for (const LinePiece& line : lines_of(text)) {
    const std::vector<LinePiece> words = words_of(line, columns().size() + 1);
    std::array<double, 4> values{};
    for (size_t i = 0; i < std::min(words.size(), values.size()); ++i) {
      const auto value = column_value(words[i], columns()[i], source);
      if (!value.ok()) return value.error();
      values[i] = value.value();
    }
    if (words.size() <= values.size()) {
      return error_at(source, line,
                      cat("expected ", kForm, ", found ", words.size(), " of these 5 fields"));
    }
    Layer layer;
    layer.forward = from_milliseconds(values[0]);
    layer.backward_input = from_milliseconds(values[1]);
    layer.activation = layer.stash = {std::llround(values[2])};
    layer.parameters = {std::llround(values[3])};
    chain.model.layers.push_back(layer);
    chain.names.emplace_back(words[4].text);
  }
  if (const Status status = check_totals(chain, source); !status.ok()) return status.error();
  return chain;
}

Result<LayerChain> load_chain(const std::string& path, int32_t rows) {
  const auto text = read_file(path, kMostFile);
  if (!text.ok()) return text.error();
  const size_t begin = text.value().find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && text.value()[begin] == '{') {
    const auto profile = model_profile_from_json(text.value(), path);
    if (!profile.ok()) return profile.error();
    return chain_at(profile.value(), rows > 0 ? rows : profile.value().rows.back(), path);
  }
  return is_profile_graph(text.value()) ? chain_from_profile_graph(text.value(), path)
                                        : chain_from_text(text.value(), path);
}

}  // namespace tenuto
