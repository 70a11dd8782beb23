#include "world/model_profile.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/longest_time.h"
#include "base/text.h"
#include "ir/plan.h"
#include "world/json_reading.h"

namespace tenuto {

namespace {

// The object has a list of layers; a layer has lists of times.
constexpr int kMostDepth = 4;
constexpr int32_t kMostRows = 1'000'000;
constexpr size_t kMostMeasured = 1'000;

const NumberKey& milliseconds() {
  static const NumberKey key{"milliseconds", 0, to_milliseconds(kLongestTime)};
  return key;
}
const NumberKey kBytes{"bytes", 0, static_cast<double>(kMostMemory)};
const NumberKey kSpread{"a share", 0, 1e6};

class ProfileReader {
 public:
  explicit ProfileReader(const std::string& source) : reading_(source) {}

  Result<ModelProfile> read(const Json& tree) {
    reading_.check_keys(tree, "", {"rows", "layers"}, {"name", "op_ms", "tied_bytes"});
    if (failed()) return *reading_.error();
    if (tree.contains("name")) profile_.name = reading_.text(tree["name"], "name");
    read_rows(tree["rows"]);
    if (tree.contains("op_ms")) profile_.op = time(tree["op_ms"], "op_ms");
    if (tree.contains("tied_bytes")) profile_.tied = bytes(tree["tied_bytes"], "tied_bytes");
    read_layers(tree["layers"]);
    if (!failed()) check_tied();
    if (failed()) return *reading_.error();
    return std::move(profile_);
  }

 private:
  bool failed() const { return reading_.error().has_value(); }

  Duration time(const Json& tree, const std::string& place) {
    return from_milliseconds(reading_.number(tree, place, milliseconds()));
  }

  Bytes bytes(const Json& tree, const std::string& place) {
    return {std::llround(reading_.number(tree, place, kBytes))};
  }

  void read_rows(const Json& tree) {
    if (failed()) return;
    if (!tree.is_array() || tree.empty() || tree.size() > kMostMeasured) {
      reading_.refuse_value("rows", cat("a list of 1 to ", kMostMeasured, " numbers of rows"),
                            tree);
      return;
    }
    for (size_t i = 0; i < tree.size() && !failed(); ++i) {
      const std::string place = cat("rows[", i, "]");
      const int32_t rows = reading_.whole_number(tree[i], place, kMostRows);
      if (!failed() && !profile_.rows.empty() && rows <= profile_.rows.back()) {
        reading_.refuse_value(place, cat("more than ", profile_.rows.back(), ", the one before it"),
                              tree[i]);
      }
      profile_.rows.push_back(rows);
    }
  }

  std::vector<Duration> times(const Json& tree, const std::string& place) {
    std::vector<Duration> all;
    if (failed()) return all;
    if (!tree.is_array() || tree.size() != profile_.rows.size()) {
      reading_.refuse_value(
          place, cat("a list of ", profile_.rows.size(), " numbers, one for each of ", "rows"),
          tree);
      return all;
    }
    for (size_t i = 0; i < tree.size() && !failed(); ++i) {
      all.push_back(time(tree[i], cat(place, "[", i, "]")));
    }
    return all;
  }

  LayerProfile layer(const Json& tree, const std::string& place) {
    reading_.check_keys(tree, place,
                        {"name", "forward_ms", "backward_input_ms", "backward_weight_ms",
                         "activation_bytes", "stash_bytes", "parameter_bytes"},
                        {"update_ms", "optimizer_bytes", "spread"});
    LayerProfile layer;
    if (failed()) return layer;
    const auto at = [&place](const char* key) { return cat(place, ".", key); };
    layer.name = reading_.text(tree["name"], at("name"));
    layer.forward = times(tree["forward_ms"], at("forward_ms"));
    layer.backward_input = times(tree["backward_input_ms"], at("backward_input_ms"));
    layer.backward_weight = times(tree["backward_weight_ms"], at("backward_weight_ms"));
    layer.activation = bytes(tree["activation_bytes"], at("activation_bytes"));
    layer.stash = bytes(tree["stash_bytes"], at("stash_bytes"));
    layer.parameters = bytes(tree["parameter_bytes"], at("parameter_bytes"));
    if (tree.contains("update_ms")) layer.update = time(tree["update_ms"], at("update_ms"));
    if (tree.contains("optimizer_bytes")) {
      layer.optimizer = bytes(tree["optimizer_bytes"], at("optimizer_bytes"));
    }
    if (tree.contains("spread")) {
      layer.spread = reading_.number(tree["spread"], at("spread"), kSpread);
    }
    return layer;
  }

  void read_layers(const Json& tree) {
    if (failed()) return;
    if (!tree.is_array() || tree.empty()) {
      reading_.refuse_value("layers", "a list of layers, the input side first", tree);
      return;
    }
    if (tree.size() > static_cast<size_t>(kMostChainLayers)) {
      reading_.refuse_value("layers", cat("at most ", kMostChainLayers, " layers"), tree);
      return;
    }
    for (size_t i = 0; i < tree.size() && !failed(); ++i) {
      profile_.layers.push_back(layer(tree[i], cat("layers[", i, "]")));
    }
  }

  // The tied weight is counted in the parameters of the first layer and of the last.
  void check_tied() {
    if (profile_.layers.empty()) return;
    const Bytes most =
        std::min(profile_.layers.front().parameters, profile_.layers.back().parameters);
    if (profile_.tied <= most) return;
    reading_.refuse("tied_bytes", cat("expected at most ", most.count,
                                      ", the parameter_bytes of the first layer and of the last, ",
                                      "which share this weight, found ", profile_.tied.count));
  }

  JsonReading reading_;
  ModelProfile profile_;
};

// The time at `rows` rows, by linear interpolation between the measured times.
Duration time_at(const std::vector<int32_t>& measured, const std::vector<Duration>& times,
                 int32_t rows) {
  const auto nanoseconds = [&](size_t i) { return static_cast<double>(times[i].count()); };
  if (measured.size() == 1) return from_nanoseconds(nanoseconds(0) * rows / measured[0]);
  const auto found = std::lower_bound(measured.begin(), measured.end(), rows);
  if (found != measured.end() && *found == rows) {
    return times[static_cast<size_t>(found - measured.begin())];
  }
  const size_t behind =
      std::clamp<size_t>(static_cast<size_t>(found - measured.begin()), 1, measured.size() - 1);
  const double before = nanoseconds(behind - 1), width = measured[behind] - measured[behind - 1];
  const double slope = (nanoseconds(behind) - before) / width;
  return from_nanoseconds(std::max(0.0, before + slope * (rows - measured[behind - 1])));
}

Bytes of_rows(Bytes each, int32_t rows) {
  const double all = static_cast<double>(each.count) * rows;
  return all < static_cast<double>(kMostMemory) ? Bytes{each.count * rows} : Bytes{kMostMemory};
}

std::string listed(const std::vector<Duration>& times) {
  Json list = Json::array();
  for (const Duration time : times) list.push_back(to_milliseconds(time));
  return list.dump();
}

}  // namespace

Model model_at(const ModelProfile& profile, int32_t rows) {
  CHECK(rows >= 1, "a micro-batch has rows");
  Model model;
  model.tied = profile.tied;
  model.op = profile.op;
  for (const LayerProfile& measured : profile.layers) {
    Layer& layer = model.layers.emplace_back();
    layer.forward = time_at(profile.rows, measured.forward, rows);
    layer.backward_input = time_at(profile.rows, measured.backward_input, rows);
    layer.backward_weight = time_at(profile.rows, measured.backward_weight, rows);
    layer.update = measured.update;
    layer.activation = of_rows(measured.activation, rows);
    layer.stash = of_rows(measured.stash, rows);
    layer.parameters = measured.parameters;
  }
  return model;
}

Result<LayerChain> chain_at(const ModelProfile& profile, int32_t rows, const std::string& source) {
  LayerChain chain;
  chain.model = model_at(profile, rows);
  chain.rows = rows;
  for (const LayerProfile& layer : profile.layers) {
    chain.names.push_back(layer.name);
    chain.optimizer.push_back(layer.optimizer);
  }
  if (const Status status = check_totals(chain, source); !status.ok()) return status.error();
  return chain;
}

Result<ModelProfile> model_profile_from_json(std::string_view text, const std::string& source) {
  const auto tree = parse_json(text, source, {"model", kMostDepth});
  if (!tree.ok()) return tree.error();
  auto profile = ProfileReader(source).read(tree.value());
  if (!profile.ok()) return profile;
  const auto largest = chain_at(profile.value(), profile.value().rows.back(), source);
  if (!largest.ok()) return largest.error();
  return profile;
}

std::string to_json(const ModelProfile& profile) {
  const auto quoted = [](const std::string& text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const auto number = [](double value) { return Json(value).dump(); };
  std::string text =
      cat("{\n \"name\": ", quoted(profile.name), ",\n \"rows\": ", Json(profile.rows).dump(),
          ",\n \"op_ms\": ", number(to_milliseconds(profile.op)),
          ",\n \"tied_bytes\": ", profile.tied.count, ",\n \"layers\": [");
  const char* before = "\n  {";
  for (const LayerProfile& layer : profile.layers) {
    text += cat(before, "\"name\": ", quoted(layer.name),
                ",\n   \"forward_ms\": ", listed(layer.forward),
                ",\n   \"backward_input_ms\": ", listed(layer.backward_input),
                ",\n   \"backward_weight_ms\": ", listed(layer.backward_weight),
                ",\n   \"update_ms\": ", number(to_milliseconds(layer.update)));
    text += cat(", \"activation_bytes\": ", layer.activation.count,
                ", \"stash_bytes\": ", layer.stash.count,
                ", \"parameter_bytes\": ", layer.parameters.count);
    if (layer.optimizer) text += cat(", \"optimizer_bytes\": ", layer.optimizer->count);
    text += cat(", \"spread\": ", number(layer.spread), "}");
    before = ",\n  {";
  }
  return text + "\n ]\n}\n";
}

}  // namespace tenuto
