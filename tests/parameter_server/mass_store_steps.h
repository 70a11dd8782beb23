// Stores of ranges of a model, and updates for them that a test writes by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/random.h"
#include "parameter_server/mass_store.h"

namespace tenuto::servers {

inline constexpr TrialOptimizer kAll[] = {TrialOptimizer::Sgd, TrialOptimizer::Momentum,
                                          TrialOptimizer::Nesterov, TrialOptimizer::AdamW};
inline constexpr Mass kFull{8};

inline MassStoreSettings settings_of(TrialOptimizer optimizer) {
  MassStoreSettings settings;
  settings.optimizer = optimizer;
  settings.rate = usual_rate(optimizer);
  settings.adam.weight_decay = 0.1;
  settings.full = kFull;
  return settings;
}

inline ElementRange range_of(int64_t begin, int64_t end) { return {{0}, begin, end}; }

inline std::unique_ptr<MassStore> store_of(const MassStoreSettings& settings,
                                           const ElementRange& range,
                                           const std::vector<float>& model) {
  auto made =
      MassStore::make(settings, range, {model.begin() + range.begin, model.begin() + range.end});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return std::move(made).value();
}

inline std::vector<float> random_vector(Random& random, size_t size) {
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i) values.push_back(static_cast<float>(random.uniform() - 0.5));
  return values;
}

inline std::vector<float> numbers_in(const Payload& payload) {
  std::vector<float> numbers(payload->size() / sizeof(float));
  std::memcpy(numbers.data(), payload->data(), payload->size());
  return numbers;
}

// An update with the gradients of the whole model.
struct Step {
  DecidedUpdate update;
  std::vector<std::vector<float>> gradients;

  void add(std::vector<float> gradient, int64_t mass) {
    const auto number = static_cast<int32_t>(gradients.size());
    const Offer offer{{number}, {0}, {0}, {mass}};
    update.update.members.push_back(offer);
    update.works.push_back({number + 1, offer, 1, {}});
    gradients.push_back(std::move(gradient));
  }

  std::vector<Payload> payloads(const ElementRange& range) const {
    std::vector<Payload> all;
    for (const std::vector<float>& gradient : gradients) {
      const auto part = std::as_bytes(std::span(gradient).subspan(
          static_cast<size_t>(range.begin), static_cast<size_t>(range.end - range.begin)));
      all.push_back(std::make_shared<std::vector<std::byte>>(part.begin(), part.end()));
    }
    return all;
  }

  void apply_to(MassStore& store, const ElementRange& range) const {
    store.apply(update, payloads(range));
  }
};

inline Step random_step(Random& random, size_t size) {
  Step step;
  for (int64_t left = 1 + random.below(5); left > 0; --left) {
    const int64_t mass = 1 + random.below(2);
    step.add(random_vector(random, size), mass);
  }
  return step;
}

}  // namespace tenuto::servers
