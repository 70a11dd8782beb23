#include "world/parameters.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/random.h"
#include "base/text.h"

namespace tenuto {
namespace {

// GPT-2's scale of a weight (Radford et al. 2019); residual projections are smaller by the square
// root of their number.
constexpr double kDeviation = 0.02;

constexpr int64_t kAlignment = 16;  // floats: 64 bytes

int64_t aligned(int64_t count) { return (count + kAlignment - 1) / kAlignment * kAlignment; }

void add_block(const ModelSettings& model, int32_t block, std::vector<ParameterCard>& cards) {
  const int64_t width = model.width;
  const double residual = kDeviation / std::sqrt(2.0 * model.layers);
  const std::string prefix = cat("block.", block, ".");
  cards.push_back({prefix + "attention_norm.weight", {width}, 0, 1});
  cards.push_back({prefix + "attention_norm.bias", {width}});
  cards.push_back({prefix + "attention.qkv.weight", {3 * width, width}, kDeviation});
  cards.push_back({prefix + "attention.qkv.bias", {3 * width}});
  cards.push_back({prefix + "attention.projection.weight", {width, width}, residual});
  cards.push_back({prefix + "attention.projection.bias", {width}});
  cards.push_back({prefix + "feed_norm.weight", {width}, 0, 1});
  cards.push_back({prefix + "feed_norm.bias", {width}});
  cards.push_back({prefix + "feed.up.weight", {4 * width, width}, kDeviation});
  cards.push_back({prefix + "feed.up.bias", {4 * width}});
  cards.push_back({prefix + "feed.down.weight", {width, 4 * width}, residual});
  cards.push_back({prefix + "feed.down.bias", {width}});
}

std::vector<ParameterCard> gpt_parameters(const ModelSettings& model, int32_t first, int32_t end) {
  std::vector<ParameterCard> cards;
  const int32_t head = model.layers + 1;
  ParameterCard embedding{"embedding.weight", {kVocabulary, model.width}, kDeviation};
  embedding.shared = model.tied && !(first == 0 && end > head);
  if (first == 0 && end > 0) {
    cards.push_back(embedding);
    cards.push_back({"position.weight", {model.sequence, model.width}, kDeviation});
  }
  for (int32_t layer = std::max(first, 1); layer < std::min(end, head); ++layer) {
    add_block(model, layer - 1, cards);
  }
  if (end > head) {
    cards.push_back({"final_norm.weight", {model.width}, 0, 1});
    cards.push_back({"final_norm.bias", {model.width}});
    if (!model.tied) cards.push_back({"head.weight", {kVocabulary, model.width}, kDeviation});
    if (model.tied && first > 0) {
      embedding.counted = false;
      cards.push_back(embedding);
    }
  }
  return cards;
}

std::vector<ParameterCard> mlp_parameters(const ModelSettings& model, const DataExtent& extent,
                                          int32_t first, int32_t end) {
  std::vector<ParameterCard> cards;
  for (int32_t layer = first; layer < end; ++layer) {
    const int64_t inputs = layer == 0 ? extent.features : model.width;
    const bool last = layer == model.layers;
    const int64_t outputs = last ? extent.classes : model.width;
    const std::string prefix = last ? std::string("output.") : cat("hidden.", layer, ".");
    // He et al. 2015: keeps the variance through a ReLU.
    const double deviation = std::sqrt((last ? 1.0 : 2.0) / static_cast<double>(inputs));
    cards.push_back({prefix + "weight", {outputs, inputs}, deviation});
    cards.push_back({prefix + "bias", {outputs}});
  }
  return cards;
}

}  // namespace

int64_t ParameterCard::count() const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::vector<ParameterCard> parameters_of(const ModelSettings& model, const DataExtent& extent,
                                         int32_t layer_first, int32_t layer_end) {
  CHECK(model.kind != "module", "only the script knows the parameters of its modules");
  return model.kind == "gpt" ? gpt_parameters(model, layer_first, layer_end)
                             : mlp_parameters(model, extent, layer_first, layer_end);
}

ParameterLayout layout_of(std::span<const ParameterCard> cards) {
  ParameterLayout layout;
  layout.first.resize(cards.size());
  int64_t next = 0;
  // Gives each tensor of one kind its place; returns the end.
  const auto place = [&](const auto& wanted) {
    for (size_t i = 0; i < cards.size(); ++i) {
      if (!wanted(cards[i])) continue;
      layout.first[i] = next;
      next += aligned(cards[i].count());
    }
    return next;
  };
  layout.decayed_end =
      place([](const ParameterCard& card) { return card.decays() && !card.shared; });
  layout.shared_first =
      place([](const ParameterCard& card) { return !card.decays() && !card.shared; });
  layout.count = place([](const ParameterCard& card) { return card.shared; });
  return layout;
}

std::vector<ElementRange> growth_of(std::span<const ParameterCard> cards,
                                    const ParameterLayout& layout) {
  CHECK(layout.first.size() == cards.size(), "the layout of these tensors");
  std::vector<ElementRange> parts;
  for (size_t i = cards.size(); i-- > 0;) {
    if (!cards[i].trained) continue;
    parts.push_back({layout.first[i], layout.first[i] + cards[i].count()});
  }
  return parts;
}

void initial_values(const ParameterCard& card, int64_t seed, std::span<float> into) {
  CHECK(static_cast<int64_t>(into.size()) == card.count(), cat("a buffer for all of ", card.name));
  if (card.deviation == 0) {
    std::fill(into.begin(), into.end(), static_cast<float>(card.constant));
    return;
  }
  uint64_t key = mix(static_cast<uint64_t>(seed), card.name.size());
  for (const char letter : card.name) key = mix(key, static_cast<unsigned char>(letter));
  const std::array<uint32_t, 2> halves{static_cast<uint32_t>(key),
                                       static_cast<uint32_t>(key >> 32)};
  // Box and Muller 1958: two uniforms make two normals.
  const auto uniform = [](uint32_t word) { return (word + 0.5) * 0x1.0p-32; };
  for (size_t i = 0; i < into.size(); i += 4) {
    const auto words = philox(halves, {static_cast<uint32_t>(i / 4), 0, 0, 0});
    for (size_t pair = 0; pair < 2; ++pair) {
      const double radius = card.deviation * std::sqrt(-2.0 * std::log(uniform(words[2 * pair])));
      const double angle = 2.0 * std::numbers::pi * uniform(words[2 * pair + 1]);
      const size_t place = i + 2 * pair;
      if (place < into.size()) into[place] = static_cast<float>(radius * std::cos(angle));
      if (place + 1 < into.size()) into[place + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }
}

double learning_rate(const OptimizerSettings& optimizer, double step, int64_t step_count) {
  const double warm_up = optimizer.warm_up_steps;
  // The last step of the warm-up already has the highest rate, and so has what lies behind it.
  if (step < warm_up) return optimizer.learning_rate * std::min(step + 1, warm_up) / warm_up;
  if (optimizer.schedule != "cosine") return optimizer.learning_rate;
  const double span = std::max(1.0, static_cast<double>(step_count) - warm_up);
  const double progress = std::min(1.0, (step - warm_up) / span);
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return optimizer.learning_rate *
         (optimizer.minimum_rate + (1.0 - optimizer.minimum_rate) * share);
}

}  // namespace tenuto
